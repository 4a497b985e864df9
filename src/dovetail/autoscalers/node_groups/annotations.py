"""Names that users and other programs read and write: annotations, taints, and what marks a pod or node as special."""

from __future__ import annotations

from datetime import UTC, datetime

from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

PREFIX = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT = PREFIX + "safe-to-evict"
SAFE_TO_EVICT_LOCAL_VOLUMES = PREFIX + "safe-to-evict-local-volumes"
ENABLE_DAEMONSET_EVICTION = PREFIX + "enable-ds-eviction"
POD_SCALE_UP_DELAY = PREFIX + "pod-scale-up-delay"
DAEMONSET_POD = PREFIX + "daemonset-pod"
SCALE_DOWN_DISABLED = PREFIX + "scale-down-disabled"
LAST_UPDATED = PREFIX + "last-updated"
DELAY_DELETION_PREFIX = "delay-deletion.cluster-autoscaler.kubernetes.io/"
MIRROR_POD = "kubernetes.io/config.mirror"
CONFIG_SOURCE = "kubernetes.io/config.source"

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
STARTUP_TAINT_PREFIXES = (
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
)
STATUS_TAINT_PREFIXES = ("status-taint.cluster-autoscaler.kubernetes.io/",)
#: Taints that say how a node is at the moment, not what its group is like.
CONDITION_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/pid-pressure",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "cloud.google.com/impending-node-termination",
        "NodeWithImpairedVolumes",
    }
)
#: A node counts as being deleted this long after it was tainted for that.
DELETION_TAINT_LIFE_S = 300.0
NVIDIA_GPU = "nvidia.com/gpu"
GPU_LABEL = "k8s.amazonaws.com/accelerator"


def is_mirror_pod(pod: Pod) -> bool:
    """Whether the kubelet runs the pod from a file; the API server only shows it."""
    return MIRROR_POD in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    """Whether the pod's source is the node itself."""
    return pod.metadata.annotations.get(CONFIG_SOURCE) not in (None, "api")


def is_daemonset(pod: Pod) -> bool:
    """Whether a DaemonSet, or an annotation in its place, ties the pod to its node."""
    owner = pod.metadata.controller
    if owner is not None and owner.kind == "DaemonSet":
        return True
    return pod.metadata.annotations.get(DAEMONSET_POD) == "true"


def has_taint(node: Node, key: str) -> bool:
    return any(taint.key == key for taint in node.spec.taints)


def taint_time(node: Node, key: str) -> datetime | None:
    """When this program set the taint: its value is a Unix time. None without one, or if the value is none."""
    for taint in node.spec.taints:
        if taint.key == key:
            try:
                return datetime.fromtimestamp(int(taint.value), UTC)
            except (ValueError, OverflowError, OSError):
                return None
    return None


def is_being_deleted(node: Node, now: datetime) -> bool:
    """Whether a deletion was begun, and not so long ago that it must have failed."""
    since = taint_time(node, TO_BE_DELETED)
    return since is not None and (now - since).total_seconds() < DELETION_TAINT_LIFE_S


def gpu_resource(node: Node) -> str | None:
    """The resource that counts the node's GPUs, for a node that has or is to have some."""
    if NVIDIA_GPU in node.status.allocatable and node.status.allocatable[NVIDIA_GPU] not in ("0", 0):
        return NVIDIA_GPU
    return NVIDIA_GPU if GPU_LABEL in node.metadata.labels else None
