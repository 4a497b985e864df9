"""Cluster Autoscaler (V06): the groups that its flags name exist, and it may scale them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dovetail.install.doctor.aws_answers import ROLE_ANNOTATION, is_cluster_autoscaler
from dovetail.install.doctor.collect import VERSION
from dovetail.install.doctor.facts import Facts, Fault, Json, failure, images, name_of, warning
from dovetail.kube.resources import DEPLOYMENTS, SERVICEACCOUNTS
from dovetail.language import message

DISCOVERY, NODES = "--node-group-auto-discovery", "--nodes"


def check_cluster_autoscaler(facts: Facts) -> Iterator[Fault]:
    for deployment in facts.items(DEPLOYMENTS.name):
        if is_cluster_autoscaler(deployment) and deployment["spec"].get("replicas", 1):
            yield from _group_faults(facts, deployment)
            yield from _identity_faults(facts, deployment)
            yield from _version_faults(facts, deployment)


def _values(deployment: Json, flag: str) -> list[str]:
    words = [str(word) for word in deployment.get("flags") or ()]
    return [word.split("=", 1)[1].strip("\"'") for word in words if word.startswith(f"{flag}=")]


def _group_faults(facts: Facts, deployment: Json) -> Iterator[Fault]:
    subject, edit = f"deployment/{name_of(deployment)}", f"kubectl edit deployment {deployment['metadata']['name']}"
    edit += f" -n {deployment['metadata']['namespace']}"
    discoveries, named = _values(deployment, DISCOVERY), _values(deployment, NODES)
    if not discoveries and not named:
        return
    groups = facts.items("scaling groups")
    names = {str(group["AutoScalingGroupName"]) for group in groups}
    for value in named:
        name = value.split(":")[-1]
        if name not in names:
            yield failure(
                subject,
                message(
                    "{nodes}={value}: there is no Auto Scaling group {name!r} in {region}",
                    nodes=NODES,
                    value=value,
                    name=name,
                    region=facts.region,
                ),
                message("{edit}  # groups are {names}", edit=edit, names=", ".join(sorted(names)) or "none"),
            )
    for value in discoveries:
        tags = [tag.partition("=") for tag in value.partition("tag=")[2].split(",") if tag]
        if any("<" in key for key, _, _ in tags):
            yield failure(
                subject,
                message(
                    "{discovery}={value} still has the placeholder of the example: it finds no group",
                    discovery=DISCOVERY,
                    value=value,
                ),
                message(
                    "{edit}  # put {cluster} in its place",
                    edit=edit,
                    cluster=facts.cluster or message("the name of the cluster"),
                ),
            )
            continue
        if tags and not any(_has(group, [(key, tag_value) for key, _, tag_value in tags]) for group in groups):
            yield _untagged(facts, subject, value, [key for key, _, _ in tags], groups)


def _has(group: Json, tags: Sequence[tuple[str, str]]) -> bool:
    held = {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags") or ()}
    return all(key in held and (not value or held[key] == value) for key, value in tags)


def _untagged(facts: Facts, subject: str, value: str, keys: Sequence[str], groups: Sequence[Json]) -> Fault:
    first = str(groups[0]["AutoScalingGroupName"]) if groups else "GROUP"
    tags = " ".join(
        f"ResourceId={first},ResourceType=auto-scaling-group,Key={key},Value=true,PropagateAtLaunch=true"
        for key in keys
    )
    return failure(
        subject,
        message(
            "{discovery}={value}: none of the {count} Auto Scaling groups has all of these tags, so no group is scaled",
            discovery=DISCOVERY,
            value=value,
            count=len(groups),
        ),
        f"aws autoscaling create-or-update-tags --tags {tags} --region {facts.region}",
        safe=len(groups) == 1,
    )


def _identity_faults(facts: Facts, deployment: Json) -> Iterator[Fault]:
    """A role that the annotation names and that does not exist; without one the node's role is used."""
    namespace = deployment["metadata"]["namespace"]
    account = deployment["spec"]["template"]["spec"].get("serviceAccountName")
    item = facts.named(SERVICEACCOUNTS.name, str(account), namespace)
    arn = ((item or {"metadata": {}})["metadata"].get("annotations") or {}).get(ROLE_ANNOTATION, "")
    if account and item is None:
        yield failure(
            f"serviceaccount/{namespace}/{account}",
            message(
                "Deployment {name_of} names it in spec.serviceAccountName, and it does not exist",
                name_of=name_of(deployment),
            ),
            f"kubectl create serviceaccount {account} -n {namespace}",
        )
    elif arn and facts.read(f"role {arn.rsplit('/', 1)[-1]}") is None:
        yield failure(
            f"serviceaccount/{namespace}/{account}",
            message(
                "annotation {role_annotation} names {arn}, and IAM has no such role",
                role_annotation=ROLE_ANNOTATION,
                arn=arn,
            ),
            message(
                "dovetail iam --cluster {cluster} --for cluster-autoscaler  # the policy of such a role",
                cluster=facts.cluster,
            ),
        )


def _version_faults(facts: Facts, deployment: Json) -> Iterator[Fault]:
    """Its minor version should be that of Kubernetes: it decides with the scheduler's code of its own version."""
    stated = facts.read(VERSION) or {}
    minor = re.match(r"\d+", str(stated.get("minor", "")))
    for image in images(deployment):
        tag = re.search(r"/cluster-autoscaler:v?1\.(\d+)\.", image)
        if tag and minor and abs(int(tag[1]) - int(minor[0])) > 2:
            yield warning(
                f"deployment/{name_of(deployment)}",
                message(
                    "its image is Cluster Autoscaler 1.{tag} on Kubernetes 1.{minor}: another scheduler",
                    tag=tag[1],
                    minor=minor[0],
                ),
                f"kubectl set image deployment/{deployment['metadata']['name']} -n"
                f" {deployment['metadata']['namespace']}"
                f" '*=registry.k8s.io/autoscaling/cluster-autoscaler:v1.{minor[0]}.0'",
            )
