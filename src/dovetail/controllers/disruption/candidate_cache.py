"""The candidate cache: the evaluation of every node, so that the next pass evaluates only those that changed.

A pass over a fleet evaluates every node each time, and most of them are as they were. An entry holds until
the cluster state notes a change of its node; all entries are dropped when the offers change or a PodDisruptionBudget
opens, closes or selects other pods, and an entry with an end expires by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from dovetail.cluster.pdb import PdbIndex
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.candidates import Blocker, Offered, add, blocking, candidate_of, prices, weight
from dovetail.controllers.disruption.types import Candidate
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.planner.snapshot import Pool


class Evaluations(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes at one instant: the candidates, when pods last came or went on the consolidatable ones, and what blocks
    the others.
    """

    candidates: tuple[Candidate, ...] = ()
    consolidatable_since: Mapping[str, datetime] = MappingProxyType({})
    blocked: Mapping[str, tuple[Blocker, ...]] = MappingProxyType({})

    @property
    def until(self) -> datetime | None:
        """When the first of the blockers ends by itself."""
        return min((blocker.until for why in self.blocked.values() for blocker in why if blocker.until), default=None)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of one node: a candidate, perhaps a consolidatable one, or what blocks it and until when.

    `weight` is what it counts for the budgets of its NodePool, and uses up of them.
    """

    pool: str
    weight: tuple[int, int]
    candidate: Candidate | None = None
    consolidatable_since: datetime | None = None
    blockers: tuple[Blocker, ...] = ()
    until: datetime | None = None


class CandidateCache:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._notes = context.cluster_state.notes()
        self._evaluations: dict[str, Evaluation] = {}
        self._offers: tuple[object, ...] = ()
        self._prices: Mapping[Offered, float | None] = {}
        self._pdbs: PdbIndex | None = None
        self._rules: Sequence[tuple[object, ...]] = ()
        self._all = True

    def evaluations(self, pools: Sequence[Pool]) -> Evaluations:
        """All nodes at this instant."""
        cluster_state, now = self._context.cluster_state, self._context.clock.now()
        cluster_state.expire()
        self._forget(pools)
        changed = [note.name for note in self._notes if note.kind == "node"]
        if self._all:
            changed = [node.metadata.name for node in cluster_state.nodes.store.all()]
            self._evaluations.clear()
        expired = [
            name
            for name, evaluation in self._evaluations.items()
            if evaluation.until is not None and evaluation.until <= now
        ]
        for name in (*changed, *expired):
            self._refresh(name, now)
        self._notes.clear()
        self._all = False
        return Evaluations(
            candidates=tuple(
                evaluation.candidate for evaluation in self._evaluations.values() if evaluation.candidate is not None
            ),
            blocked={
                name: evaluation.blockers for name, evaluation in self._evaluations.items() if evaluation.blockers
            },
            consolidatable_since={
                name: evaluation.consolidatable_since
                for name, evaluation in self._evaluations.items()
                if evaluation.consolidatable_since is not None
            },
        )

    def _forget(self, pools: Sequence[Pool]) -> None:
        """Drop everything, if what all nodes depend on is no longer the same."""
        offers = tuple(pool.types for pool in pools)
        if len(offers) != len(self._offers) or any(a is not b for a, b in zip(offers, self._offers, strict=True)):
            self._offers, self._prices, self._all = offers, prices(pools), True
        pdbs = self._context.cluster_state.pdbs
        if pdbs is not self._pdbs:
            rules = [
                (budget.metadata.key, budget.spec, budget.status.disruptions_allowed < 1)
                for budget in self._context.cluster_state.budgets.store.all()
            ]
            self._all |= rules != self._rules
            self._pdbs, self._rules = pdbs, rules

    def totals(self) -> dict[str, tuple[int, int]]:
        """The nodes of each NodePool, and how many of them use its budgets up, for any reason but Unhealthy."""
        sums: dict[str, tuple[int, int]] = {}
        for evaluation in self._evaluations.values():
            add(sums, evaluation.pool, evaluation.weight)
        return sums

    def _refresh(self, name: str, now: datetime) -> None:
        cluster_state = self._context.cluster_state
        node = cluster_state.nodes.store.get(name)
        claim = cluster_state.claim_for(node) if node is not None else None
        if node is None or claim is None or cluster_state.node_for(claim) is not node:
            self._evaluations.pop(name, None)
            return
        self._evaluations[name] = self._evaluate(node, claim, now)

    def _evaluate(self, node: Node, claim: NodeClaim, now: datetime) -> Evaluation:
        why = tuple(blocking(self._context, node, claim, now))
        return Evaluation(
            pool=claim.node_pool or "",
            weight=weight(self._context.cluster_state, node, claim, ""),
            candidate=None if why else candidate_of(self._context, node, claim, self._prices),
            consolidatable_since=None if why else _consolidatable_since(claim),
            blockers=why,
            until=min((blocker.until for blocker in why if blocker.until), default=None),
        )


def _consolidatable_since(claim: NodeClaim) -> datetime | None:
    """When pods last came or went, if that is longer ago than the NodePool's consolidateAfter."""
    marked = claim.condition("Consolidatable")
    if marked is None or marked.status != "True":
        return None
    return claim.status.last_pod_event_time or marked.last_transition_time or datetime.min.replace(tzinfo=UTC)
