"""What is there before an installation: the EKS cluster, its node groups and network, and an autoscaler that runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.errors import code_of, is_not_found, message_of
from dovetail.install.aws_parts import DISCOVERY_TAG, optional
from dovetail.install.iam import EVENT_PATTERNS, OWNER_TAG, rule_name
from dovetail.install.kubernetes_parts import installed_objects
from dovetail.install.steps import Account
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import DAEMONSETS, DEPLOYMENTS, NODECLAIMS, NODEPOOLS
from dovetail.language import message


class DiscoveryError(ValueError):
    """What could not be found out, and what to do about it."""


class DiscoveredNodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...] = ()
    ami_type: str = ""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the account and the cluster, as far as an installation depends on it."""

    cluster: str
    region: str
    account: str
    partition: str
    version: str
    endpoint: str
    issuer: str
    authentication_mode: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    node_groups: tuple[DiscoveredNodeGroup, ...] = ()
    issuer_registered: bool = False
    pod_identity_agent: bool = False
    #: Subnets and security groups whose discovery tag names another cluster.
    foreign: frozenset[str] = frozenset()
    #: Resources that carry the tag of an earlier installation of ours.
    tagged: tuple[str, ...] = ()
    #: Objects of releases that carry our mark, and the queues to which our rules send.
    installed: tuple[Mapping[str, Any], ...] = ()
    queues: tuple[str, ...] = ()
    #: Deployments of Karpenter or Dovetail.
    autoscalers: tuple[Mapping[str, Any], ...] = ()
    #: Whether `dovetail install cluster-autoscaler` was run here.
    installed_cluster_autoscaler: bool = False
    node_pools: tuple[str, ...] = ()
    node_claims: tuple[str, ...] = ()

    @property
    def node_subnets(self) -> tuple[str, ...]:
        """Where new nodes go: where the node groups' nodes are."""
        groups = tuple(dict.fromkeys(subnet for group in self.node_groups for subnet in group.subnets))
        return groups or self.subnets

    @property
    def node_security_groups(self) -> tuple[str, ...]:
        groups = tuple(dict.fromkeys(name for group in self.node_groups for name in group.security_groups))
        return groups or self.security_groups


async def discover(account: Account, cluster: str | None, server: str) -> Found:
    """Read everything; nothing is written. `server` is the API server of the kubeconfig."""
    calls = account.calls
    identity = await calls("sts", "get_caller_identity")
    name = cluster or await cluster_of(account, server)
    try:
        described = (await calls("eks", "describe_cluster", name=name))["cluster"]
    except Exception as error:
        if is_not_found(error) or code_of(error) == "ResourceNotFoundException":
            raise DiscoveryError(
                message(
                    "EKS has no cluster {name!r} in {region} (there are: {listed}); set --cluster or --region",
                    name=name,
                    region=calls.region,
                    listed=", ".join((await calls("eks", "list_clusters"))["clusters"]) or message("none"),
                )
            ) from error
        raise DiscoveryError(f"cluster {name!r}: {code_of(error)}: {message_of(error)}") from error
    network = described.get("resourcesVpcConfig", {})
    groups = tuple([await _node_group(account, name, group) for group in await _node_group_names(account, name)])
    issuer = described.get("identity", {}).get("oidc", {}).get("issuer", "").removeprefix("https://")
    cluster_groups = [network["clusterSecurityGroupId"]] if network.get("clusterSecurityGroupId") else []
    partition = str(identity["Arn"]).split(":")[1]
    registered = f"arn:{partition}:iam::{identity['Account']}:oidc-provider/{issuer}"
    providers = await calls("iam", "list_open_id_connect_providers")
    discovered = Found(
        cluster=name,
        region=calls.region,
        account=str(identity["Account"]),
        partition=partition,
        version=described.get("version", ""),
        endpoint=described.get("endpoint", ""),
        issuer=issuer,
        authentication_mode=described.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP"),
        subnets=tuple(network.get("subnetIds", ())),
        security_groups=tuple(cluster_groups or network.get("securityGroupIds", ())),
        node_groups=groups,
        issuer_registered=registered in [row["Arn"] for row in providers["OpenIDConnectProviderList"]],
        pod_identity_agent=await _has_pod_identity(account),
        autoscalers=tuple(await _autoscalers(account)),
        installed_cluster_autoscaler=await _has_cluster_autoscaler(account),
        node_pools=await _names(account, NODEPOOLS),
        node_claims=await _names(account, NODECLAIMS),
    )
    return msgspec.structs.replace(
        discovered,
        foreign=await _foreign(account, discovered),
        tagged=await _tagged(account, discovered.cluster),
        installed=tuple(await installed_objects(account, discovered.cluster)),
        queues=await _queues(account, discovered.cluster),
    )


async def cluster_of(account: Account, server: str) -> str:
    """The cluster that the kubeconfig speaks to; the only one there is, if it is unknown."""
    names = (await account.calls("eks", "list_clusters"))["clusters"]
    for name in names:
        described = (await account.calls("eks", "describe_cluster", name=name))["cluster"]
        if described.get("endpoint", "").rstrip("/") == server.rstrip("/"):
            return str(name)
    if len(names) == 1:
        return str(names[0])
    listed = ", ".join(names) or message("none")
    raise DiscoveryError(
        message(
            "no EKS cluster in {region} has the endpoint {server} (there are: {listed}); set "
            "--cluster, --region, or run aws eks update-kubeconfig",
            region=account.calls.region,
            server=server,
            listed=listed,
        )
    )


async def _node_group_names(account: Account, cluster: str) -> Sequence[str]:
    answer = await account.calls("eks", "list_nodegroups", clusterName=cluster)
    names: Sequence[str] = answer["nodegroups"]
    return names


async def _node_group(account: Account, cluster: str, name: str) -> DiscoveredNodeGroup:
    answer = await account.calls("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)
    group = answer["nodegroup"]
    return DiscoveredNodeGroup(
        name=name,
        subnets=tuple(group.get("subnets", ())),
        security_groups=await _template_groups(account, group.get("launchTemplate") or {}),
        ami_type=group.get("amiType") or "",
    )


async def _template_groups(account: Account, template: Mapping[str, Any]) -> tuple[str, ...]:
    """Security groups of a node group's launch template, if it names any."""
    if not template.get("id"):
        return ()
    answer = await account.calls(
        "ec2",
        "describe_launch_template_versions",
        LaunchTemplateId=template["id"],
        Versions=[str(template.get("version") or "$Default")],
    )
    versions = answer.get("LaunchTemplateVersions") or [{}]
    data = versions[0].get("LaunchTemplateData", {})
    interfaces = data.get("NetworkInterfaces") or [{}]
    return tuple(interfaces[0].get("Groups") or data.get("SecurityGroupIds") or ())


async def _has_pod_identity(account: Account) -> bool:
    listing = await account.kube.list(DAEMONSETS, "kube-system", labels="app.kubernetes.io/name=eks-pod-identity-agent")
    return bool(listing.items)


async def _autoscalers(account: Account) -> list[dict[str, Any]]:
    return [obj for obj in (await account.kube.list(DEPLOYMENTS)).items if is_controller(obj)]


def is_controller(deployment: Mapping[str, Any]) -> bool:
    """A Deployment of Karpenter's chart or ours. With the value `nameOverride` it has another name in its labels."""
    labels = deployment["metadata"].get("labels") or {}
    if labels.get("app.kubernetes.io/name") == "karpenter":
        return True
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    variables = {row["name"] for box in containers for row in box.get("env") or ()}
    of_chart = re.fullmatch(r"(karpenter|dovetail)-v?\d.*", labels.get("helm.sh/chart", ""))
    return of_chart is not None and "CLUSTER_NAME" in variables


async def _has_cluster_autoscaler(account: Account) -> bool:
    listing = await account.kube.list(DEPLOYMENTS, labels="app.kubernetes.io/name=cluster-autoscaler")
    return any(OWNER_TAG in (obj["metadata"].get("annotations") or {}) for obj in listing.items)


async def _names(account: Account, resource: Any) -> tuple[str, ...]:
    try:
        listing = await account.kube.list(resource)
    except NotFound:
        return ()
    return tuple(obj["metadata"]["name"] for obj in listing.items)


async def _foreign(account: Account, discovered: Found) -> frozenset[str]:
    resources = [*discovered.node_subnets, *discovered.node_security_groups]
    rows = await account.calls.all(
        "ec2", "describe_tags", "Tags", Filters=[{"Name": "resource-id", "Values": resources}]
    )
    return frozenset(
        row["ResourceId"]
        for row in rows
        if row["Key"] == DISCOVERY_TAG and row["Value"] != discovered.cluster and row["ResourceId"] in resources
    )


async def _queues(account: Account, cluster: str) -> tuple[str, ...]:
    """The SQS queue to which the rules of an installation send; its name is one of the values."""
    for name in (rule_name(cluster, event) for event in EVENT_PATTERNS):
        if await optional(account, "events", "describe_rule", Name=name) is not None:
            targets = (await account.calls("events", "list_targets_by_rule", Rule=name)).get("Targets", ())
            if queues := [row["Arn"].rsplit(":", 1)[-1] for row in targets if ":sqs:" in row["Arn"]]:
                return tuple(queues)
    return ()


async def _tagged(account: Account, cluster: str) -> tuple[str, ...]:
    filters = [{"Name": "key", "Values": [OWNER_TAG]}, {"Name": "value", "Values": [cluster]}]
    rows = await account.calls.all("ec2", "describe_tags", "Tags", Filters=filters)
    ours = [row["ResourceId"] for row in rows if row["Key"] == OWNER_TAG and row["Value"] == cluster]
    return tuple(sorted(set(ours)))
