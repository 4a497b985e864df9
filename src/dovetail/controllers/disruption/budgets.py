"""How many nodes of each NodePool may be disrupted now for a reason: the budget, less those already disrupting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.candidates import totals
from dovetail.controllers.disruption.types import Candidate, DisruptionReason
from dovetail.model.kinds import budgets


class RemainingBudgets:
    """Counted down as a pass takes nodes, so that one pass cannot overdraw a budget."""

    def __init__(self, context: Context, reason: DisruptionReason, counts: Mapping[str, tuple[int, int]]) -> None:
        """`counts` are the nodes of each NodePool, and how many of them use its budgets up."""
        self.left: dict[str, int] = {}
        now = context.clock.now()
        for pool in context.cluster_state.pools.store.all():
            counted, consuming = counts.get(pool.name, (0, 0))
            allowances = budgets.allowance(pool.spec.disruption.budgets, reason, counted, now)
            if allowances.problem:
                context.log.error("invalid disruption budget", NodePool={"name": pool.name}, error=allowances.problem)
            self.left[pool.name] = max(0, allowances.nodes - consuming)
            context.metrics.allowed_disruptions.labels(pool.name, reason.lower()).set(self.left[pool.name])
            context.metrics.consuming_budgets.labels(pool.name, reason.lower()).set(consuming)
            if counted and not self.left[pool.name]:
                context.event_publisher.publish(
                    pool,
                    "Normal",
                    "DisruptionBlocked",
                    f"No allowed disruptions for disruption reason {reason} due to blocking budget",
                )

    @classmethod
    def now(cls, context: Context, reason: DisruptionReason) -> Self:
        """With all nodes counted anew."""
        return cls(context, reason, totals(context.cluster_state, reason))

    def fits(self, candidates: Sequence[Candidate]) -> bool:
        """Whether all of them may be disrupted at once."""
        return all(self.left.get(pool, 0) >= count for pool, count in _by_pool(candidates).items())

    def take(self, candidates: Sequence[Candidate]) -> bool:
        """Take all of them, or none."""
        if not self.fits(candidates):
            return False
        for pool, count in _by_pool(candidates).items():
            self.left[pool] -= count
        return True

    def trim(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """As many of them as the budgets allow, in order."""
        return [candidate for candidate in candidates if self.take((candidate,))]


def _by_pool(candidates: Sequence[Candidate]) -> Counter[str]:
    return Counter(candidate.pool for candidate in candidates)
