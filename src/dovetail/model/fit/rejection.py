"""Why a node is not for a pod, in the words people know from `kubectl describe`."""

from __future__ import annotations

import msgspec


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """`resolvable` when evicting pods from the node could change the answer."""

    plugin: str
    reasons: tuple[str, ...]
    resolvable: bool = False


UNSCHEDULABLE = Rejection("NodeUnschedulable", ("node(s) were unschedulable",))
NODE_NAME = Rejection("NodeName", ("node(s) didn't match the requested node name",))
TAINTS = Rejection("TaintToleration", ("node(s) had untolerated taint(s)",))
NODE_AFFINITY = Rejection("NodeAffinity", ("node(s) didn't match Pod's node affinity/selector",))
NODE_AFFINITY_CONFLICT = Rejection("NodeAffinity", ("pod affinity terms conflict",))
PORTS = Rejection("NodePorts", ("node(s) didn't have free ports for the requested pod ports",), True)
DISK = Rejection("VolumeRestrictions", ("node(s) had no available disk",), True)
ONCE_POD = Rejection(
    "VolumeRestrictions",
    (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod",
    ),
    True,
)
VOLUME_LIMIT = Rejection("NodeVolumeLimits", ("node(s) exceed max volume count",), True)
VOLUME_ZONE = Rejection("VolumeZone", ("node(s) had no available volume zone",))
SPREAD = Rejection("PodTopologySpread", ("node(s) didn't match pod topology spread constraints",), True)
SPREAD_LABEL = Rejection(
    "PodTopologySpread", ("node(s) didn't match pod topology spread constraints (missing required label)",)
)
AFFINITY = Rejection("InterPodAffinity", ("node(s) didn't match pod affinity rules",))
ANTI_AFFINITY = Rejection("InterPodAffinity", ("node(s) didn't match pod anti-affinity rules",), True)
EXISTING_ANTI_AFFINITY = Rejection(
    "InterPodAffinity", ("node(s) didn't satisfy existing pods anti-affinity rules",), True
)
