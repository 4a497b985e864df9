"""Unremovable nodes: why each stays, and for how long it is not asked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum

import msgspec

from dovetail.autoscalers.node_groups.drain import BlockingPod
from dovetail.language import source


class UnremovableReason(Enum):
    """The values are the names that metrics and logs show."""

    SCALE_DOWN_DISABLED = "ScaleDownDisabledAnnotation"
    UNREADY_DISABLED = "ScaleDownUnreadyDisabled"
    NOT_AUTOSCALED = "NotAutoscaled"
    NOT_UNNEEDED_LONG_ENOUGH = "NotUnneededLongEnough"
    NOT_UNREADY_LONG_ENOUGH = "NotUnreadyLongEnough"
    MIN_SIZE_REACHED = "NodeGroupMinSizeReached"
    MAX_DELETIONS_REACHED = "NodeGroupMaxDeletionCountReached"
    ATOMIC_FAILED = "AtomicScaleDownFailed"
    MINIMAL_LIMIT_EXCEEDED = "MinimalResourceLimitExceeded"
    BEING_DELETED = "CurrentlyBeingDeleted"
    NOT_UNDERUTILIZED = "NotUnderutilized"
    NOT_UNNEEDED_OTHER = "NotUnneededOtherReason"
    RECENTLY_UNREMOVABLE = "RecentlyUnremovable"
    NO_PLACE_TO_MOVE_PODS = "NoPlaceToMovePods"
    BLOCKED_BY_POD = "BlockedByPod"
    UNEXPECTED_ERROR = "UnexpectedError"
    NO_NODE_INFO = "NoNodeInfo"
    BLOCKED_BY_ON_COMPLETION_POD = "BlockedByOnCompletionPod"


REMEDIES: Mapping[UnremovableReason, str] = {
    UnremovableReason.SCALE_DOWN_DISABLED: source(
        "remove the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled"
    ),
    UnremovableReason.UNREADY_DISABLED: source("set --scale-down-unready-enabled=true, or repair the node"),
    UnremovableReason.NOT_AUTOSCALED: source(
        "its group is not under control: tag the Auto Scaling group, or name it in --nodes"
    ),
    UnremovableReason.NOT_UNNEEDED_LONG_ENOUGH: source(
        "it goes after --scale-down-unneeded-time, if it stays unneeded"
    ),
    UnremovableReason.NOT_UNREADY_LONG_ENOUGH: source("it goes after --scale-down-unready-time, if it stays unready"),
    UnremovableReason.MIN_SIZE_REACHED: source("lower the group's minimum size"),
    UnremovableReason.MAX_DELETIONS_REACHED: source("other nodes go first; raise --max-scale-down-parallelism"),
    UnremovableReason.ATOMIC_FAILED: source(
        "the group is removed whole or not at all; the others of its nodes must be removable too"
    ),
    UnremovableReason.MINIMAL_LIMIT_EXCEEDED: source(
        "lower the minimum of --cores-total, --memory-total or --gpu-total"
    ),
    UnremovableReason.BEING_DELETED: source("it is on its way"),
    UnremovableReason.NOT_UNDERUTILIZED: source("its pods request more than --scale-down-utilization-threshold of it"),
    UnremovableReason.NOT_UNNEEDED_OTHER: source("it was not looked at in the last loop"),
    UnremovableReason.RECENTLY_UNREMOVABLE: source("it is looked at again after --unremovable-node-recheck-timeout"),
    UnremovableReason.NO_PLACE_TO_MOVE_PODS: source("no other node has room for its pods"),
    UnremovableReason.BLOCKED_BY_POD: source("see the pod that is named"),
    UnremovableReason.UNEXPECTED_ERROR: source("see the log"),
    UnremovableReason.NO_NODE_INFO: source("the node has gone"),
    UnremovableReason.BLOCKED_BY_ON_COMPLETION_POD: source(
        "it goes once its pods with safe-to-evict=on-completion have completed"
    ),
}


class Unremovable(msgspec.Struct, frozen=True):
    """A node that stays."""

    node: str
    reason: UnremovableReason
    blocking: BlockingPod | None = None


class UnremovableNodes:
    """The newest reason of each node, and nodes that were found unremovable in simulation until when."""

    def __init__(self) -> None:
        self._until: dict[str, tuple[datetime, Unremovable]] = {}
        self._reasons: dict[str, Unremovable] = {}

    def update(self, nodes: Iterable[str], now: datetime) -> None:
        """A new loop begins: reasons are worked out anew; of nodes that are gone nothing is kept."""
        self._reasons = {}
        there = set(nodes)
        self._until = {name: kept for name, kept in self._until.items() if kept[0] > now and name in there}

    def add(self, unremovable: Unremovable) -> None:
        self._reasons[unremovable.node] = unremovable

    def add_until(self, unremovable: Unremovable, until: datetime) -> None:
        """The node is not looked at again before then."""
        self._until[unremovable.node] = until, unremovable
        self.add(unremovable)

    def is_recent(self, node: str) -> bool:
        return node in self._until

    def cause(self, unremovable: Unremovable) -> Unremovable:
        """What a simulation found, for a node that is only not looked at again yet."""
        kept = self._until.get(unremovable.node)
        return (
            kept[1]
            if unremovable.reason is UnremovableReason.RECENTLY_UNREMOVABLE and kept is not None
            else unremovable
        )

    def reason(self, node: str) -> Unremovable | None:
        return self._reasons.get(node)

    def __iter__(self) -> Iterator[Unremovable]:
        return iter(self._reasons.values())
