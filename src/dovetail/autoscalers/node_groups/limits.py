"""Limiters of an estimate: how many nodes may be added to one group in one go, and for how long that is worked out.

A threshold of 0 is no limit, a negative one forbids any node, and the smallest of several counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dovetail.clock import stopwatch
from dovetail.cloud.node_groups import NodeGroup


class EstimationContext(msgspec.Struct, frozen=True):
    """What surrounds an estimate: similar groups that share the load, and the size of the whole cluster."""

    similar_groups: tuple[NodeGroup, ...] = ()
    cluster_max_nodes: int = 0
    current_nodes: int = 0


class Threshold(msgspec.Struct, frozen=True):
    """0 is no limit, below 0 is none at all."""

    nodes: int = 0
    duration_s: float = 0.0


def similar_groups_threshold(group: NodeGroup, context: EstimationContext | None) -> Threshold:
    """The room of the group and of those similar to it."""
    if context is None:
        return Threshold()
    room = group.room + sum(similar.room for similar in context.similar_groups)
    return Threshold(room if room > 0 else -1)


def cluster_threshold(context: EstimationContext | None) -> Threshold:
    """What --max-nodes-total leaves."""
    if context is None or context.cluster_max_nodes == 0:
        return Threshold()
    if context.cluster_max_nodes < 0 or context.cluster_max_nodes <= context.current_nodes:
        return Threshold(-1)
    return Threshold(context.cluster_max_nodes - context.current_nodes)


class EstimationLimiter:
    """Gives permission node by node. Made anew for each estimate."""

    def __init__(self, thresholds: Sequence[Threshold], clock: Callable[[], float] = stopwatch) -> None:
        self._clock = clock
        self._started = clock()
        self.max_nodes = 0
        self.max_duration_s = 0.0
        for threshold in thresholds:
            self.max_nodes = int(_tighter(self.max_nodes, threshold.nodes))
            self.max_duration_s = _tighter(self.max_duration_s, threshold.duration_s)
        self.nodes = 0

    def permit(self) -> bool:
        """Whether one more node may be added; the caller adds it then."""
        if self.max_nodes < 0 or (self.max_nodes > 0 and self.nodes >= self.max_nodes):
            return False
        if self.max_duration_s < 0 or (0 < self.max_duration_s < self._clock() - self._started):
            return False
        self.nodes += 1
        return True


def _tighter(base: float, target: float) -> float:
    if base < 0 or target < 0:
        return -1
    return target if target > 0 and (base == 0 or base > target) else base
