"""The search for the best set of nodes to remove.

The pods of a set are planned by `provision` as if its nodes were being deleted. Removing the set is worthwhile if the
new nodes cost less than the removed ones by more than the charge for evictions. `subsets.Proposals` proposes sets by
resources and price; the best set is then improved node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
from msgspec.structs import replace

from dovetail.clock import stopwatch
from dovetail.planner.consolidate.candidates import CandidateFleet, ConsolidationPlan
from dovetail.planner.consolidate.policy import ConsolidationPolicy
from dovetail.planner.consolidate.subsets import SubsetProposals
from dovetail.planner.launch.price_filter import cheaper
from dovetail.planner.optimise.improve import Improvement, along_relaxation, better
from dovetail.planner.packing.pack import Packing
from dovetail.planner.plan import Cost, Move, Plan, PlannedNode
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.snapshot import NodeState, Snapshot

#: The deadline of a consolidation for which none is asked, by its number of pods.
MIN_DEFAULT_DEADLINE_S, MAX_DEFAULT_DEADLINE_S, _DEFAULT_DEADLINE_S_PER_POD = 1.0, 4.0, 0.001
#: Estimated seconds of a quick plan on an idle core, and of each pod and node in it.
_PLAN_S, _PLAN_S_PER_OBJECT = 0.05, 20e-6
#: Shares of the deadline: for all quick plans by that estimate, for each optimised plan, and for the last one.
_QUICK_SHARE, _OPTIMISED_SHARE, _FINAL_SHARE = 0.25, 0.1, 0.2
#: The number of proposed sets that are planned however late it is, and of the best sets that are optimised.
_MIN_PLANNED_SETS, _MAX_OPTIMISED_SETS = 3, 2
#: The nominal deadline of a quick plan in seconds.
_QUICK_DEADLINE_S = 0.1
#: Tolerance of savings in $/h.
_PRICE_TOLERANCE = 1e-6


def default_deadline(pods: int) -> float:
    """The seconds that a consolidation may take where none are asked for."""
    return min(MAX_DEFAULT_DEADLINE_S, MIN_DEFAULT_DEADLINE_S + _DEFAULT_DEADLINE_S_PER_POD * pods)


def consolidate(
    snapshot: Snapshot,
    seed: int = 0,
    deadline: float = 5.0,
    policy: ConsolidationPolicy | None = None,
    clock_slack: float = 1.0,
) -> Plan:
    """The plan with the nodes to remove, within `policy`. The clock stops the search after deadline × `clock_slack`."""
    start = stopwatch()
    fleet = CandidateFleet(snapshot, policy or ConsolidationPolicy())
    search = _Search(fleet, seed, deadline, start, clock_slack)
    best = search.run()
    lower_bound = fleet.lower_bound(max(0.2, deadline * clock_slack * _OPTIMISED_SHARE))
    plan = _plan(fleet, best, stopwatch() - start)
    if lower_bound is None:
        return plan
    return replace(plan, cost=replace(plan.cost, lower_bound=lower_bound.price, bound_of=lower_bound.words))


class _Search:
    """The best choice so far, and the number of quick plans left."""

    def __init__(self, fleet: CandidateFleet, seed: int, deadline: float, start: float, clock_slack: float) -> None:
        self.fleet = fleet
        self.seed = seed
        self.deadline = deadline
        self.clock_slack = clock_slack
        self.end = start + deadline * clock_slack
        self.left = int(_QUICK_SHARE * deadline / (_PLAN_S + _PLAN_S_PER_OBJECT * (fleet.pods + len(fleet.candidates))))
        self.best = fleet.unchanged
        self.tried: dict[frozenset[str], ConsolidationPlan | None] = {frozenset(): fleet.unchanged}

    def run(self) -> ConsolidationPlan:
        fleet = self.fleet
        self._consider(fleet.within(node for node in fleet.candidates if not fleet.moved[node.name]))
        proposals = SubsetProposals(fleet)
        for number, going in enumerate(proposals.sets()):
            if number < _MIN_PLANNED_SETS or not self.is_over():
                self._consider(going)
        for proposal in self._best_with_new_nodes():
            self._keep_equal_nodes(proposal)
        for promising_proposal in self._best_with_new_nodes():
            self._optimise(promising_proposal, _OPTIMISED_SHARE, _OPTIMISED_SHARE * self.deadline)
        self._keep_equal_nodes(self.best)
        self._remove_one_by_one(proposals)
        self._undo_useless_removals()
        self._optimise(self.best, _FINAL_SHARE)
        self._keep_equal_nodes(self.best)
        return self.best

    def is_over(self) -> bool:
        return self.left <= 0 or self.is_late()

    def is_late(self) -> bool:
        return stopwatch() > self.end

    def _consider(self, removed: Sequence[NodeState]) -> bool:
        """Plan the removal of these nodes; returns whether it is the best choice so far."""
        key = frozenset(node.name for node in removed)
        if key in self.tried:
            return False
        self.left -= 1
        proposal = self.tried[key] = self.fleet.without(removed, self.seed, _QUICK_DEADLINE_S, along_relaxation)
        return self._keep(proposal)

    def _keep(self, choice: ConsolidationPlan | None) -> bool:
        if choice is None or choice.saving <= self.best.saving + _PRICE_TOLERANCE:
            return False
        self.best = choice
        return True

    def _best_with_new_nodes(self) -> list[ConsolidationPlan]:
        """The best choices so far that launch new nodes."""
        ranked = [
            (-value.saving, sorted(key), value) for key, value in self.tried.items() if value and value.plan.nodes
        ]
        return [
            proposal for _, _, proposal in sorted(ranked, key=lambda pod_class: pod_class[:2])[:_MAX_OPTIMISED_SETS]
        ]

    def _optimise(self, choice: ConsolidationPlan, share: float, seconds: float = inf) -> None:
        """Optimise the new nodes of a choice, with work for a share of the deadline, and never beyond its end."""
        if not choice.plan.nodes or self.is_late():
            return

        def clocked(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
            left = min(seconds * self.clock_slack, self.end - stopwatch())
            return better(problem, packing, seed, deadline, deadline - left)

        self._keep(self.fleet.without(choice.removed, self.seed, self.deadline * share, clocked))

    def _keep_equal_nodes(self, choice: ConsolidationPlan) -> None:
        """Keep nodes that can replace new ones at no higher price, those with the highest eviction charge first."""
        removed = sorted(choice.removed, key=lambda node: (-self.fleet.charges[node.name], node.name))
        names = sorted({name for planned in choice.plan.nodes for name in planned.requests})
        room = np.array([[node.allocatable.get(name, 0) for name in names] for node in removed], dtype=np.int64)
        room = room.reshape(len(removed), len(names))
        prices, kept = np.array([node.price or 0.0 for node in removed]), set[str]()
        for planned in sorted(choice.plan.nodes, key=lambda node: -node.price):
            requests = [planned.requests.get(name, 0) for name in names]
            would = np.flatnonzero((prices <= planned.price + _PRICE_TOLERANCE) & (room >= requests).all(axis=1))
            if len(would):
                kept.add(removed[int(would[0])].name)
                prices[would[0]] = np.inf
        if self._consider([node for node in choice.removed if node.name not in kept]):
            self._keep_equal_nodes(self.best)

    def _remove_one_by_one(self, proposals: SubsetProposals) -> None:
        """Try to remove the remaining candidates one by one, the least used for their price first."""
        for node in proposals.ranked():
            if self.is_over():
                return
            removed = {node.name for node in self.best.removed}
            more = (*self.best.removed, node)
            if node.name not in removed and len(self.fleet.within(more)) == len(more):
                self._consider(more)

    def _undo_useless_removals(self) -> None:
        """Keep nodes whose removal saves nothing beside the others: by bisection, those with most pods first."""
        moved = self.fleet.moved
        parts = [sorted(self.best.removed, key=lambda node: (-len(moved[node.name]), node.name))]
        while parts and not self.is_over():
            part = parts.pop(0)
            names = {node.name for node in part}
            kept = tuple(node for node in self.best.removed if node.name not in names)
            if not self._consider(kept) and len(part) > 1:
                middle = (len(part) + 1) // 2
                parts[:0] = [part[:middle], part[middle:]]


def _plan(fleet: CandidateFleet, best: ConsolidationPlan, seconds: float) -> Plan:
    before = sum(node.price or 0.0 for node in fleet.snapshot.nodes if not node.deleting)
    moves = {}
    for node in best.removed:
        for pod in fleet.moved[node.name]:
            place = best.plan.placements[pod_key(pod)]
            moves[pod_key(pod)] = Move(source=node.name, node=place.node, new_node=place.new_node)
    unpriced = sum(node.price is None and not node.deleting for node in fleet.snapshot.nodes)
    removed_price = sum(node.price or 0.0 for node in best.removed)
    return replace(
        best.plan,
        nodes=tuple(
            _cheaper_than_removed(best.plan.nodes, removed_price + fleet.unchanged.plan.cost.per_hour, fleet.snapshot)
        ),
        cost=Cost(per_hour=before - removed_price + best.plan.cost.per_hour, before=before, unpriced=unpriced),
        remove=tuple(sorted(node.name for node in best.removed)),
        moves=dict(sorted(moves.items())),
        evictions=len(moves),
        stays=fleet.stays(best),
        seconds=seconds,
    )


def _cheaper_than_removed(
    planned_nodes: Sequence[PlannedNode], most: float, snapshot: Snapshot
) -> Iterable[PlannedNode]:
    """The nodes with only the offerings at which they cost less together than what they replace."""
    cost = sum(planned.price for planned in planned_nodes)
    types = {kind.name: kind for pool in snapshot.pools for kind in pool.types}
    for planned in planned_nodes:
        yield (cheaper(planned, planned.price * most / cost, types) if cost else None) or planned
