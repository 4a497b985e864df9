"""The Balanced policy: a move must save at least half as large a share of its NodePool's cost as it disrupts.

Shares are of the whole NodePool, nodes that may not be disrupted included: what stays is part of what there is to
lose. A move across NodePools saves in each by the price it removes there, and every NodePool must approve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from dovetail.clock import beside
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.candidates import Offered, candidate_of
from dovetail.controllers.disruption.consolidation import (
    ConsolidationContext,
    ConsolidationProposal,
    RejectedConsolidation,
    instead,
    rank,
)
from dovetail.controllers.disruption.types import Candidate
from dovetail.controllers.metrics.definitions import snake

K = 2
#: How many nodes of a rejected set are evaluated alone.
ALONE = 10
POLICY = "Balanced"


class BalancedScore(msgspec.Struct, frozen=True):
    """The shares of a NodePool's cost and of its disruption cost, and what the saving would have to be."""

    savings: float
    disruption: float
    needed: float = 0.0

    @property
    def value(self) -> float:
        return self.savings / self.disruption if self.disruption > 0 else math.inf

    @property
    def approved(self) -> bool:
        return self.value >= 1 / K

    def message(self) -> str:
        shares = f"savings {100 * self.savings:.1f}%, disruption {100 * self.disruption:.1f}%"
        return f"score {self.value:.2f} >= threshold {1 / K:.2f} (k: {K}, {shares})"


def weigh(saving: float, disturbed: float, cost: float, disturbance: float) -> BalancedScore:
    """A saving and its disruption against all that the NodePool costs and all that could be disrupted."""
    if cost <= 0 or disturbance <= 0:
        return BalancedScore(0.0, 1.0, saving)
    share = disturbed / disturbance
    return BalancedScore(saving / cost, share, share * cost / K)


class Balance:
    """Applies the policy of the NodePools that have it, and reports the scores."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def approved(
        self, best: ConsolidationProposal, question: ConsolidationContext, prices: Mapping[Offered, float | None]
    ) -> tuple[ConsolidationProposal | None, dict[str, RejectedConsolidation]]:
        """The set, or else one of its nodes alone, that every NodePool approves; and why the others stay."""
        rejections = self.rejections(best, prices)
        if not rejections:
            return best, {}
        alone = rank(best.candidates)[:ALONE] if len(best.candidates) > 1 else []

        def evaluate_alone() -> list[ConsolidationProposal | RejectedConsolidation]:
            return [question.evaluate((candidate,)) for candidate in alone]

        for proposal in await beside(evaluate_alone):
            if isinstance(proposal, ConsolidationProposal) and not self.rejections(proposal, prices):
                return proposal, {node: why for node, why in rejections.items() if node != proposal.candidates[0].node}
        return None, rejections

    def rejections(
        self, proposal: ConsolidationProposal, prices: Mapping[Offered, float | None]
    ) -> dict[str, RejectedConsolidation]:
        """Why the nodes stay whose NodePool rejects the move; nothing if all approve."""
        rejected: dict[str, RejectedConsolidation] = {}
        for name in sorted({candidate.pool for candidate in proposal.candidates}):
            pool = self._context.cluster_state.pools.store.get(name)
            if pool is None or pool.spec.disruption.consolidation_policy != POLICY:
                continue
            mine = [candidate for candidate in proposal.candidates if candidate.pool == name]
            saving = proposal.saving * _price(mine) / (_price(proposal.candidates) or 1.0)
            every = self._every(name, prices)
            score = weigh(saving, _cost(mine), _price(every), _cost(every))
            self._report(name, proposal, mine, score)
            if not score.approved:
                text = "the saving is not worth the disruption"
                why = RejectedConsolidation("NOT_BALANCED", text, saving, score.needed, instead(proposal.plan))
                rejected |= {candidate.node: why for candidate in mine}
        return rejected

    def _every(self, pool: str, prices: Mapping[Offered, float | None]) -> list[Candidate]:
        cluster_state = self._context.cluster_state
        standing = [(cluster_state.node_for(claim), claim) for claim in cluster_state.claims_of(pool)]
        return [candidate_of(self._context, node, claim, prices, guarded=True) for node, claim in standing if node]

    def _report(self, pool: str, proposal: ConsolidationProposal, mine: list[Candidate], score: BalancedScore) -> None:
        context = self._context
        labels = ("approved" if score.approved else "rejected", pool, snake(POLICY))
        context.metrics.consolidation_moves.labels(*labels).inc()
        context.metrics.consolidation_score.labels(*labels).observe(score.value)
        if not score.approved:
            return
        owner = context.cluster_state.pools.store.get(pool)
        if len(proposal.candidates) > 1 and owner is not None:
            context.event_publisher.publish(owner, "Normal", "ConsolidationApproved", score.message())
            return
        for candidate in mine:
            node, claim = (
                context.cluster_state.nodes.store.get(candidate.node),
                context.cluster_state.claims.store.get(candidate.claim),
            )
            context.event_publisher.publish_on_node_and_claim(
                node, claim, "Normal", "ConsolidationApproved", score.message()
            )


def _price(candidates: list[Candidate] | tuple[Candidate, ...]) -> float:
    return sum(candidate.price or 0.0 for candidate in candidates)


def _cost(candidates: list[Candidate]) -> float:
    return sum(candidate.cost for candidate in candidates)
