"""EKS managed node groups: what EKS says of their nodes, kept for a few minutes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of
from dovetail.model.nodes import Taint

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
        except Exception as error:
            if code_of(error) not in ("ResourceNotFoundException", "AccessDenied", "AccessDeniedException"):
                raise
            group = ManagedNodeGroup()
        self._known[cluster, name] = now, group
        return group


def described(nodegroup: Mapping[str, Any]) -> ManagedNodeGroup:
    """An answer of DescribeNodegroup, with the labels that EKS adds by itself."""
    labels = dict(nodegroup.get("labels") or {})
    for field, label in (
        ("amiType", "amiType"),
        ("capacityType", "capacityType"),
        ("version", "k8sVersion"),
        ("nodegroupName", "eks.amazonaws.com/nodegroup"),
    ):
        if nodegroup.get(field):
            labels[label] = str(nodegroup[field])
    return ManagedNodeGroup(
        labels,
        tuple(
            Taint(key=taint.get("key", ""), value=taint.get("value", ""), effect=_EFFECTS.get(taint.get("effect"), ""))
            for taint in nodegroup.get("taints") or ()
        ),
        dict(nodegroup.get("tags") or {}),
    )
