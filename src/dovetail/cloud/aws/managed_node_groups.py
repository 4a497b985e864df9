"""EKS managed node groups: what EKS says of their nodes, kept for a few minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.kube.log import Log
from dovetail.model.nodes import Taint

log = Log(__name__)

CACHE_S = 360.0
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


class ManagedNodeGroup(msgspec.Struct, frozen=True):
    """Labels, taints and tags as EKS will give them to new nodes."""

    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tags: Mapping[str, str] = {}


class ManagedNodeGroups:
    """By cluster and name. A group that EKS does not describe has nothing to add; that is remembered too."""

    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, ManagedNodeGroup]] = {}

    async def get(self, cluster: str, name: str) -> ManagedNodeGroup:
        cached = self._known.get((cluster, name))
        now = self._clock.monotonic()
        if cached is not None and now - cached[0] < CACHE_S:
            return cached[1]
        try:
            answer = await self._calls("eks", "describe_nodegroup", clusterName=cluster, nodegroupName=name)
            group = described(answer["nodegroup"])
        except Exception as error:  # whatever boto3 raises: the Auto Scaling group's own tags say enough for a template
            log.warning("managed node group not read", cluster=cluster, group=name, problem=str(error))
            group = ManagedNodeGroup()
        self._known[cluster, name] = now, group
        return group


def described(nodegroup: Mapping[str, Any]) -> ManagedNodeGroup:
    """An answer of DescribeNodegroup, with the labels that EKS adds by itself."""
    labels: dict[str, str] = {}
    for field, label in (
        ("diskSize", "diskSize"),
        ("amiType", "amiType"),
        ("capacityType", "eks.amazonaws.com/capacityType"),
        ("version", "k8sVersion"),
        ("nodegroupName", "eks.amazonaws.com/nodegroup"),
    ):
        if nodegroup.get(field):
            labels[label] = str(nodegroup[field])
    labels |= nodegroup.get("labels") or {}
    return ManagedNodeGroup(
        labels,
        tuple(
            Taint(key=taint.get("key", ""), value=taint.get("value", ""), effect=_EFFECTS.get(taint.get("effect"), ""))
            for taint in nodegroup.get("taints") or ()
        ),
        dict(nodegroup.get("tags") or {}),
    )
