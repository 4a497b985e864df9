"""Whether a node can take pods, as this program sees it."""

from __future__ import annotations

from dovetail.autoscalers.node_groups.annotations import GPU_LABEL, NVIDIA_GPU
from dovetail.autoscalers.node_groups.templates import TaintConfig
from dovetail.model.meta import condition
from dovetail.model.nodes import Node
from dovetail.model.quantity import parse

NOT_READY_TAINTS = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/network-unavailable"}
)

BAD_CONDITIONS = ("DiskPressure", "NetworkUnavailable")


def is_ready(node: Node, config: TaintConfig) -> bool:
    """Ready by its kubelet, its disk, its network, its taints and its GPUs."""
    if not node.ready:
        return False
    for bad in BAD_CONDITIONS:
        reported = condition(node.status.conditions, bad)
        if reported is not None and reported.status == "True":
            return False
    if any(taint.key in NOT_READY_TAINTS or config.is_startup(taint.key) for taint in node.spec.taints):
        return False
    return not lacks_gpu(node)


def lacks_gpu(node: Node) -> bool:
    """Whether the node is to have GPUs and its driver has not announced them yet."""
    if GPU_LABEL not in node.metadata.labels:
        return False
    return NVIDIA_GPU not in node.status.allocatable or not parse(node.status.allocatable[NVIDIA_GPU])
