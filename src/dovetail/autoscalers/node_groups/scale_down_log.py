"""Log lines about nodes that go or stay, in the words that people grep for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from dovetail.autoscalers.node_groups.cooldown import Cooldown
from dovetail.autoscalers.node_groups.scale_down import ScaleDownPlanner
from dovetail.autoscalers.node_groups.unremovable import Unremovable, UnremovableReason
from dovetail.model.duration import format_duration

#: Nodes above the threshold that are named in one loop.
MAX_UNDERUTILIZED_LINES = 20


class ScaleDownLogLine(NamedTuple):
    """Written at verbosities from `level` on."""

    source: str
    message: str
    level: int


def node_lines(planner: ScaleDownPlanner, now: datetime) -> Iterator[ScaleDownLogLine]:
    """Since when nodes are unneeded, and why others stay."""
    for name, unneeded in planner.unneeded.items():
        yield ScaleDownLogLine("nodes", f"{name} was unneeded for {format_duration(now - unneeded.since)}", 1)
    busy = 0
    for unremovable in planner.unremovable:
        if unremovable.reason is UnremovableReason.NOT_UNDERUTILIZED:
            busy += 1
            if busy > MAX_UNDERUTILIZED_LINES:
                continue
        line = _staying(unremovable, planner)
        if line is not None:
            yield line
    if busy > MAX_UNDERUTILIZED_LINES:
        more = busy - MAX_UNDERUTILIZED_LINES
        yield ScaleDownLogLine("eligibility", f"{more} other nodes are above the scale-down utilization threshold", 4)


def _staying(unremovable: Unremovable, planner: ScaleDownPlanner) -> ScaleDownLogLine | None:
    name, share = unremovable.node, planner.utilization.get(unremovable.node)
    match unremovable.reason:
        case UnremovableReason.NOT_UNDERUTILIZED if share is not None:
            requested = f"{share.resource} requested ({100 * share.highest:.6g}% of allocatable)"
            text = f"Node {name} unremovable: {requested} is above the scale-down utilization threshold"
            return ScaleDownLogLine("eligibility", text, 4)
        case UnremovableReason.BLOCKED_BY_POD if unremovable.blocking is not None:
            return ScaleDownLogLine("cluster", f"node {name} cannot be removed: {unremovable.blocking.message}", 2)
        case UnremovableReason.NO_PLACE_TO_MOVE_PODS:
            return ScaleDownLogLine(
                "cluster", f"node {name} is not suitable for removal: no other node has room for its pods", 2
            )
        case _:
            return None


def cooldown_line(cooldown: Cooldown, *, forbidden: bool, active: bool) -> ScaleDownLogLine:
    """What keeps nodes from going at all, if anything does."""
    times = (
        f"lastScaleUpTime={cooldown.last_scale_up} lastScaleDownDeleteTime={cooldown.last_deletion} "
        f"lastScaleDownFailTime={cooldown.last_failure}"
    )
    states = f"scaleDownForbidden={str(forbidden).lower()} scaleDownInCooldown={str(active).lower()}"
    return ScaleDownLogLine("static_autoscaler", f"Scale down status: {times} {states}", 4)
