"""Which parts an installation consists of, in order: a pure function of what was found and what was asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.install import iam
from dovetail.install.aws_parts import (
    DISCOVERY_TAG,
    AccessEntry,
    DiscoveryTag,
    EventRule,
    IamRole,
    InstanceProfile,
    OidcProvider,
    PodIdentityAssociation,
    SqsQueue,
)
from dovetail.install.chart import Chart, Json, Release, chart_directory, merge_values
from dovetail.install.discovery import Found
from dovetail.install.iam import OWNER_TAG, Site
from dovetail.install.kubernetes_parts import RELEASE_NAME, MappedRole, Object, definition_parts, marked
from dovetail.install.pod_role import PodRole
from dovetail.install.steps import InstallPart
from dovetail.language import message

ROLE_ANNOTATION = "eks.amazonaws.com/role-arn"
CRD_RELEASE = "karpenter-crd"
#: On the Deployment that was scaled down: how many replicas it had.
FORMER_REPLICAS = "dovetail.sh/replicas-before-take-over"


class InstallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    release: Release
    values: Json = {}
    node_pool: bool = True
    #: The parts are listed to be removed.
    removing: bool = False


class RefusedError(ValueError):
    """Why an installation or a removal is not begun, and what to do."""


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The parts in order; the last ones are made once the controller is ready."""

    site: Site
    release: Release
    values: Json
    cloud: tuple[InstallPart, ...]
    cluster: tuple[InstallPart, ...]
    first_pool: tuple[InstallPart, ...]
    notes: str


def site_of(discovered: Found, options: InstallOptions) -> Site:
    """Names of everything at AWS; what the values already name is taken."""
    settings = options.values.get("settings") or {}
    aws = settings.get("aws") or {}
    gates = settings.get("featureGates") or {}
    irsa = discovered.issuer_registered or not discovered.pod_identity_agent
    return Site(
        cluster=discovered.cluster,
        region=discovered.region,
        account=discovered.account,
        partition=discovered.partition,
        queue=str(settings.get("interruptionQueue") or aws.get("interruptionQueueName") or discovered.cluster),
        namespace=options.release.namespace,
        service_account=options.release.service_account_name(options.values),
        issuer=discovered.issuer if irsa else "",
        reboots=str(gates.get("nodeRepair", "")).lower() == "true",
    )


def plan(discovered: Found, options: InstallOptions) -> Installation:
    """Every part of the installation."""
    _refuse_bad_names(options.release)
    chart = Chart(chart_directory())
    chart.values(options.values)
    if not options.removing:
        _refuse_a_second(discovered, options)
    site = site_of(discovered, options)
    _refuse_another_cluster(options.values, site.cluster)
    given_role = ((options.values.get("serviceAccount") or {}).get("annotations") or {}).get(ROLE_ANNOTATION)
    base: Json = {"settings": {"clusterName": site.cluster, "interruptionQueue": site.queue}}
    if site.issuer:
        base["serviceAccount"] = {"annotations": {ROLE_ANNOTATION: site.role_arn(site.controller_role)}}
    values = merge_values(options.values, base)
    # A whole values file of Karpenter says "" for the cluster; an empty queue is a choice (no interruption handling).
    values["settings"]["clusterName"] = values["settings"].get("clusterName") or site.cluster
    return Installation(
        site=site,
        release=options.release,
        values=values,
        cloud=tuple(_cloud_parts(discovered, site, given_role, removing=options.removing)),
        cluster=(
            *_cluster_parts(chart, options.release, values, site.cluster),
            *_pod_role(options.release, values),
        ),
        first_pool=tuple(_first_pool(discovered, site)) if _wants_pool(discovered, options) else (),
        notes=chart.notes(options.release, values),
    )


def _refuse_bad_names(release: Release) -> None:
    """Before anything is made: the API server would refuse them after the account has been changed."""
    for option, name in (("--namespace", release.namespace), ("--release", release.name)):
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?", name):
            raise RefusedError(
                message(
                    "{option} {name!r}: expected up to 53 lower-case letters, digits and hyphens, "
                    "with a letter or digit at both ends",
                    option=option,
                    name=name,
                )
            )


def _refuse_a_second(discovered: Found, options: InstallOptions) -> None:
    """Two autoscalers must not run for one cluster."""
    planned = (options.release.namespace, options.release.deployment_name(options.values))
    for deployment in discovered.autoscalers:
        metadata = deployment["metadata"]
        runs = bool(deployment["spec"].get("replicas", 1))
        if not is_ours(deployment) and runs and is_dovetail(deployment):
            raise RefusedError(
                message(
                    "Deployment {namespace}/{name} is a release of Dovetail that Helm installed; change it by helm "
                    "upgrade, or run helm uninstall {release} -n {namespace} first. dovetail iam prints what it needs "
                    "at AWS",
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                    release=(metadata.get("annotations") or {}).get(RELEASE_NAME, metadata["name"]),
                )
            )
        if not is_ours(deployment) and runs:
            raise RefusedError(
                message(
                    "Deployment {namespace}/{name} already runs Karpenter for this cluster; --take-over "
                    "replaces it in place, or scale it to 0 first",
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                )
            )
        annotations = metadata.get("annotations") or {}
        elsewhere = (metadata["namespace"], metadata["name"]) != planned
        if is_ours(deployment) and elsewhere and FORMER_REPLICAS not in annotations:
            raise RefusedError(
                message(
                    "Deployment {namespace}/{name} is an installation of Dovetail; repeat with --namespace "
                    "{namespace} --release {release} and its values, or uninstall it",
                    namespace=metadata["namespace"],
                    name=metadata["name"],
                    release=annotations.get(RELEASE_NAME, metadata["name"]),
                )
            )


def _refuse_another_cluster(values: Json, cluster: str) -> None:
    """Values kept from another cluster would install a controller that looks for instances there."""
    settings = values.get("settings") or {}
    maps = {
        "settings": settings,
        "settings.aws": settings.get("aws") or {},
        "": values,
        "controller": values.get("controller") or {},
    }
    for path, entries in maps.items():
        named = entries.get("clusterName") if isinstance(entries, Mapping) else None
        if named and named != cluster:
            raise RefusedError(
                message(
                    "the values say {path} {named}, and this is the cluster {cluster}; correct the value, or choose "
                    "the cluster with --cluster and --context",
                    path=f"{path}.clusterName".removeprefix("."),
                    named=named,
                    cluster=cluster,
                )
            )


def is_ours(obj: Mapping[str, Any]) -> bool:
    return OWNER_TAG in (obj["metadata"].get("annotations") or {})


def is_dovetail(deployment: Mapping[str, Any]) -> bool:
    """By its chart's label."""
    return str((deployment["metadata"].get("labels") or {}).get("helm.sh/chart", "")).startswith("dovetail-")


def _wants_pool(discovered: Found, options: InstallOptions) -> bool:
    """A cluster with NodePools of its own needs no first one."""
    return options.removing or (options.node_pool and not set(discovered.node_pools) - {"default"})


def _cloud_parts(discovered: Found, site: Site, given_role: str | None, *, removing: bool) -> list[InstallPart]:
    owner = site.cluster
    parts: list[InstallPart] = [
        IamRole(name=site.node_role, owner=owner, trust=iam.node_trust(site), attached=iam.node_policy_arns(site)),
        InstanceProfile(name=site.instance_profile, owner=owner, role=site.node_role),
    ]
    if given_role is None or given_role == site.role_arn(site.controller_role):
        if site.issuer and not (removing and discovered.installed_cluster_autoscaler):  # whose role needs the provider
            arn = f"arn:{site.partition}:iam::{site.account}:oidc-provider/{site.issuer}"
            parts.append(OidcProvider(arn=arn, issuer=site.issuer, owner=owner))
        inline = {f"Karpenter{name}": policy for name, policy in iam.controller_policies(site).items()}
        parts.append(IamRole(name=site.controller_role, owner=owner, trust=iam.controller_trust(site), inline=inline))
        if not site.issuer:
            parts.append(
                PodIdentityAssociation(
                    cluster=site.cluster,
                    namespace=site.namespace,
                    service_account=site.service_account,
                    role_arn=site.role_arn(site.controller_role),
                    owner=owner,
                )
            )
    parts.append(SqsQueue(name=site.queue, owner=owner, policy=iam.queue_policy(site)))
    for event, pattern in iam.EVENT_PATTERNS.items():
        name = iam.rule_name(site.cluster, event)
        arn = f"arn:{site.partition}:events:{site.region}:{site.account}:rule/{name}"
        parts.append(EventRule(name=name, owner=owner, arn=arn, pattern=dict(pattern), target=site.queue_arn))
    tagged = [(message("subnet"), name) for name in discovered.node_subnets]
    tagged += [(message("security group"), name) for name in discovered.node_security_groups]
    parts += [DiscoveryTag(kind=kind, resource=name, owner=owner) for kind, name in tagged]
    role_arn = site.role_arn(site.node_role)
    by_entries = "API" in discovered.authentication_mode
    if by_entries:
        parts.append(AccessEntry(cluster=site.cluster, role_arn=role_arn, owner=owner))
    if removing or not by_entries:  # the mode may have changed since the installation
        parts.append(MappedRole(role_arn=role_arn, owner=owner))
    return parts


def _cluster_parts(chart: Chart, release: Release, values: Json, owner: str) -> list[InstallPart]:
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": release.namespace}}
    definitions = Release(name=CRD_RELEASE, namespace=release.namespace)
    parts: list[InstallPart] = [Object(body=marked(namespace, release, owner), owner=owner, keep=True)]
    parts += definition_parts(definitions, owner)
    parts += [Object(body=marked(obj, release, owner), owner=owner) for obj in chart.objects(release, values)]
    return parts


def _pod_role(release: Release, values: Json) -> list[InstallPart]:
    """Left out with a ServiceAccount of the operator's own: its annotation is theirs, and so are restarts."""
    service_account = values.get("serviceAccount") or {}
    if service_account.get("create") is False:
        return []
    role_arn = str((service_account.get("annotations") or {}).get(ROLE_ANNOTATION) or "")
    return [PodRole(deployment=release.deployment_name(values), namespace=release.namespace, role_arn=role_arn)]


def _first_pool(discovered: Found, site: Site) -> list[InstallPart]:
    """An EC2NodeClass and a NodePool that fit the cluster: images, architecture and network of its node groups."""
    by_tag = not discovered.foreign

    def terms(names: tuple[str, ...]) -> list[Json]:
        return [{"tags": {DISCOVERY_TAG: site.cluster}}] if by_tag else [{"id": name} for name in names]

    kinds = {group.ami_type for group in discovered.node_groups if group.ami_type}
    family = "bottlerocket" if kinds and all(kind.startswith("BOTTLEROCKET") for kind in kinds) else "al2023"
    arm = bool(kinds) and all("ARM" in kind for kind in kinds)
    subnets, groups = terms(discovered.node_subnets), terms(discovered.node_security_groups)
    node_class = general_node_class("default", site.node_role, subnets, groups, family)
    made = (node_class, general_node_pool("arm64" if arm else "amd64", "default"))
    return [Object(body=annotated(obj, site.cluster), owner=site.cluster, keep=True, editable=True) for obj in made]


def general_node_class(name: str, role: str, subnets: list[Json], groups: list[Json], family: str = "al2023") -> Json:
    """An EC2NodeClass with the newest images of a family; `subnets` and `groups` are selector terms."""
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "amiSelectorTerms": [{"alias": f"{family}@latest"}],
            "role": role,
            "subnetSelectorTerms": subnets,
            "securityGroupSelectorTerms": groups,
        },
    }


def general_node_pool(architecture: str, node_class: str) -> Json:
    """A NodePool for workloads that ask for nothing in particular."""
    requirements = [
        {"key": "kubernetes.io/arch", "operator": "In", "values": [architecture]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {"requirements": requirements, "nodeClassRef": reference, "expireAfter": "720h"}},
            "limits": {"cpu": "1000"},
            "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1m"},
        },
    }


def annotated(obj: Json, owner: str) -> Json:
    """Our mark without Helm's: the object belongs to no release, so that no upgrade takes it away."""
    whole = marked(obj, Release(name="none", namespace="none"), owner)
    metadata = whole["metadata"]
    kept = {key: text for key, text in metadata["annotations"].items() if not key.startswith("meta.helm.sh/")}
    labels = {key: text for key, text in metadata["labels"].items() if key != "app.kubernetes.io/managed-by"}
    return {**whole, "metadata": {**metadata, "annotations": kept, "labels": labels}}
