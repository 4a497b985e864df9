"""Provisioning: place pending pods on existing nodes and on new ones at the least price.

Tier 1 packs by a few strategies and compares with Karpenter's baseline; tier 2 improves the packing until a deadline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from dovetail.clock import stopwatch
from dovetail.planner.baseline.scheduler import BaselineOutcome
from dovetail.planner.baseline.to_packing import Simulations, as_packings, baseline_of
from dovetail.planner.launch.assemble import plan_of
from dovetail.planner.packing.objective import BASELINE_ZONE_SHARE, MAX_SHARE, Score
from dovetail.planner.packing.pack import (
    Packing,
    can_relax,
    few,
    fitting_offerings,
    hints_for,
    is_infeasible,
    pack,
    rebased,
)
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.packing.zone_spread import zones_reached
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from dovetail.runtime.gc_pause import quiet

if TYPE_CHECKING:
    from dovetail.planner.optimise.improve import Optimiser

#: For few pods all of these strategies are tried; for many, the one whose packings hold in any binding order. The
#: number beside each: of 160 problems (`python -m bench.strategies`) it alone gave the best packing.
_FIRST = (
    Strategy(),  # 5
    Strategy(future_demand_weight=0.0, full_nodes_first=True),  # 7
    Strategy(order="sum", prefer_larger_nodes=True),  # 5
    Strategy(future_demand_weight=0.3, domain_rotation=1),  # 11
    Strategy(future_demand_weight=0.0, prefer_larger_nodes=True, existing_first=True),  # 11
    Strategy(future_demand_weight=0.0, cheapest_domain=True),  # 10
)
#: Where hardly any pods are alike, the others never gave the best packing (41 of these problems).
_FEW_ALIKE = (_FIRST[0], _FIRST[2], _FIRST[4])
#: Hardly any pods are alike: fewer than this many in a class on average.
_MAX_PODS_PER_CLASS_OF_FEW_ALIKE = 1.5
_MANY_PODS = (Strategy(balance_counted=True),)
#: For few pods of many classes.
_MANY_CLASSES = (*_FIRST[:1], *_MANY_PODS, Strategy(order="sum", balance_counted=True))
#: Classes whose preferences are restored one after another in a packing that ignores all.
_MAX_RESTORED_CLASSES = 8
#: Up to this many classes, each strategy takes a millisecond or two.
_MAX_PORTFOLIO_CLASSES = 120
#: With more classes, rounding the LP relaxation takes too long for tier 1.
_MAX_ROUNDED_CLASSES = 2000
#: Seconds for a small LP: more than it needs on any computer, so that tier 1 does not depend on the clock.
_LP_TIMEOUT_S = 3600.0
#: Strategies for a shortage (not all pods can be placed), those that help most often first.
_FIRST_SHORTAGE_STRATEGIES = tuple(
    Strategy(
        order=order,
        future_demand_weight=float(save_limits),
        prefer_larger_nodes=not save_limits,
        minimise_limits=save_limits,
        by_priority=True,
        balance_counted=True,
    )
    for save_limits, order in (
        (True, "reference"),
        (True, "zones"),
        (False, "reference"),
        (False, "zones"),
        (False, "max"),
    )
)
_SHORTAGE_STRATEGIES = tuple(
    dict.fromkeys(
        (
            *_FIRST_SHORTAGE_STRATEGIES,
            *(
                Strategy(
                    order=order,
                    future_demand_weight=demand_weight,
                    prefer_larger_nodes=grow,
                    minimise_limits=save_limits,
                    size_for_demand=for_demand,
                    by_priority=True,
                    balance_counted=level,
                )
                for level, for_demand in ((False, True), (False, False), (True, False))
                for demand_weight, grow, save_limits in (
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
#: For many pods only the first two are tried.
_MAX_SHORTAGE_STRATEGIES_OF_MANY_PODS = 2
#: No later strategy gave the best packing on 174 problems with a shortage.
_MAX_SHORTAGE_STRATEGIES = 16
#: A packing below this share of the cost of one run of Karpenter's scheduler is below the cost of its other runs.
_CLEARLY_CHEAPER = 0.9
#: Work for these strategies, and where a pod is unplaced that Karpenter places.
_SHORTAGE_WORK, _BASELINE_MISSED_WORK = 4_500, 9_000
#: Packs in Karpenter's order where there is no baseline.
_GUIDE = Strategy(order="reference", prefer_larger_nodes=True, pessimistic_limits=True, by_priority=True)
#: With more existing nodes there is no baseline: Karpenter's scheduler tests them one after another.
_MAX_BASELINE_NODES = 500


def provision(
    snapshot: Snapshot, seed: int = 0, deadline: float | None = None, optimiser: Optimiser | None = None
) -> Plan:
    """Place `snapshot.pending`: by tier 1, and with a `deadline` (in seconds) improved by tier 2 until then.

    `optimiser` runs tier 2, in this process or in a child.
    """
    start = stopwatch()
    if deadline is None:
        with quiet():
            tier1 = _tier1(snapshot)
            return _timed(plan_of(tier1.problem, tier1.packing), stopwatch() - start)
    with quiet():
        tier1 = _tier1(snapshot, improved_later=True)
    plan = _tier2(tier1, seed, deadline, stopwatch() - start, optimiser)
    return _timed(plan, stopwatch() - start)


def quote(snapshot: Snapshot) -> float | None:
    """The cost of the tier-1 packing in $/h; None if a pod is unplaced."""
    with quiet():
        packing = _tier1(snapshot, measured=False).packing
    return None if packing.left else packing.cost


class Tier1(NamedTuple):
    """The tier-1 packing of a problem and, where pods are few, the outcomes of Karpenter's scheduler."""

    problem: Problem
    packing: Packing
    outcomes: Sequence[BaselineOutcome] = ()

    @property
    def run(self) -> PackingRun:
        """The work spent, and Karpenter's baseline."""
        return self.packing.state.run


def _tier1(snapshot: Snapshot, measured: bool = True, improved_later: bool = False) -> Tier1:
    """The tier-1 packing; `measured`: compared with Karpenter's baseline where pods and nodes are few.

    Karpenter breaks some ties at random. A packing that is much cheaper than one of its runs is not compared with
    others, unless it is `improved_later`: tier 2 stays below the cheapest of all runs.

    Pods that a spread counts but that do not own it may be bound after its owners. A plan that depends on this order is
    made only if it is better than one that holds in any order, because the binding order is not known.
    """
    problem = Problem(snapshot)
    tier1 = _tier1_of(problem, measured, improved_later)
    if not (problem.may_lack_pools and _lacks_feasible_pod(problem, tier1.packing)):
        return tier1
    other = _tier1_of(Problem(snapshot, more_pools=True), measured, improved_later)
    return other if sum(other.packing.left.values()) < sum(tier1.packing.left.values()) else tier1


def _tier1_of(problem: Problem, measured: bool, improved_later: bool) -> Tier1:
    """The tier-1 packing of a compiled problem."""
    if not few(problem):
        return Tier1(problem, quick_packing(problem, PackingRun(WorkMeter())))
    tried: Packing | None = None
    if problem.nodes or problem.total == 1:
        tried = pack(problem, _FIRST[0])
        if tried.is_free or _is_cheapest_for_one(problem, tried):
            return Tier1(problem, tried)
    measured = measured and len(problem.nodes) <= _MAX_BASELINE_NODES
    simulations = Simulations(problem) if measured else None
    if simulations is not None and improved_later:
        simulations.finish()
    baseline = baseline_of(problem, simulations.outcomes) if simulations is not None else None
    run = PackingRun(WorkMeter(), baseline)
    packings = _portfolio(problem, run, tried)
    if simulations is not None and not simulations.complete:
        first = _best(packings)
        if _beats_any_run(problem, first, len(simulations.outcomes[0].masks)):
            return Tier1(problem, first, simulations.outcomes)
        run = packings[0].state.run._replace(baseline=baseline_of(problem, simulations.finish()))
        packings = [packing.joined(run) for packing in packings]
    outcomes = simulations.outcomes if simulations is not None else []
    portfolio = _best(packings)
    packing = _round_relaxation(problem, portfolio)
    if packing.meets_baseline_fully and _is_cheapest_of(packing, outcomes) and _is_valid(problem, packing):
        return Tier1(problem, packing, outcomes)
    followed = as_packings(problem, outcomes, packing.state.run)
    packing = _try_more(problem, min((*followed, portfolio), key=_score))
    for other in _alternatives(problem) if not packing.meets_baseline else ():
        tier1 = _solved_as(other, packing, outcomes)
        if tier1 is not None:
            return tier1
    return Tier1(problem, _first_valid(problem, (packing, *followed)), outcomes)


def _beats_any_run(problem: Problem, packing: Packing, nodes: int) -> bool:
    """Whether a packing is so good that no run of Karpenter's scheduler is better, by a run with so many nodes."""
    baseline = packing.state.run.baseline
    if baseline is None or problem.preferences or not packing.meets_baseline_fully:
        return False
    zones = min(len(_zones_offered(problem)), nodes)
    return (
        packing.cost <= _CLEARLY_CHEAPER * baseline.runs[0].price
        and zones_reached(packing.state, zones) == zones
        and _is_valid(problem, packing)
    )


def _is_cheapest_of(packing: Packing, outcomes: Sequence[BaselineOutcome]) -> bool:
    """Whether no run of Karpenter's scheduler is cheaper, whatever preferences and zones it misses."""
    return all(packing.cost <= outcome.price or packing.left != outcome.left for outcome in outcomes)


def _zones_offered(problem: Problem) -> frozenset[str]:
    """The zones in which some NodePool can launch a node."""
    catalog = problem.catalog
    return catalog.recall("zones offered", lambda: frozenset(entry.offering.zone for entry in catalog.rows))


def _is_cheapest_for_one(problem: Problem, packing: Packing) -> bool:
    """Whether a single pod has the cheapest offering that holds it, and all its preferences: the optimum."""
    if problem.total != 1 or packing.left or packing.violated_count or packing.relaxed or problem.diversity is not None:
        return False
    fitting = problem.frontier.prices[fitting_offerings(problem, problem.levels_of(problem.classes[0])[-1])]
    return bool(len(fitting)) and packing.cost <= float(fitting.min()) and packing.order_independent


def _alternatives(problem: Problem) -> Iterator[Problem]:
    """The problem with other pods counted by spreads, where a plan falls short of the baseline.

    Pods that a spread only counts are bound after its owners, or a preferred spread counts only pods that still own it.
    """
    if problem.order.matters:
        yield Problem(problem.snapshot, owners_first=True, more_pools=problem.more_pools)
    if problem.counts_relaxed:
        yield Problem(problem.snapshot, more_pools=problem.more_pools, owners_only=True)


def _solved_as(problem: Problem, packing: Packing, outcomes: Sequence[BaselineOutcome]) -> Tier1 | None:
    """The tier-1 packing of an alternative problem of the same snapshot; None if it is no better than a packing.

    Where the order of binding that it assumes is impossible for some pods, Karpenter's outcome may still have a valid
    one: the verifier decides.
    """
    run = packing.state.run
    before, followed = rebased(packing, problem), as_packings(problem, outcomes, run)
    best = _first_valid(problem, (quick_packing(problem, run, more=[before, *followed]), before, *followed))
    return Tier1(problem, best, outcomes) if best.score < packing.score else None


def _first_valid(problem: Problem, packings: Iterable[Packing]) -> Packing:
    """The best packing without a violation.

    The verifier runs where the binding order matters, and where limits may leave too few types for minValues.
    """
    every = [*packings]
    every += [packing.cautious for packing in every if packing.cautious is not None]
    ranked = sorted(every, key=_score)
    return next((packing for packing in ranked if _is_valid(problem, packing)), ranked[-1])


def _is_valid(problem: Problem, packing: Packing) -> bool:
    if not few(problem):
        return True
    limited_diversity = bool(problem.binding) and problem.diversity is not None
    if not (limited_diversity or problem.owners_first or problem.owners_only) and packing.order_independent:
        return True
    return not verify(plan_of(problem, packing), problem.snapshot)


def _score(packing: Packing) -> Score:
    return packing.score


def _tier2(tier1: Tier1, seed: int, deadline: float, spent: float, optimiser: Optimiser | None) -> Plan:
    """The best plan found in time, starting from the tier-1 packing."""
    from dovetail.planner.optimise.improve import better

    problem, first, outcomes = tier1
    if first.is_free:
        return _bounded(problem, first, 0.0)
    improved = (optimiser or better)(problem, first, seed, deadline, spent)
    packing = _first_valid(problem, (improved.packing, first))
    bound = improved.bound if packing.left == improved.packing.left else _lower_bound(problem, packing)
    plan = _bounded(problem, packing, bound)
    baseline = tier1.run.baseline
    if baseline is None or _zones(plan) >= baseline.zones:
        return plan
    followed = [packing_ for packing_ in as_packings(problem, outcomes, tier1.run) if packing_.left == packing.left]
    for packing_ in (improved.packing, *sorted(followed, key=_score)[:1]):
        if packing_.left == packing.left and _zones(plan) < baseline.zones:
            plan = _with_more_zones(problem, plan, packing_, bound)
    return plan


def _lower_bound(problem: Problem, packing: Packing) -> float | None:
    """The lower bound of plans for the pods that a packing places."""
    from dovetail.planner.optimise.lower_bound import proven

    return proven(problem, packing.left, _LP_TIMEOUT_S if few(problem) else 1.0)


def _bounded(problem: Problem, packing: Packing, bound: float | None) -> Plan:
    from dovetail.planner.optimise.lower_bound import WORDS

    if bound is not None and math.isclose(bound, packing.cost):  # prices were summed in another order
        bound = packing.cost
    return plan_of(problem, packing, tier=2, bound=bound, bound_of=WORDS if bound is not None else "")


def _with_more_zones(problem: Problem, plan: Plan, packing: Packing, bound: float | None) -> Plan:
    """The plan, or that of another packing if it reaches more zones at a bounded extra cost and misses nothing."""
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


def quick_packing(problem: Problem, run: PackingRun | None = None, more: Sequence[Packing] = ()) -> Packing:
    """The best of a few packings, of one where there are many pods; more strategies are tried if a pod is unplaced.

    `more` are packings to compare as well.
    """
    run = run if run is not None else PackingRun(WorkMeter())
    return _try_more(problem, _best([*more, *_portfolio(problem, run)]))


def _portfolio(problem: Problem, run: PackingRun, tried: Packing | None = None) -> list[Packing]:
    """The packings of the strategies that are always tried; `tried` is that of the first, if it exists."""
    strategies = _strategies(problem)
    if problem.weighted:
        strategies = (*strategies, replace(strategies[0], pessimistic_limits=True))
    ignoring = _ignoring_preferences(problem, strategies[0], run)
    run = ignoring[0].state.run if ignoring else run
    packings = [] if tried is None else [tried.joined(run)]
    return [*packings, *(pack(problem, strategy, run) for strategy in strategies[len(packings) :]), *ignoring]


def _ignoring_preferences(problem: Problem, strategy: Strategy, run: PackingRun) -> list[Packing]:
    """A packing that ignores all preferences, and one that keeps those that the objective finds worth their cost.

    The other strategies keep every preference that can be kept, whatever that costs; so without these packings the
    bound of the objective would have nothing to choose. Of 160 problems they alone gave the best packing of 20 and 14.
    """
    if not problem.preferences:
        return []
    ignored = frozenset(problem.preferences)
    cheapest = pack(problem, replace(strategy, ignored_preferences=ignored), run)
    if not cheapest.left:
        cheapest = cheapest.joined(run._replace(cheapest=cheapest.cost))
    best, run = cheapest, cheapest.state.run
    violated = Counter[int]()
    for index, failing, count in cheapest.violated:  # one entry for each node
        violated[index] += failing * count
    for index, _ in violated.most_common(_MAX_RESTORED_CLASSES) if few(problem) else ():
        other = pack(problem, replace(strategy, ignored_preferences=ignored - {index}), run)
        if other.score < best.score:
            best, ignored = other, ignored - {index}
    return [cheapest] if best is cheapest else [cheapest, best]


def _best(packings: Sequence[Packing]) -> Packing:
    """The best packing. The cheapest is the best if it misses nothing: then the others need no score."""
    cheapest = min(packings, key=lambda packing: packing.cost)
    return cheapest if cheapest.misses_nothing else min(packings, key=_score)


def _try_more(problem: Problem, best: Packing) -> Packing:
    """Try shortage strategies if a feasible pod is unplaced, then round the LP relaxation."""
    if _lacks_feasible_pod(problem, best):
        best = _try_shortage_portfolio(
            problem,
            best,
            _strategies(problem),
            _SHORTAGE_STRATEGIES[:_MAX_SHORTAGE_STRATEGIES]
            if few(problem)
            else _SHORTAGE_STRATEGIES[:_MAX_SHORTAGE_STRATEGIES_OF_MANY_PODS],
        )
    return _round_relaxation(problem, best)


def _strategies(problem: Problem) -> tuple[Strategy, ...]:
    if not few(problem):
        return _MANY_PODS
    if len(problem.classes) > _MAX_PORTFOLIO_CLASSES:
        return _MANY_CLASSES
    return _FEW_ALIKE if problem.total < _MAX_PODS_PER_CLASS_OF_FEW_ALIKE * len(problem.classes) else _FIRST


def _lacks_feasible_pod(problem: Problem, packing: Packing) -> bool:
    """Whether a pod is unplaced that some node or offering could hold."""
    return any(not is_infeasible(problem, problem.classes[index]) for index in packing.left)


def _round_relaxation(problem: Problem, best: Packing) -> Packing:
    """The better of `best` and a rounded LP relaxation, tried where pods have no topology rules."""
    if (
        problem.counters
        or len(best.state.new_nodes()) < 2
        or not can_relax(problem)
        or len(problem.classes) > _MAX_ROUNDED_CLASSES
    ):
        return best
    from dovetail.planner.optimise.rounding import COARSE, rounded

    other = rounded(problem, best, lambda: _LP_TIMEOUT_S, COARSE)
    return best if other is None else min((best, other), key=_score)


def _try_shortage_portfolio(
    problem: Problem, best: Packing, first: Sequence[Strategy], more: Sequence[Strategy]
) -> Packing:
    """The best packing where not all pods can be placed: by priority, then in Karpenter's order of pods.

    A pod that is placed when pods are taken one by one in that order stays placed; besides these, as many as possible.
    """
    run = best.state.run
    guide, meter = pack(problem, _GUIDE, run), run.meter

    def shortage_score_of(packing: Packing) -> tuple[object, ...]:
        return packing.shortage_score(guide)

    best, begin = min(best, guide, key=shortage_score_of), meter.spent
    for strategy in more:
        spent, missing = meter.spent - begin, shortage_score_of(best)[0]
        if spent > (_BASELINE_MISSED_WORK if missing else _SHORTAGE_WORK) or not _lacks_feasible_pod(problem, best):
            break
        best = min(best, pack(problem, strategy, run), key=shortage_score_of)
    hints = hints_for(problem, best.left)
    return (
        min((best, *(pack(problem, strategy, run, hints) for strategy in first)), key=shortage_score_of)
        if hints
        else best
    )
