"""Node utilisation: how much of a node its pods have requested.

The larger of CPU and memory counts; on a GPU node only its GPUs do. With DaemonSet or mirror pods ignored, their
requests leave the sum and shrink the allocatable amount alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from dovetail.autoscalers.node_groups.annotations import is_daemonset, is_mirror_pod
from dovetail.autoscalers.node_groups.drain import is_long_terminating
from dovetail.language import source
from dovetail.model.fit import NodeInfo
from dovetail.model.fit.podinfo import PodInfo


class Utilization(msgspec.Struct, frozen=True):
    """`highest` is the share that decides, `resource` the resource that it is of."""

    resource: str
    highest: float
    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0

    def __str__(self) -> str:
        """As events show it; the fourth number is of dynamic resources, which are not counted here."""
        cpu, memory, gpu, highest = (_shown(share) for share in (self.cpu, self.memory, self.gpu, self.highest))
        return f"{{{cpu} {memory} {gpu} 0 {self.resource} {highest}}}"


def _shown(share: float) -> str:
    """The shortest text of the number, without a fraction where there is none."""
    return str(int(share)) if share.is_integer() else repr(share)


class UnknownUtilization(ValueError):
    """The node does not say how much it has, or has none."""


def utilization(
    info: NodeInfo,
    now: datetime,
    *,
    ignore_daemonsets: bool = False,
    ignore_mirrors: bool = False,
    gpu: str | None = None,
) -> Utilization:
    """The node's utilisation. `gpu` is the resource of its GPUs, if it has any. Raises UnknownUtilization."""
    pods = info.pods.values()
    if gpu is not None:
        try:
            share = _share(info, gpu, pods, now, ignore_daemonsets, ignore_mirrors)
        except UnknownUtilization:
            share = 0.0  # a GPU that has not come up must not keep its node
        return Utilization(gpu, share, gpu=share)
    cpu = _share(info, "cpu", pods, now, ignore_daemonsets, ignore_mirrors)
    memory = _share(info, "memory", pods, now, ignore_daemonsets, ignore_mirrors)
    return Utilization("cpu", cpu, cpu, memory) if cpu > memory else Utilization("memory", memory, cpu, memory)


def _share(
    info: NodeInfo, resource: str, pods: Iterable[PodInfo], now: datetime, ignore_daemonsets: bool, ignore_mirrors: bool
) -> float:
    allocatable = info.allocatable.get(resource)
    if not allocatable:
        missing = (
            source("node {node} has no allocatable {resource}; its kubelet has to report status.allocatable")
            if allocatable is None
            else source("node {node} has zero allocatable {resource}; its kubelet has to report status.allocatable")
        )
        raise UnknownUtilization(missing.format(node=info.name, resource=resource))
    requested = 0
    ignored = 0
    for placed in pods:
        amount = placed.held.get(resource, 0)
        if (ignore_daemonsets and is_daemonset(placed.pod)) or (ignore_mirrors and is_mirror_pod(placed.pod)):
            ignored += amount
        elif not is_long_terminating(placed.pod, now):
            requested += amount
    left = allocatable - ignored
    if left <= 0:
        return 0.0 if requested == 0 else float("inf")
    return requested / left
