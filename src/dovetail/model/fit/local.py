"""Filters that look at one node and what it holds: cordon, name, taints, labels, ports, resources."""

from __future__ import annotations

from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import Shape, node_matches
from dovetail.model.fit.rejection import NODE_AFFINITY, NODE_NAME, PORTS, TAINTS, UNSCHEDULABLE, Rejection
from dovetail.model.nodes import Node, Taint
from dovetail.model.taints import NO_EXECUTE, NO_SCHEDULE, tolerates
from dovetail.model.taints import UNSCHEDULABLE as CORDONED

_CORDON = Taint(key=CORDONED, effect=NO_SCHEDULE)
_NAMED = ("cpu", "memory", "ephemeral-storage")


def tolerates_node(shape: Shape, node: Node) -> bool:
    """Whether no NoSchedule or NoExecute taint of the node is in the pod's way."""
    return all(
        taint.effect not in (NO_SCHEDULE, NO_EXECUTE)
        or any(tolerates(toleration, taint) for toleration in shape.tolerations)
        for taint in node.spec.taints
    )


def check_static(shape: Shape, node: Node, node_name: str = "") -> Rejection | None:
    """What only a change of the node itself could change."""
    if node.spec.unschedulable and not any(tolerates(toleration, _CORDON) for toleration in shape.tolerations):
        return UNSCHEDULABLE
    if node_name and node_name != node.metadata.name:
        return NODE_NAME
    if not tolerates_node(shape, node):
        return TAINTS
    if not node_matches(shape, node):
        return NODE_AFFINITY
    return None


def check_ports(shape: Shape, info: NodeInfo) -> Rejection | None:
    for port in shape.ports:
        if any(port.scheduled_apart(taken) for taken in info.ports):
            return PORTS
    return None


def is_scalar(name: str) -> bool:
    """A resource that is neither CPU, memory nor local storage but is counted nevertheless."""
    return "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))


def check_resources(shape: Shape, info: NodeInfo) -> Rejection | None:
    """Every resource that is short, named."""
    short: list[str] = []
    hopeless = False
    if len(info.pods) + 1 > info.allocatable.get("pods", 0):
        short.append("Too many pods")
    for name, requested in shape.requests.items():
        if requested <= 0 or not (name in _NAMED or is_scalar(name)):
            continue
        total = info.allocatable.get(name, 0)
        if requested > total - info.requested.get(name, 0):
            short.append(f"Insufficient {name}")
            hopeless = hopeless or requested > total
    if not short:
        return None
    return Rejection("NodeResourcesFit", tuple(short), not hopeless)
