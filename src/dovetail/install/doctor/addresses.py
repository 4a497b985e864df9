"""Pods on a node and the addresses that its network interfaces hold (D16)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.cloud.aws import capacity, catalog
from dovetail.install.doctor.access import eks_cluster
from dovetail.install.doctor.controller import controllers
from dovetail.install.doctor.daemon_sets import agent_faults, uses_other_network
from dovetail.install.doctor.facts import (
    Facts,
    Fault,
    Json,
    condition,
    environment,
    failure,
    own_pools,
    shortened,
    warning,
)
from dovetail.kube.resources import DAEMONSETS, EC2NODECLASSES, NODEPOOLS, NODES
from dovetail.language import message
from dovetail.model.lint.catalog import InstanceCatalog
from dovetail.model.requirements import Requirements, requirement

CNI = "aws-node"
#: Of the instance types that a NodePool allows, the share with too few addresses above which the fault is a failure:
#: large to 2xlarge, which most launches take, are 26 to 30 % of the general NodePool; large alone is 8 to 11 %.
FAILING_SHARE = 0.25


def check_max_pods(facts: Facts) -> Iterator[Fault]:
    yield from _missing_network_faults(facts)
    if not uses_other_network(facts):
        yield from agent_faults(facts, CNI, message("pods on its nodes get no addresses, and new nodes stay NotReady"))
    yield from _too_few_faults(facts)
    yield from _address_faults(facts)


def _missing_network_faults(facts: Facts) -> Iterator[Fault]:
    """Nodes that wait for a network, where EKS's own was deleted and there is no other."""
    if facts.named(DAEMONSETS.name, CNI, "kube-system") is not None or uses_other_network(facts):
        return
    for node in facts.items(NODES.name):
        ready = condition(node, "Ready") or {}
        if ready.get("status") == "False" and "network" in str(ready.get("message")).lower():
            yield failure(
                f"daemonset/kube-system/{CNI}",
                message(
                    "it does not exist, and node {node} is not ready: {message}",
                    node=node["metadata"]["name"],
                    message=ready["message"],
                ),
                f"aws eks create-addon --cluster-name {facts.cluster} --addon-name vpc-cni"
                f" --resolve-conflicts OVERWRITE --region {facts.region}",
            )
            return


def _too_few_faults(facts: Facts) -> Iterator[Fault]:
    """A limit that the pods of DaemonSets reach alone."""
    everywhere = [
        row["metadata"]["name"]
        for row in facts.items(DAEMONSETS.name)
        if (row.get("status") or {}).get("desiredNumberScheduled")
        and not row["spec"]["template"]["spec"].get("nodeSelector")
        and not row["spec"]["template"]["spec"].get("affinity")
    ]
    for node_class in facts.items(EC2NODECLASSES.name):
        limit, name = _max_pods(node_class), node_class["metadata"]["name"]
        if limit is not None and limit <= len(everywhere):
            yield failure(
                f"ec2nodeclass/{name}",
                message(
                    "spec.kubelet.maxPods is {limit}, and pods of {count} DaemonSets ({shortened}) go to every node: "
                    "no other pod fits, so nothing is launched",
                    limit=limit,
                    count=len(everywhere),
                    shortened=shortened(everywhere),
                ),
                f"kubectl patch ec2nodeclass {name} --type=json -p"
                ' \'[{"op":"remove","path":"/spec/kubelet/maxPods"}]\'',
            )


def _address_faults(facts: Facts) -> Iterator[Fault]:
    """Only with the Amazon VPC CNI, which gives each pod an address of the VPC."""
    cni = facts.named(DAEMONSETS.name, CNI, "kube-system")
    if facts.region not in catalog.regions() or (cni is None and uses_other_network(facts)):
        return
    classes = [row for row in facts.items(EC2NODECLASSES.name) if not _ignores_addresses(row)]
    settings = environment(cni) if cni is not None else {}
    if not classes or settings.get("ENABLE_PREFIX_DELEGATION") == "true":
        return
    if settings.get("ENABLE_IPv6") == "true" or _is_ipv6(facts):
        return  # a prefix of IPv6 addresses is always delegated
    custom = settings.get("AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG") == "true"
    if custom:
        yield from _reserved_faults(facts, classes)
    for node_class in classes:
        yield from _max_pods_faults(facts, node_class, reserved=1 if custom else 0)


def _is_ipv6(facts: Facts) -> bool:
    described = facts.answers.get("eks:DescribeCluster")
    if described is None or not described.data:
        return False
    return (eks_cluster(facts).get("kubernetesNetworkConfig") or {}).get("ipFamily") == "ipv6"


def _ignores_addresses(node_class: Json) -> bool:
    """Windows nodes are not limited by interfaces in this way."""
    spec = node_class.get("spec") or {}
    aliases = [str(term.get("alias", "")) for term in spec.get("amiSelectorTerms") or ()]
    return any(text.lower().startswith("windows") for text in (*aliases, str(spec.get("amiFamily") or "")))


def _max_pods(node_class: Json) -> int | None:
    value = ((node_class.get("spec") or {}).get("kubelet") or {}).get("maxPods")
    return int(value) if value is not None else None


def _max_pods_faults(facts: Facts, node_class: Json, reserved: int) -> Iterator[Fault]:
    limit, name = _max_pods(node_class), node_class["metadata"]["name"]
    types = _types(facts, name)
    if limit is None or not types:
        return
    small = [kind for kind in types if capacity.eni_limited_pods(catalog.specs()[kind], reserved) < limit]
    if not small:
        return
    held = capacity.eni_limited_pods(catalog.specs()[small[0]], reserved)
    count = f"all {len(small)}" if len(small) == len(types) else f"{len(small)} of {len(types)}"
    seen = facts.named(DAEMONSETS.name, CNI, "kube-system") is not None
    make = failure if seen and len(small) >= FAILING_SHARE * len(types) else warning
    yield make(
        f"ec2nodeclass/{name}",
        message(
            "spec.kubelet.maxPods is {limit}, and {count} instance types of its NodePools hold fewer "
            "addresses ({shortened}; {small} {held}) while ",
            limit=limit,
            count=count,
            shortened=shortened(small),
            small=small[0],
            held=held,
        )
        + (
            message("ENABLE_PREFIX_DELEGATION of DaemonSet kube-system/{cni} is not true", cni=CNI)
            if seen
            else message("no prefix is delegated")
        )
        + message(": pods beyond that stay in ContainerCreating"),
        f"kubectl set env daemonset/{CNI} -n kube-system ENABLE_PREFIX_DELEGATION=true",
    )


def _reserved_faults(facts: Facts, classes: list[Json]) -> Iterator[Fault]:
    running = controllers(facts)
    unset = [row["metadata"]["name"] for row in classes if _max_pods(row) is None]
    if not running or not unset or "CLUSTER_NAME" not in environment(running[0]):
        return
    if environment(running[0]).get("RESERVED_ENIS", "0") == "0":
        name, namespace = running[0]["metadata"]["name"], running[0]["metadata"]["namespace"]
        yield failure(
            f"deployment/{namespace}/{name}",
            message(
                "RESERVED_ENIS is 0 and DaemonSet kube-system/{cni} uses custom networking, which keeps "
                "the first network interface from pods: nodes of EC2NodeClass {shortened} are planned "
                "with more pods than addresses",
                cni=CNI,
                shortened=shortened(unset),
            ),
            f"kubectl set env deployment/{name} -n {namespace} RESERVED_ENIS=1",
        )


def _types(facts: Facts, node_class: str) -> list[str]:
    """The instance types that the NodePools of a class allow, by name."""
    pools = [
        pool
        for pool in own_pools(facts.items(NODEPOOLS.name))
        if (pool["spec"]["template"]["spec"].get("nodeClassRef") or {}).get("name") == node_class
    ]
    offered = InstanceCatalog(facts.region, catalog.load(facts.region))
    rows = [pool["spec"]["template"]["spec"].get("requirements") or () for pool in pools]
    return sorted({kind.name for row in rows for kind in offered.meeting(requirements(row))})


def requirements(rows: Iterable[Json]) -> Requirements:
    return Requirements(requirement(row["key"], row["operator"], tuple(row.get("values") or ())) for row in rows)
