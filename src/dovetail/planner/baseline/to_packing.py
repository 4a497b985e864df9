"""Karpenter's outcome as a packing: a start for the optimiser, and the baseline of the objective.

Pods are placed in Karpenter's order on Karpenter's nodes, as far as the packer's rules allow; the few that they do not
allow (Karpenter violates some constraints) are placed wherever they fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import and_

import numpy as np

from dovetail.planner.baseline.scheduler import BaselineOutcome, BaselinePlacement, SchedulerSimulation
from dovetail.planner.offerings.alternatives import largest_capacity
from dovetail.planner.offerings.catalog import Bools, Ints, lowest
from dovetail.planner.packing.attachments import load_of
from dovetail.planner.packing.baseline import Baseline, BaselineRun
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.run import PackingRun
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.topology_validation import hosts_sound, spreads_hold
from dovetail.planner.packing.violated_preferences import violated_count, violated_on
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.request import PlacementRequest

#: Simulated runs where Karpenter breaks ties at random.
_BASELINE_RUNS = 3


class Simulations:
    """The runs of Karpenter's scheduler over a problem: several if it breaks ties at random, else one."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._first = SchedulerSimulation(problem)
        self.outcomes = [self._first.run()]

    @property
    def complete(self) -> bool:
        """Whether all runs were made, or one is enough."""
        return len(self.outcomes) == _BASELINE_RUNS or not self._first.topology_counts.left_to_chance

    def finish(self) -> list[BaselineOutcome]:
        """Make the runs that are missing, with ties broken otherwise; returns the outcomes of all runs."""
        if not self.complete:
            turns = range(len(self.outcomes), _BASELINE_RUNS)
            self.outcomes += [SchedulerSimulation(self._problem, turn, self._first).run() for turn in turns]
        return self.outcomes


def baseline_of(problem: Problem, outcomes: Sequence[BaselineOutcome]) -> Baseline:
    """The baseline of a problem: pods, price, preferences and zones of each outcome."""
    return Baseline(
        runs=tuple(
            BaselineRun(outcome.left, outcome.price, _violated_count(problem, outcome), _zones(problem, outcome))
            for outcome in outcomes
        ),
        names=Counter(name for outcome in outcomes for name in outcome.names),
    )


def as_packings(problem: Problem, outcomes: Sequence[BaselineOutcome], run: PackingRun) -> list[Packing]:
    """Packings that follow Karpenter's outcomes; `problem` may be another one of the same snapshot."""
    never = reduce(and_, (Counter(outcome.left) for outcome in outcomes)) if outcomes else Counter[int]()
    return [_packing(problem, outcome, never, run) for outcome in outcomes]


def _violated_count(problem: Problem, outcome: BaselineOutcome) -> int:
    return violated_count(_replayed(problem, outcome, None)[0]) if problem.preferences else 0


def _zones(problem: Problem, outcome: BaselineOutcome) -> int:
    return len({problem.catalog.rows[lowest(mask)].offering.zone for mask in outcome.masks.values()})


def _packing(problem: Problem, outcome: BaselineOutcome, never: Counter[int], run: PackingRun) -> Packing:
    """A packing that follows the outcome, and a cautious one that holds in any binding order."""
    loose = _followed(problem, outcome, never, run, ignore_counted=True)
    if spreads_hold(loose.state) and hosts_sound(loose.state):
        return loose
    return Packing(loose.state, loose.left, _followed(problem, outcome, never, run, ignore_counted=False))


def _followed(
    problem: Problem, outcome: BaselineOutcome, never: Counter[int], run: PackingRun, ignore_counted: bool
) -> Packing:
    """The outcome as far as the rules allow, then pods that another outcome places, then the others.

    Pods that no outcome places are added only if that violates no preference that Karpenter keeps.
    """
    state, refused = _replayed(problem, outcome, ignore_counted, run)
    left = refused + Counter(outcome.left)
    packer = Packer(problem, Strategy(), state)
    for index, count in sorted((left - never).items()):
        left[index] -= _placed(packer, problem.classes[index], count)
    state = packer.state
    for index in sorted(left & never):
        state = _joined(state, left, index)
    for node in state.new_nodes():
        if not state.contents[node]:
            state.close(node)
    shrink(state)
    return Packing(state, +left)


def _joined(state: PackingState, left: Counter[int], index: int) -> PackingState:
    """The packing state with as many more pods of a class as do not violate further preferences of the baseline."""
    pod_class, baseline = state.problem.classes[index], state.run.baseline
    lot = left[index]
    missed = baseline.excess(violated_on(state), left) if baseline is not None else 0
    while lot:
        packer = Packer(state.problem, Strategy(), state.clone())
        placed = _placed(packer, pod_class, lot)
        after = left - Counter({index: placed})
        if baseline is not None and baseline.excess(violated_on(packer.state), after) > max(0, missed):
            lot //= 2
            continue
        state, left[index] = packer.state, after[index]
        lot = min(lot, left[index]) if placed == lot else 0
    return state


def _placed(packer: Packer, pod_class: PodClass, count: int) -> int:
    """Place pods of a class at the first relaxation level that admits them; returns the number placed."""
    placed = 0
    for request in packer.problem.levels_of(pod_class) if not pod_class.error else ():
        placed += packer.place(request, count - placed) if placed < count else 0
    return placed


def _replayed(
    problem: Problem, outcome: BaselineOutcome, ignore_counted: bool | None, run: PackingRun | None = None
) -> tuple[PackingState, Counter[int]]:
    """The packing state, and the number of pods of each class that it does not admit on Karpenter's node.

    `ignore_counted`: a spread binds only its owners; None: no rule is checked.
    """
    state = PackingState(problem, run)
    placement_requests: dict[int, Counter[PlacementRequest]] = {place: Counter() for place in outcome.masks}
    for placement in outcome.placed:
        if placement.place < 0:
            placement_requests[placement.place][placement.request] += 1
    checks_min_values = problem.diversity is not None and ignore_counted is not None
    bins = {
        place: _opened(state, mask, placement_requests[place], outcome.wide[place] if checks_min_values else None)
        for place, mask in outcome.masks.items()
    }
    waiting, before = outcome.placed, len(outcome.placed) + 1
    while len(waiting) < before:  # a spread may admit a pod once others are placed
        before, refused = len(waiting), list[BaselinePlacement]()
        for waiting_placement in waiting:
            place = waiting_placement.place if waiting_placement.place >= 0 else bins[waiting_placement.place]
            request = (
                waiting_placement.request
                if ignore_counted is None
                else _admitted(problem, state, waiting_placement.request, place, ignore_counted)
            )
            if place < 0 or request is None:
                refused.append(waiting_placement)
            else:
                state.put(request, place, 1)
        waiting = refused
    return state, Counter(placement.request.cls.index for placement in waiting)


def _admitted(
    problem: Problem, state: PackingState, request: PlacementRequest, node: int, ignore_counted: bool
) -> PlacementRequest | None:
    """The request, or a more relaxed one of its class, whose next pod a node admits; None if there is none."""
    levels_of = range(request.level.level_index, len(request.cls.levels)) if node >= 0 else ()
    requests = (problem.request(request.cls, level_index) for level_index in levels_of)
    return next((request for request in requests if _admits(state, request, node, ignore_counted)), None)


def _opened(state: PackingState, mask: int, placement_requests: Counter[PlacementRequest], wide: int | None) -> int:
    """Open a node of the cheapest offering that a claim with these pods may use and that takes no more of the limits.

    `wide` are the offerings that count for minValues; None: minValues are not checked.
    """
    problem = state.problem
    load = load_of(problem, placement_requests)
    ok = problem.catalog.bools(mask)[problem.frontier.full]
    if not ok.any():
        ok = _as_good(problem, mask, placement_requests, load)
    if problem.diversity is not None and wide is not None and ok.any():
        for name in problem.binding:
            largest = 1 if name == "nodes" else largest_capacity(problem.catalog, wide, name)
            ok &= problem.frontier.limited[name] <= largest
        ok = problem.diversity.holding(ok, placement_requests, load.tolist())
    return state.open(int(ok.argmax())) if ok.any() else -1


def _as_good(problem: Problem, mask: int, placement_requests: Counter[PlacementRequest], load: Ints) -> Bools:
    """The offerings in the claim's domains that hold its pods, including those that Karpenter has ruled out.

    Of several alternative required terms Karpenter uses one at a time, and may exclude what another would allow.
    """
    frontier, chosen = problem.frontier, problem.catalog.bools(mask)
    ok: Bools = np.isin(frontier.pools, [offering.pool for offering in problem.catalog.listed(mask)])
    for request in placement_requests:
        ok &= request.offerings
    for topology_key, lying in zip(problem.topology_keys, frontier.domains, strict=True):
        ok &= np.isin(lying, topology_key.offerings[chosen])
    ok &= (frontier.capacity >= load[:, None]).all(axis=0)
    for name in problem.binding:
        largest = 1 if name == "nodes" else largest_capacity(problem.catalog, mask, name)
        ok &= frontier.limited[name] <= largest
    return ok


def _admits(state: PackingState, request: PlacementRequest, node: int, ignore_counted: bool) -> bool:
    """Whether every rule allows one more pod of the request on a node."""
    if not state.holds(request, node, 1):
        return False
    for key in request.keys:
        topology_key = state.key_index[key]
        if state.allowance(request, topology_key, ignore_counted)[state.domains[topology_key][node]] < 1:
            return False
    if not request.topology.has_hostname_rules and state.problem.diversity is None:
        return True
    bins, _ = state.shares(request, np.array([node]), 1, ignore_counted)
    return len(bins) == 1
