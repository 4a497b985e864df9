"""Messages of the scheduler: the text of `FailedScheduling` and of the `PodScheduled` condition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dovetail.lab.scheduler.schedule_one import SchedulingDecision
from dovetail.model.fit import Rejection

NO_NODES = "no nodes available to schedule pods"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"
_UNNAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
_MAX_MESSAGE_LENGTH = 1024


def histogram(total: int, tally: Mapping[Rejection, int], absent: int, absent_reason: str) -> str:
    """`0/3 nodes are available: 1 Insufficient cpu, 2 …`: reasons with how often, in order of the text."""
    counts: Counter[str] = Counter()
    for rejection, times in tally.items():
        for reason in rejection.reasons:
            counts[reason] += times
    if absent:
        counts[absent_reason] += absent
    reasons_text = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{total} nodes are available:" + (f" {reasons_text}." if reasons_text else "")


def failure(decision: SchedulingDecision, preemption: str | None) -> str:
    """Why a pod has no node. `preemption` is the failed preemption's message; None while victims are being deleted."""
    if decision.total == 0:
        return NO_NODES
    if decision.refused is not None:
        # The real scheduler's next plugin looks for state that was never computed, and reports it.
        return f"0/{decision.total} nodes are available: {', '.join(decision.refused.reasons)}. not found"
    head = histogram(decision.total, decision.rejection_counts(), decision.unnamed, _UNNAMED)
    return head if preemption is None else f"{head} no new claims to deallocate, preemption: {preemption}"


def preemption_message(total: int, tally: Mapping[Rejection, int]) -> str:
    """Why preemption does not help; nodes that were not tried are unresolvable."""
    return histogram(total, tally, total - sum(tally.values()), NOT_HELPFUL)


def shortened(message: str) -> str:
    """As much as an event can hold."""
    return message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[: _MAX_MESSAGE_LENGTH - 4]} ..."
