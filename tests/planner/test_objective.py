"""No plan of few pods is worse than Karpenter: in pods placed, preferences kept, price or zones."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model.instance_type import Offering
from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.pods import Pod
from dovetail.planner.baseline.scheduler import SchedulerSimulation
from dovetail.planner.baseline.to_packing import Simulations, _replayed, as_packings, baseline_of
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.packing.baseline import Baseline, BaselineRun
from dovetail.planner.packing.objective import MAX_SHARE, Score, bounded_share, zone_budget
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import (
    HOSTNAME,
    LARGE,
    MEDIUM,
    SMALL,
    ZONE,
    ZONES,
    Solve,
    kind,
    near,
    pod,
    pods,
    pool,
    spread,
)

_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"
_NAMED = "preferred node affinity"
CAPACITY = "karpenter.sh/capacity-type"


def _prefers(key: str, *values: str) -> dict[str, Any]:
    preference = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]},
    }
    return {"affinity": {"nodeAffinity": {_SOFT: [preference]}}}


def _mixed(chance: random.Random) -> tuple[Pod, ...]:
    ways: tuple[dict[str, Any], ...] = (
        {},
        spread(),
        spread(HOSTNAME, 2),
        spread(whenUnsatisfiable="ScheduleAnyway"),
        near("podAntiAffinity", HOSTNAME, weight=3),
        near("podAffinity", ZONE, weight=3),
        near("podAntiAffinity", HOSTNAME),
        _prefers(ZONE, "z1"),
        _prefers(INSTANCE_TYPE, "large"),
    )
    found: list[Pod] = []
    for index in range(chance.randint(1, 4)):
        cpu = chance.choice(("250m", "1", "3"))
        for number in range(chance.randint(1, 9)):
            found.append(pod(f"w{index}-{number}", cpu, labels={"app": "web"}, **ways[chance.randrange(len(ways))]))
    return tuple(found)


def test_no_plan_is_worse_than_karpenter() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        limits = chance.choice(({}, {}, {"cpu": 20_000}))
        snapshot = Snapshot(pools=(pool(limits=limits),), pending=_mixed(chance))
        problem = Problem(snapshot)
        baseline = baseline_of(problem, Simulations(problem).finish())
        plan = provision(snapshot)
        assert verify(plan, snapshot) == []
        short = [sum(way.left.values()) for way in baseline.runs]
        assert len(plan.unschedulable) <= max(short)
        if len(plan.unschedulable) >= min(short):
            assert plan.cost.per_hour <= max(way.price for way in baseline.runs) + 1e-9


def test_a_preference_that_karpenter_relaxes_is_not_kept_at_a_higher_price(solve: Solve) -> None:
    """An empty domain that only the pool names makes Karpenter give the spread up; keeping it costs on-demand."""
    needs = ({"key": CAPACITY, "operator": "In", "values": ("on-demand", "spot", "reserved")},)
    shop = (kind("small", 2, 8, 0.1, spot=True),)
    owners = pods(8, cpu="900m", **spread(CAPACITY, whenUnsatisfiable="ScheduleAnyway"))
    plan = solve(*owners, pools=(pool(types=shop, requirements=needs),), deadline=0.05)
    kinds = [planned.choice.capacity_type for planned in plan.nodes]
    assert kinds.count("on-demand") <= 1


@pytest.mark.parametrize("kept_by_karpenter", [True, False])
@pytest.mark.parametrize(("price", "worth_it"), [(0.101, True), (0.80, False)])
def test_what_a_preference_may_cost_is_bounded(price: float, worth_it: bool, kept_by_karpenter: bool) -> None:
    """A node as preferred for 1 % more than another, or for eight times as much: Karpenter's choice decides neither."""
    shop = (kind("small", 2, 8, 0.10), kind("large", 16, 64, price))
    preference = _prefers(INSTANCE_TYPE, "large")
    problem = Problem(Snapshot(pools=(pool(types=shop),), pending=(pod("web", **preference),)))
    run = PackingRun(WorkMeter(), Baseline(runs=(BaselineRun({}, 5.0, 0 if kept_by_karpenter else 1),)))

    def score(name: str) -> Score:
        state, request = PackingState(problem, run), problem.request(problem.classes[0], -1)
        rows = [problem.catalog.rows[index].type.name for index in problem.frontier.full.tolist()]
        state.put(request, state.open(rows.index(name)), 1)
        return Packing(state, {}).score

    keeps = kept_by_karpenter and worth_it
    assert (score("large") < score("small")) is keeps


@given(st.floats(0, 50), st.floats(0, 50))
def test_violations_are_never_free_and_never_cost_more_than_the_bound(some: float, more: float) -> None:
    assert 0 <= bounded_share(some) < MAX_SHARE
    assert bounded_share(some) <= bounded_share(some + more) + 1e-12
    assert bounded_share(some) <= some + 1e-12


def test_a_zone_costs_neither_more_than_its_share_nor_than_karpenter_pays() -> None:
    dear, near_by = Baseline(runs=(BaselineRun({}, 9.0, 0, 3),)), Baseline(runs=(BaselineRun({}, 1.01, 0, 3),))
    assert zone_budget(1.0, {}, dear) == (3, pytest.approx(0.10), pytest.approx(0.015))
    assert zone_budget(1.0, {}, near_by) == (3, pytest.approx(0.01), pytest.approx(0.01))
    assert zone_budget(1.0, {}, None) == (0, 0.0, pytest.approx(0.015))


def test_a_packing_dearer_than_karpenters_is_worse_whatever_it_keeps() -> None:
    dearer = Score(0, 0, False, 0, True, 1.0)
    assert Score(0, 0, False, 0, False, 1.1) < dearer
    assert dearer < Score(0, 0, False, 1, False, 0.5), "a pod more with a node is worth more"


def test_the_baseline_price_is_that_of_the_run_with_most_preferences() -> None:
    """Another way is cheaper because it relaxes more: no pod can have the preferences of one at the price of the
    other.
    """
    baseline = Baseline(runs=(BaselineRun({}, 2.0, 0), BaselineRun({}, 1.5, 3), BaselineRun({1: 1}, 1.0, 0)))
    assert (baseline.price({}), baseline.price({1: 1}), baseline.price({2: 1})) == (2.0, 1.0, None)
    assert baseline.missing({1: 2}) == 5
    assert (baseline.fewer({}), baseline.fewer({1: 1}), baseline.fewer({2: 1})) == (1.0, 1.0, 0.0)


def test_a_pod_that_most_runs_of_karpenter_place_comes_first() -> None:
    """Chance takes one of the ways, so to lack no pod in two of three is worth more than to lack few in each."""
    baseline = Baseline(
        runs=(BaselineRun({0: 1}, 1.0, 0), BaselineRun({0: 0, 1: 3}, 1.0, 0), BaselineRun({1: 3}, 1.0, 0))
    )
    assert (baseline.short({0: 1}), baseline.missing({0: 1})) == (2, 2)
    assert (baseline.short({1: 3}), baseline.missing({1: 3})) == (1, 3)


def test_the_baseline_price_is_that_of_a_run_with_all_zones_where_most_runs_reach_them() -> None:
    """Another way is cheaper because it ends in one zone: a pod that has more seldom would not be missed for the
    price.
    """
    wide, narrow = BaselineRun({}, 2.0, 0, zones=2), BaselineRun({}, 1.5, 0, zones=1)
    assert Baseline(runs=(wide, narrow, wide)).price({}) == 2.0
    assert Baseline(runs=(wide, narrow, narrow)).price({}) == 1.5


def test_preferences_that_karpenter_keeps_are_kept_at_a_small_price(solve: Solve) -> None:
    """One large node costs 5 % more than four medium ones."""
    plan = solve(*pods(15, **_prefers(INSTANCE_TYPE, "large")))
    assert [planned.choice.instance_type for planned in plan.nodes] == ["large"]
    assert not any(_NAMED in given for place in plan.placements.values() for given in place.relaxed)


@pytest.mark.parametrize(
    ("preference", "count"),
    [
        (_prefers(INSTANCE_TYPE, "large"), 1),
        (near("podAntiAffinity", HOSTNAME, weight=1), 4),
        (spread(HOSTNAME, whenUnsatisfiable="ScheduleAnyway"), 4),
        (spread(whenUnsatisfiable="ScheduleAnyway"), 4),
    ],
    ids=["node affinity", "anti-affinity", "spread over hosts", "spread over zones"],
)
@pytest.mark.parametrize("deadline", [None, 0.05])
def test_no_plan_pays_more_than_the_bound_for_preferences(
    solve: Solve, preference: dict[str, Any], count: int, deadline: float | None
) -> None:
    """Karpenter launches the large node, or one for each pod; one small node holds them all."""
    plan = solve(*pods(count, cpu="250m", **preference), deadline=deadline)
    assert plan.cost.per_hour <= 0.10 * (1 + MAX_SHARE)


def test_preferences_are_kept_class_by_class_where_only_some_are_dear(solve: Solve) -> None:
    """The web pods' preference would need a large node; that of the others costs 2 %."""
    shop = (kind("small", 2, 8, 0.100), kind("better", 2, 8, 0.102), kind("large", 16, 64, 2.0))
    dear = pods(1, "web", cpu="1500m", **_prefers(INSTANCE_TYPE, "large"))
    cheap = pods(3, "db", cpu="1500m", **_prefers(INSTANCE_TYPE, "better"))
    plan = solve(*dear, *cheap, pools=(pool(types=shop),))
    assert sorted(planned.choice.instance_type for planned in plan.nodes) == ["better", "better", "better", "small"]


def test_preferences_of_many_pods_are_bounded_as_well() -> None:
    """Karpenter is not simulated for so many."""
    snapshot = Snapshot(pools=(pool(),), pending=pods(600, cpu="250m", **near("podAntiAffinity", HOSTNAME, weight=1)))
    together = provision(Snapshot(pools=(pool(),), pending=pods(600, cpu="250m"))).cost.per_hour
    assert provision(snapshot).cost.per_hour <= together * (1 + MAX_SHARE)


def test_zones_cannot_take_again_what_preferences_have_taken_of_the_bound() -> None:
    wide = Baseline(runs=(BaselineRun({}, 9.0, 0, 3),))
    assert zone_budget(1.08, {}, wide, cheapest=1.0) == (3, pytest.approx(0.02), pytest.approx(0.0162))
    assert zone_budget(1.10, {}, None, cheapest=1.0) == (0, 0.0, pytest.approx(0.0))


def test_as_many_zones_are_used_as_karpenter_uses(solve: Solve) -> None:
    """One node in the cheapest zone would do; Karpenter opens one in each for the first three pods."""
    prices = dict(zip(ZONES, (0.8, 0.82, 0.84), strict=True))
    offers = tuple(Offering(zone=zone, capacity_type="on-demand", price=price) for zone, price in prices.items())
    shop = (kind("large", 16, 64, 0.8, offerings=offers), kind("small", 2, 8, 0.11))
    owners = pods(3, "web", cpu="3", **spread(whenUnsatisfiable="ScheduleAnyway"))
    plan = solve(*owners, *pods(6, "fill", cpu="4"), pools=(pool(types=shop),), deadline=0.1)
    assert len({planned.choice.zone for planned in plan.nodes}) == 3


def test_in_a_shortage_a_pod_that_karpenter_places_is_placed(solve: Solve) -> None:
    """Small and important, and yet the large ones come first there: no pod may miss them."""
    large = pods(2, "large", cpu="7")
    small = pods(16, "small", cpu="1", priority=1000)
    plan = solve(*large, *small, pools=(pool(types=(LARGE,), limits={"cpu": 16_000}),))
    assert not [key for key in plan.unschedulable if "large" in key]


def test_a_pod_that_karpenter_places_has_a_place_where_spreads_wait_for_each_other(solve: Solve) -> None:
    """Each spread counts the owners of the other, so neither can come first; Karpenter finds an order by pods."""
    tier = {"labelSelector": {"matchLabels": {"tier": "x"}}}
    alone = pods(3, "alone", cpu="3", labels={"tier": "x"}, **spread(HOSTNAME, 1, **tier))
    level = pods(3, "level", cpu="2", labels={"tier": "x"}, **spread(ZONE, 2, **tier))
    plain = pods(2, "plain", cpu="5", labels={"tier": "x"})
    snapshot = Snapshot(pools=(pool(limits={"cpu": 16_000}),), pending=(*alone, *level, *plain))
    problem = Problem(snapshot)
    short = {
        problem.classes[index].pods[0].rpartition("-")[0]: count
        for index, count in Simulations(problem).outcomes[0].left.items()
    }
    left = Counter(key.rpartition("-")[0] for key in solve(*snapshot.pending, pools=snapshot.pools).unschedulable)
    assert left <= Counter(short)


def test_karpenter_is_followed_where_a_spread_opens_up_only_later() -> None:
    """Pods that a spread only counts made Karpenter rise elsewhere first; here they are not seen."""
    tier = {"labelSelector": {"matchLabels": {"tier": "x"}}}
    seen = pods(2, "seen", cpu="3", labels={"tier": "x"}, nodeSelector={ZONE: "z2"})
    owners = pods(5, "own", cpu="1", labels={"tier": "x"}, **spread(ZONE, 1, **tier))
    snapshot = Snapshot(pools=(pool(types=(MEDIUM,)),), pending=(*seen, *owners))
    outcome = SchedulerSimulation(Problem(snapshot)).run()
    patient = Problem(snapshot, owners_first=True)
    (packing,) = as_packings(patient, [outcome], PackingRun(WorkMeter()))
    held = [packing.state.contents[at] for at in packing.state.new_nodes()]
    loads = Counter(each.place for each in outcome.placed)
    assert sorted(sum(contents.values()) for contents in held) == sorted(loads.values())
    assert not packing.left


def test_preferences_of_pods_that_karpenter_leaves_out_cost_nothing() -> None:
    """Of a class that is placed in full here and not there, a pod that keeps fewest preferences counts as one of the
    others.
    """
    baseline = Baseline(runs=(BaselineRun({0: 2}, 1.0, 3),))
    violated = [(0, 2, 1), (0, 1, 3), (1, 1, 1)]
    assert baseline.excess(violated, {}) == 0
    assert baseline.excess(violated, {0: 1}) == 1
    assert baseline.excess(violated, {0: 2}) == 3


def test_karpenter_is_followed_where_it_rules_out_what_another_term_allows() -> None:
    """It takes the first of two terms, on demand; spot nodes of the same size are cheaper and alike to the pods."""

    def term(capacity: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]}]}

    either = {"nodeSelectorTerms": [term("on-demand"), term("spot")]}
    wanted = pods(4, affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": either}})
    shop = (kind("small", 2, 8, 0.10, spot=True),)
    problem = Problem(Snapshot(pools=(pool(types=shop, limits={"cpu": 4000}),), pending=wanted))
    outcomes = Simulations(problem).finish()
    for outcome in outcomes:
        state, refused = _replayed(problem, outcome, ignore_counted=False)
        assert (outcome.left, refused) == ({}, {})
        assert state.cost() < outcome.price


def test_pods_that_karpenter_leaves_pending_get_the_nodes_that_keep_fewest_preferences(solve: Solve) -> None:
    """It places one, on the reservation; the others, which prefer it too, go where their preference fails."""
    kept = Offering(zone="z1", capacity_type="reserved", price=0.1, reservation_id="cr-1", reservation_capacity=1)
    shop = (kind("small", 2, 8, 0.1), kind("large", 16, 64, 0.8, offerings=(*LARGE.offerings, kept)))
    preference = _prefers(INSTANCE_TYPE, "large")["affinity"]
    picky = pods(3, affinity=near("podAntiAffinity", HOSTNAME)["affinity"] | preference)
    plan = solve(*picky, pools=(pool(types=shop),), deadline=0.05)
    types = {planned.name: planned.choice.capacity_type for planned in plan.nodes}
    assert types[plan.placements["default/web-0"].new_node or ""] == "reserved"
    assert sorted(types.values()) == ["on-demand", "on-demand", "reserved"]


def _alone(affinity: dict[str, Any]) -> tuple[Pod, ...]:
    """Two pods that want a node each."""
    return pods(2, cpu="500m", affinity=near("podAntiAffinity", HOSTNAME)["affinity"] | affinity)


def test_a_pending_pod_is_worse_than_violated_preferences(solve: Solve) -> None:
    """The limit allows one node as preferred, which Karpenter launches, or two others: one for each pod."""
    tight, preference = pool(types=(SMALL, MEDIUM), limits={"cpu": 4000}), _prefers(INSTANCE_TYPE, "medium")
    plan = solve(*_alone(preference["affinity"]), pools=(tight,), deadline=0.05)
    assert [planned.choice.instance_type for planned in plan.nodes] == ["small", "small"]
    assert not plan.unschedulable


def test_a_pod_that_karpenter_leaves_pending_is_placed_where_no_preference_is_lost(solve: Solve) -> None:
    tight = pool(types=(SMALL, MEDIUM), limits={"cpu": 4000})
    assert sum(Simulations(Problem(Snapshot(pools=(tight,), pending=_alone({})))).outcomes[0].left.values()) == 1
    assert not solve(*_alone({}), pools=(tight,)).unschedulable


@pytest.mark.parametrize("deadline, share, runs", [(None, 1e9, 1), (None, 0.0, 3), (0.01, 1e9, 3)])
def test_a_packing_far_below_one_run_of_karpenter_is_not_compared_with_others(
    monkeypatch: pytest.MonkeyPatch, deadline: float | None, share: float, runs: int
) -> None:
    """Other runs break ties otherwise and cost about the same; the search of tier 2 stays below all of them."""
    made: list[Simulations] = []

    class Counted(Simulations):
        def __init__(self, problem: Problem) -> None:
            super().__init__(problem)
            made.append(self)

    pipeline = sys.modules["dovetail.planner.provision"]
    monkeypatch.setattr(pipeline, "Simulations", Counted)
    monkeypatch.setattr(pipeline, "_CLEARLY_CHEAPER", share)
    near_each_other = pods(3, name="db", cpu="1", **near("podAffinity", ZONE, app="db"))
    snapshot = Snapshot(pools=(pool(),), pending=(*pods(6, cpu="1", **spread()), *near_each_other))
    plan = provision(snapshot, deadline=deadline, optimiser=better_by_work)
    assert not plan.unschedulable and not verify(plan, snapshot)
    assert [len(simulations.outcomes) for simulations in made] == [runs]
