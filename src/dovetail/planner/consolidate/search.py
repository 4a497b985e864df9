"""Consolidation: the same problem from the other side. Which nodes could go, and what would hold their pods?

A node's pods are planned as if it were going; removing is worth it when what must be launched costs less than what
is given back, by more than the evictions are charged. Whole sets of nodes are proposed by room and price
(`proposals`) and planned by the same engine that launches; the best is bettered node by node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
from msgspec.structs import replace

from dovetail.clock import stopwatch
from dovetail.planner.consolidate.candidates import Choice, Fleet
from dovetail.planner.consolidate.policy import Terms
from dovetail.planner.consolidate.subsets import Proposals
from dovetail.planner.launch.price_filter import cheaper
from dovetail.planner.optimise.improve import Improvement, along_relaxation, better
from dovetail.planner.packing.pack import Packing
from dovetail.planner.plan import Cost, Move, Plan, PlannedNode
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import pod_key
from dovetail.planner.snapshot import NodeState, Snapshot

#: Seconds that an idle core is reckoned to need for a quick plan, and for each pod and node on top.
_PLAN, _EACH = 0.05, 20e-6
#: What of the deadline is spent on quick plans by that reckoning, on each plan with effort, and on the last one.
_QUICK, _SHARE, _FINAL = 0.25, 0.1, 0.2
#: So many sets are asked about however late it is, and so many of the best are planned with effort.
_LEAST, _SEARCHED = 3, 2
#: What a quick plan may count as, where it must count as something.
_BRISK = 0.1
#: Savings that differ by less are the same.
_CENT = 1e-6


def consolidate(
    snapshot: Snapshot, seed: int = 0, deadline: float = 5.0, terms: Terms | None = None, clock_slack: float = 1.0
) -> Plan:
    """What to give back, on what terms. The clock only stops the search early; with no time at all there is none.

    It does so after the deadline times `clock slack`.
    """
    start = stopwatch()
    fleet = Fleet(snapshot, terms or Terms())
    search = _Search(fleet, seed, deadline, start, clock_slack)
    best = search.run()
    floor = fleet.floor(max(0.2, deadline * clock_slack * _SHARE))
    plan = _plan(fleet, best, stopwatch() - start)
    if floor is None:
        return plan
    return replace(plan, cost=replace(plan.cost, lower_bound=floor.price, bound_of=floor.words))


class _Search:
    """The best choice so far, and how many more may be asked about."""

    def __init__(self, fleet: Fleet, seed: int, deadline: float, start: float, clock_slack: float) -> None:
        self.fleet = fleet
        self.seed = seed
        self.deadline = deadline
        self.clock_slack = clock_slack
        self.end = start + deadline * clock_slack
        self.left = int(_QUICK * deadline / (_PLAN + _EACH * (fleet.pods + len(fleet.candidates))))
        self.best = fleet.nothing
        self.tried: dict[frozenset[str], Choice | None] = {frozenset(): fleet.nothing}

    def run(self) -> Choice:
        fleet = self.fleet
        self._consider(fleet.within(node for node in fleet.candidates if not fleet.moved[node.name]))
        proposals = Proposals(fleet)
        for number, going in enumerate(proposals.sets()):
            if number < _LEAST or not self.over():
                self._consider(going)
        for proposal in self._promising():
            self._swap(proposal)
        for promising_proposal in self._promising():
            self._search(promising_proposal, _SHARE, _SHARE * self.deadline)
        self._swap(self.best)
        self._one_by_one(proposals)
        self._spare()
        self._search(self.best, _FINAL)
        self._swap(self.best)
        return self.best

    def over(self) -> bool:
        return self.left <= 0 or self.late()

    def late(self) -> bool:
        return stopwatch() > self.end

    def _consider(self, gone: Sequence[NodeState]) -> bool:
        """Whether it is the best so far to remove these nodes."""
        key = frozenset(node.name for node in gone)
        if key in self.tried:
            return False
        self.left -= 1
        proposal = self.tried[key] = self.fleet.without(gone, self.seed, _BRISK, along_relaxation)
        return self._keep(proposal)

    def _keep(self, choice: Choice | None) -> bool:
        if choice is None or choice.worth <= self.best.worth + _CENT:
            return False
        self.best = choice
        return True

    def _promising(self) -> list[Choice]:
        """The best choices so far for which something is launched."""
        ranked = [(-value.worth, sorted(key), value) for key, value in self.tried.items() if value and value.plan.nodes]
        return [proposal for _, _, proposal in sorted(ranked, key=lambda pod_class: pod_class[:2])[:_SEARCHED]]

    def _search(self, choice: Choice, share: float, seconds: float = inf) -> None:
        """Look for something cheaper to launch, with work for a share of the deadline, and never beyond its end."""
        if not choice.plan.nodes or self.late():
            return

        def clocked(problem: Problem, packing: Packing, seed: int, deadline: float, spent: float) -> Improvement:
            left = min(seconds * self.clock_slack, self.end - stopwatch())
            return better(problem, packing, seed, deadline, deadline - left)

        self._keep(self.fleet.without(choice.gone, self.seed, self.deadline * share, clocked))

    def _swap(self, choice: Choice) -> None:
        """Nodes that would do in place of those that are launched, for no more, stay: those with most to move."""
        gone = sorted(choice.gone, key=lambda node: (-self.fleet.charges[node.name], node.name))
        names = sorted({name for planned in choice.plan.nodes for name in planned.requests})
        room = np.array([[node.allocatable.get(name, 0) for name in names] for node in gone], dtype=np.int64)
        room = room.reshape(len(gone), len(names))
        prices, kept = np.array([node.price or 0.0 for node in gone]), set[str]()
        for planned in sorted(choice.plan.nodes, key=lambda node: -node.price):
            asked = [planned.requests.get(name, 0) for name in names]
            would = np.flatnonzero((prices <= planned.price + _CENT) & (room >= asked).all(axis=1))
            if len(would):
                kept.add(gone[int(would[0])].name)
                prices[would[0]] = np.inf
        if self._consider([node for node in choice.gone if node.name not in kept]):
            self._swap(self.best)

    def _one_by_one(self, proposals: Proposals) -> None:
        """Nodes that stayed, the least useful for their price first."""
        for node in proposals.ranked():
            if self.over():
                return
            gone = {node.name for node in self.best.gone}
            more = (*self.best.gone, node)
            if node.name not in gone and len(self.fleet.within(more)) == len(more):
                self._consider(more)

    def _spare(self) -> None:
        """Nodes whose going saves nothing, now that the others go, stay: by halves, those with most pods first."""
        moved = self.fleet.moved
        parts = [sorted(self.best.gone, key=lambda node: (-len(moved[node.name]), node.name))]
        while parts and not self.over():
            part = parts.pop(0)
            names = {node.name for node in part}
            kept = tuple(node for node in self.best.gone if node.name not in names)
            if not self._consider(kept) and len(part) > 1:
                middle = (len(part) + 1) // 2
                parts[:0] = [part[:middle], part[middle:]]


def _plan(fleet: Fleet, best: Choice, seconds: float) -> Plan:
    before = sum(node.price or 0.0 for node in fleet.snapshot.nodes if not node.deleting)
    moves = {}
    for node in best.gone:
        for pod in fleet.moved[node.name]:
            place = best.plan.placements[pod_key(pod)]
            moves[pod_key(pod)] = Move(source=node.name, node=place.node, new_node=place.new_node)
    unpriced = sum(node.price is None and not node.deleting for node in fleet.snapshot.nodes)
    given = sum(node.price or 0.0 for node in best.gone)
    return replace(
        best.plan,
        nodes=tuple(_affordable(best.plan.nodes, given + fleet.nothing.plan.cost.per_hour, fleet.snapshot)),
        cost=Cost(per_hour=before - given + best.plan.cost.per_hour, before=before, unpriced=unpriced),
        remove=tuple(sorted(node.name for node in best.gone)),
        moves=dict(sorted(moves.items())),
        evictions=len(moves),
        stays=fleet.stays(best),
        seconds=seconds,
    )


def _affordable(planned_nodes: Sequence[PlannedNode], most: float, snapshot: Snapshot) -> Iterable[PlannedNode]:
    """The nodes with only those offerings at which they cost less together than what they replace."""
    cost = sum(planned.price for planned in planned_nodes)
    types = {kind.name: kind for pool in snapshot.pools for kind in pool.types}
    for planned in planned_nodes:
        yield (cheaper(planned, planned.price * most / cost, types) if cost else None) or planned
