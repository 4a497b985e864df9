"""Provisioning: a node for every pending pod, on existing nodes or at the least price."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dovetail.clock import stopwatch
from dovetail.planner.baseline.scheduler import Outcome
from dovetail.planner.baseline.to_packing import as_packings, baseline_of, outcomes_of
from dovetail.planner.launch.assemble import plan_of
from dovetail.planner.packing.baseline import Baseline
from dovetail.planner.packing.objective import BASELINE_ZONE_SHARE, MAX_SHARE, Score
from dovetail.planner.packing.pack import (
    Packing,
    can_relax,
    carried,
    few,
    fitting_offerings,
    hints_for,
    is_infeasible,
    pack,
)
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from dovetail.runtime.gc_pause import quiet

if TYPE_CHECKING:
    from dovetail.planner.optimise.improve import Optimiser

#: For few pods several strategies are tried at once, for many the one that never needs to be repaired.
_FIRST = (
    Strategy(),
    Strategy(future_demand_weight=0.0),
    Strategy(future_demand_weight=0.0, full_nodes_first=True),
    Strategy(order="sum", prefer_larger_nodes=True),
    Strategy(future_demand_weight=0.3, domain_rotation=1),
    Strategy(future_demand_weight=0.0, prefer_larger_nodes=True, existing_first=True),
    Strategy(future_demand_weight=0.0, cheapest_domain=True),
)
_MANY = (Strategy(balance_counted=True),)
_MOTLEY_FEW = (*_FIRST[:1], *_MANY, Strategy(order="sum", balance_counted=True))
#: Up to this many classes each of the strategies takes a millisecond or two.
_ALIKE = 120
#: More classes than this take too long to be filled alike in the quick answer.
_MOTLEY = 2000
#: Long enough for a small relaxation on any node: the quick answer does not depend on the clock.
_AN_HOUR = 3600.0
#: What is tried when a pod goes short: those that help most often first, for many pods these alone.
_HELPFUL = tuple(
    Strategy(
        order=order,
        future_demand_weight=float(thrift),
        prefer_larger_nodes=not thrift,
        minimise_limits=thrift,
        by_priority=True,
        balance_counted=True,
    )
    for thrift, order in ((True, "reference"), (True, "zones"), (False, "reference"), (False, "zones"), (False, "max"))
)
_SHORT = tuple(
    dict.fromkeys(
        (
            *_HELPFUL,
            *(
                Strategy(
                    order=order,
                    future_demand_weight=foresight,
                    prefer_larger_nodes=grow,
                    minimise_limits=thrift,
                    size_for_demand=lavish,
                    by_priority=True,
                    balance_counted=level,
                )
                for level, lavish in ((False, True), (False, False), (True, False))
                for foresight, grow, thrift in (
                    (1.0, False, True),
                    (0.0, True, False),
                    (1.0, False, False),
                    (1.0, True, True),
                )
                for order in ("reference", "max", "zones")
            ),
        )
    )
)
_BRIEF = 2
#: Nothing beyond these won on 174 problems with a shortage.
_MAX_SHORTAGE_STRATEGIES = 16
#: How much of it: more where a pod goes without whom Karpenter places.
_SHORT_WORK, _MISSING_WORK = 4_500, 9_000
_GUIDE = Strategy(order="reference", prefer_larger_nodes=True, pessimistic_limits=True, by_priority=True)
#: Karpenter looks at one node after another: up to this many.
_FLEET = 500


def provision(
    snapshot: Snapshot, seed: int = 0, deadline: float | None = None, optimiser: Optimiser | None = None
) -> Plan:
    """Place `snapshot.pending`. Without `deadline` the quick answer; with it, up to that many seconds to better it.

    `optimiser` says where that is done: here, or in a process apart.
    """
    start = stopwatch()
    if deadline is None:
        with quiet():
            tier1 = _tier1(snapshot)
            return _timed(plan_of(tier1.problem, tier1.packing), stopwatch() - start)
    with quiet():
        tier1 = _tier1(snapshot)
    plan = _tier2(tier1, seed, deadline, stopwatch() - start, optimiser)
    return _timed(plan, stopwatch() - start)


def quote(snapshot: Snapshot) -> float | None:
    """What the quick answer costs an hour; None if a pod has no node."""
    with quiet():
        packing = _tier1(snapshot, measured=False).packing
    return None if packing.left else packing.cost


class Tier1(NamedTuple):
    """The quick answer to a problem, and where pods are few what Karpenter comes to."""

    problem: Problem
    packing: Packing
    outcomes: Sequence[Outcome] = ()

    @property
    def run(self) -> PackingRun:
        """The work spent, and what Karpenter comes to."""
        return self.packing.state.run


def _tier1(snapshot: Snapshot, measured: bool = True) -> Tier1:
    """The quick answer, `measured` by Karpenter where pods and nodes are few.

    Where a spread counts pods that it does not bind, those may also come after its owners; that is asked of them only
    where it is worse otherwise, because no pod knows in which order pods will be bound.
    """
    problem = Problem(snapshot)
    if not few(problem):
        return Tier1(problem, quick(problem, PackingRun(WorkMeter())))
    tried: Packing | None = None
    if problem.nodes or problem.total == 1:
        tried = pack(problem, _FIRST[0])
        if tried.is_free or _is_cheapest_for_one(problem, tried):
            return Tier1(problem, tried)
    outcomes: list[Outcome] = []
    baseline: Baseline | None = None
    if measured and len(problem.nodes) <= _FLEET:
        outcomes = outcomes_of(problem)
        baseline = baseline_of(problem, outcomes)
    run = PackingRun(WorkMeter(), baseline)
    brief = _try_portfolio(problem, run, tried)
    packing = _round_relaxation(problem, brief)
    if packing.meets_baseline_fully and _is_valid(problem, packing):
        return Tier1(problem, packing, outcomes)
    followed = as_packings(problem, outcomes, run)
    packing = _try_more(problem, min((*followed, brief), key=_score))
    if not packing.meets_baseline and problem.order.matters:
        reordered = _with_owners_first(problem, packing, outcomes)
        if reordered is not None:
            return reordered
    return Tier1(problem, _first_valid(problem, (packing, *followed)), outcomes)


def _is_cheapest_for_one(problem: Problem, packing: Packing) -> bool:
    """Whether one pod has the cheapest offering that holds it, with all its preferences: nothing is better."""
    if problem.total != 1 or packing.left or packing.violated_count or packing.relaxed or problem.diversity is not None:
        return False
    fitting = problem.frontier.prices[fitting_offerings(problem, problem.first_requests[0])]
    return bool(len(fitting)) and packing.cost <= float(fitting.min()) and packing.order_independent


def _with_owners_first(problem: Problem, packing: Packing, outcomes: Sequence[Outcome]) -> Tier1 | None:
    """The quick answer where those that a spread only counts come after its owners; None if it is none the better.

    Where not all of them can, Karpenter may still have found an order: the verifier says whether it has.
    """
    reordered = Problem(problem.snapshot, owners_first=True)
    run = packing.state.run
    before, followed = carried(packing, reordered), as_packings(reordered, outcomes, run)
    best = _first_valid(reordered, (quick(reordered, run, more=[before, *followed]), before, *followed))
    if best.score >= packing.score:
        return None
    return Tier1(reordered, best, outcomes)


def _first_valid(problem: Problem, packings: Iterable[Packing]) -> Packing:
    """The best packing that the verifier has nothing against.

    It is asked where the order of pods decides, and where limits might leave too little of the variety asked for.
    """
    every = [*packings]
    every += [packing.cautious for packing in every if packing.cautious is not None]
    ranked = sorted(every, key=_score)
    return next((packing for packing in ranked if _is_valid(problem, packing)), ranked[-1])


def _is_valid(problem: Problem, packing: Packing) -> bool:
    if not few(problem):
        return True
    choosy = bool(problem.binding) and problem.diversity is not None
    if not (choosy or problem.owners_first) and packing.order_independent:
        return True
    return not verify(plan_of(problem, packing), problem.snapshot)


def _score(packing: Packing) -> Score:
    return packing.score


def _tier2(tier1: Tier1, seed: int, deadline: float, spent: float, optimiser: Optimiser | None) -> Plan:
    """The best plan found in time, starting from the quick answer."""
    from dovetail.planner.optimise.improve import better

    problem, first, outcomes = tier1
    if first.is_free:
        return _bounded(problem, first, 0.0)
    improved = (optimiser or better)(problem, first, seed, deadline, spent)
    packing = _first_valid(problem, (improved.packing, first))
    bound = improved.bound if packing.left == improved.packing.left else _floor(problem, packing)
    plan = _bounded(problem, packing, bound)
    baseline = tier1.run.baseline
    if baseline is None or _zones(plan) >= baseline.zones:
        return plan
    followed = [packing_ for packing_ in as_packings(problem, outcomes, tier1.run) if packing_.left == packing.left]
    for packing_ in (improved.packing, *sorted(followed, key=_score)[:1]):
        if packing_.left == packing.left and _zones(plan) < baseline.zones:
            plan = _wider(problem, plan, packing_, bound)
    return plan


def _floor(problem: Problem, packing: Packing) -> float | None:
    """What no plan for the pods of a packing can cost less than."""
    from dovetail.planner.optimise.lower_bound import proven

    return proven(problem, packing.left, _AN_HOUR if few(problem) else 1.0)


def _bounded(problem: Problem, packing: Packing, bound: float | None) -> Plan:
    from dovetail.planner.optimise.lower_bound import WORDS

    if bound is not None and math.isclose(bound, packing.cost):  # prices were added up in another order
        bound = packing.cost
    return plan_of(problem, packing, tier=2, bound=bound, bound_of=WORDS if bound is not None else "")


def _wider(problem: Problem, plan: Plan, packing: Packing, bound: float | None) -> Plan:
    """The plan, or that of another packing where that lacks nothing and reaches more zones."""
    if packing.falls_short or not _is_valid(problem, packing):
        return plan
    other = _bounded(problem, packing, bound)
    gained = _zones(other) - _zones(plan)
    limit = plan.cost.per_hour * (1 + min(MAX_SHARE, BASELINE_ZONE_SHARE * gained))
    return other if gained > 0 and other.cost.per_hour <= limit else plan


def _zones(plan: Plan) -> int:
    return len({planned.choice.zone for planned in plan.nodes})


def _timed(plan: Plan, seconds: float) -> Plan:
    return replace(plan, seconds=seconds)


def quick(problem: Problem, run: PackingRun | None = None, more: Sequence[Packing] = ()) -> Packing:
    """The best of a few quick packings; of one where there are many pods, and some more if it leaves a pod out.

    `known` are packings found otherwise.
    """
    run = run if run is not None else PackingRun(WorkMeter())
    return _try_more(problem, min((*more, _try_portfolio(problem, run)), key=_score))


def _try_portfolio(problem: Problem, run: PackingRun, tried: Packing | None = None) -> Packing:
    """The best of the packings that are tried in any case; the first strategy may have been `tried` already."""
    first = _strategies(problem)
    packings = [] if tried is None else [tried.joined(run)]
    packings += [pack(problem, strategy, run) for strategy in first[len(packings) :]]
    best = min(packings, key=_score)
    if problem.weighted:
        best = min((best, pack(problem, replace(first[0], pessimistic_limits=True), run)), key=_score)
    return best


def _try_more(problem: Problem, best: Packing) -> Packing:
    """More ways if a packing leaves a pod out who might have a node, and nodes filled alike."""
    if _lacks_feasible_pod(problem, best):
        best = _try_shortage_portfolio(
            problem, best, _strategies(problem), _SHORT[:_MAX_SHORTAGE_STRATEGIES] if few(problem) else _SHORT[:_BRIEF]
        )
    return _round_relaxation(problem, best)


def _strategies(problem: Problem) -> tuple[Strategy, ...]:
    if not few(problem):
        return _MANY
    return _FIRST if len(problem.classes) <= _ALIKE else _MOTLEY_FEW


def _lacks_feasible_pod(problem: Problem, packing: Packing) -> bool:
    """Whether a pod has no node who might have one."""
    return any(not is_infeasible(problem, problem.classes[index]) for index in packing.left)


def _round_relaxation(problem: Problem, best: Packing) -> Packing:
    """Where no pod looks at another, several nodes are filled alike at the relaxation's proportions."""
    if problem.counters or len(best.state.new_nodes()) < 2 or not can_relax(problem) or len(problem.classes) > _MOTLEY:
        return best
    from dovetail.planner.optimise.rounding import COARSE, rounded

    other = rounded(problem, best, lambda: _AN_HOUR, COARSE)
    return best if other is None else min((best, other), key=_score)


def _try_shortage_portfolio(
    problem: Problem, best: Packing, first: Sequence[Strategy], more: Sequence[Strategy]
) -> Packing:
    """There is not enough for all: then priority decides, and after it the order Karpenter takes pods in.

    A pod that would have a node if pods were taken one by one in that order has one; beside them as many as possible.
    """
    run = best.state.run
    guide, meter = pack(problem, _GUIDE, run), run.meter

    def merit(packing: Packing) -> tuple[object, ...]:
        return packing.shortage_score(guide)

    best, begin = min(best, guide, key=merit), meter.spent
    for strategy in more:
        spent, missing = meter.spent - begin, merit(best)[0]
        if spent > (_MISSING_WORK if missing else _SHORT_WORK) or not _lacks_feasible_pod(problem, best):
            break
        best = min(best, pack(problem, strategy, run), key=merit)
    hints = hints_for(problem, best.left)
    return min((best, *(pack(problem, strategy, run, hints) for strategy in first)), key=merit) if hints else best
