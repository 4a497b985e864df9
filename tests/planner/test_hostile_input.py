"""Impossible and hostile input gets a reason, never an exception or a hang."""

from __future__ import annotations

import pytest

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.reasons import reason
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision, quick_packing
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, ZONE, ZONES, Solve, kind, near, node, pod, pods, pool, spread

EMPTY = InstanceType(
    name="empty",
    capacity={"cpu": 0, "memory": 0, "pods": 0},
    overhead={},
    labels={},
    offerings=(Offering(zone="z1", capacity_type="on-demand", price=0.0),),
)


def _contradiction(*values: str) -> dict[str, object]:
    clauses = [{"key": ZONE, "operator": "In", "values": [value]} for value in values]
    terms = [{"matchExpressions": clauses}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def test_types_without_any_capacity_hold_nothing(solve: Solve) -> None:
    plan = solve(pod("a"), pools=(pool(types=(EMPTY,)),), deadline=0.05)
    assert plan.unschedulable["default/a"].code == "NO_TYPE_FITS"


def test_a_dimension_that_no_type_has_is_named(solve: Solve) -> None:
    plan = solve(pod("a", requests={"nvidia.com/gpu": "1"}), deadline=0.05)
    assert "nvidia.com/gpu" in plan.unschedulable["default/a"].message


def test_a_dimension_that_some_types_have_none_of_divides_by_nothing(solve: Solve) -> None:
    card = kind("card", 4, 16, 1.0, capacity={"nvidia.com/gpu": 1})
    asking = [pod(f"g{n}", requests={"nvidia.com/gpu": "1"}) for n in range(3)]
    plan = solve(*asking, *pods(60, cpu="100m"), pools=(pool(types=(card, kind("plain", 4, 16, 0.2))),), deadline=0.2)
    assert plan.unschedulable == {}


@pytest.mark.filterwarnings("error")
def test_nodes_that_cost_nothing_are_bounded_by_nothing(solve: Solve) -> None:
    free = (kind("free", 4, 16, 0.0), kind("larger", 8, 16, 0.0))
    plan = solve(*pods(5), *pods(5, "db", cpu="300m", memory="3Gi"), pools=(pool(types=free),), deadline=0.1)
    assert (plan.cost.lower_bound, plan.cost.gap) == (0.0, 0.0)


@pytest.mark.parametrize("cpu", ["1000000", "9223372036854775807", "1e30", 99999999999999999999999999])
def test_a_pod_larger_than_the_world_is_refused_and_changes_nothing_for_others(solve: Solve, cpu: str | int) -> None:
    alone = solve(*pods(5))
    plan = solve(*pods(5), pod("giant", cpu=cpu), deadline=0.05)
    assert set(plan.unschedulable) == {"default/giant"}
    assert plan.cost.per_hour <= alone.cost.per_hour + 1e-9


def test_the_optimiser_runs_where_nothing_can_be_launched(solve: Solve) -> None:
    """All offerings are unavailable; pods on existing nodes are still moved to make room."""
    sold_out = frozenset((each, zone, "on-demand") for each in ("small", "medium", "large") for zone in ZONES)
    nodes = (node("n1", cpu="4"), node("n2", cpu="4"))
    waiting = (*pods(3, cpu="1500m"), *pods(5, "db", cpu="900m"))
    plan = solve(*waiting, nodes=nodes, unavailable=sold_out, deadline=0.1)
    assert 1 <= len(plan.unschedulable) <= 2
    assert not plan.nodes


def test_contradictory_requirements_are_reported_with_the_clause_that_emptied_the_shop(solve: Solve) -> None:
    plan = solve(pod("a", affinity=_contradiction("z1", "z2")), deadline=0.05)
    why = plan.unschedulable["default/a"]
    assert why.pools["default"].steps[-1].left == 0
    assert reason(why.code).remedy


def test_an_empty_catalogue_and_no_pool_at_all_are_reasons_too(solve: Solve) -> None:
    assert solve(pod("a"), pools=(pool(types=()),), deadline=0.05).unschedulable["default/a"].code
    assert solve(pod("a"), pools=(), deadline=0.05).unschedulable["default/a"].code == "NO_NODEPOOL"


def test_requests_that_no_pod_can_read_are_reported(solve: Solve) -> None:
    plan = solve(pod("a", cpu="many"), deadline=0.05)
    why = plan.unschedulable["default/a"]
    assert why.code == "UNREADABLE"
    assert "cannot be read: spec.containers[0].resources.requests." in why.message
    assert "is not a quantity" in why.message


def test_a_spread_that_can_never_hold_is_reported(solve: Solve) -> None:
    plan = solve(*pods(4, **spread(minDomains=9)), deadline=0.05)
    assert {why.code for why in plan.unschedulable.values()} == {"SPREAD"}


def test_ten_thousand_kinds_of_pods_are_planned_in_one_pass() -> None:
    """No two alike: the work grows with the classes, and not with their square."""
    many = tuple(pod(f"p{n}", cpu=f"{100 + n % 997}m", memory=f"{64 + n}Mi") for n in range(10_000))
    world = Snapshot(pools=(pool(types=(kind("huge", 64, 256, 3.0), kind("vast", 192, 768, 9.0))),), pending=many)
    problem = Problem(world)
    assert len(problem.classes) == 10_000
    packing = quick_packing(problem)
    assert sum(packing.left.values()) == 0
    assert packing.state.meter.spent < 20 * len(problem.classes)


def test_ten_thousand_kinds_that_fit_nowhere_are_all_reported() -> None:
    many = tuple(pod(f"p{n}", cpu=f"{100_000 + n}m") for n in range(10_000))
    plan = provision(Snapshot(pools=(pool(),), pending=many))
    assert len(plan.unschedulable) == 10_000
    assert {why.code for why in plan.unschedulable.values()} == {"NO_TYPE_FITS"}


def test_a_spread_over_a_label_that_no_pod_has_beside_one_over_zones_is_reported(solve: Solve) -> None:
    rules = [*spread()["topologySpreadConstraints"], *spread("rack")["topologySpreadConstraints"]]
    plan = solve(*pods(2, topologySpreadConstraints=rules), pod("other"), deadline=0.05)
    assert set(plan.unschedulable) == {"default/web-0", "default/web-1"}


@pytest.mark.parametrize("price", [float("nan"), float("inf"), float("-inf"), -1.0])
def test_what_is_no_price_is_none(solve: Solve, price: float) -> None:
    """No pod is paid for taking nodes, and what costs no pod knows what is launched last, if at all."""
    odd = kind("odd", 64, 256, price)
    assert {offering.price for offering in odd.offerings} == {None}
    plan = solve(*pods(3), pools=(pool(types=(odd, kind("plain", 4, 16, 0.2))),), deadline=0.05)
    assert plan.cost.per_hour == pytest.approx(0.2)


@pytest.mark.parametrize("amount", [-(10**30), -1, 0, 10**30])
def test_types_of_absurd_size_disturb_no_pod(solve: Solve, amount: int) -> None:
    odd = kind("odd", 4, 16, 0.1, capacity={"memory": amount, "nvidia.com/gpu": amount})
    plan = solve(
        *pods(3),
        pod("g", requests={"nvidia.com/gpu": "1"}),
        deadline=0.05,
        pools=(pool(types=(odd, kind("plain", 4, 16, 0.2))),),
    )
    assert set(plan.unschedulable) <= {"default/g"}


def test_less_than_nothing_cannot_be_asked_for(solve: Solve) -> None:
    plan = solve(pod("a", memory="-5Gi"), *pods(2), deadline=0.05)
    assert plan.unschedulable["default/a"].code == "UNREADABLE"
    assert "memory" in plan.unschedulable["default/a"].message


def test_a_selector_that_no_pod_can_read_selects_no_pod(solve: Solve) -> None:
    odd = {"matchExpressions": [{"key": "app", "operator": "Odd", "values": ["web"]}]}
    plan = solve(*pods(2, **spread(labelSelector=odd)), deadline=0.05)
    assert plan.unschedulable == {}


def test_new_nodes_have_names_that_no_node_has(solve: Solve) -> None:
    plan = solve(*pods(3), nodes=(node("m-1", cpu="100m"), node("mm-2", cpu="100m")), deadline=0.05)
    assert {planned.name[:4] for planned in plan.nodes} == {"mmm-"}


@pytest.mark.parametrize("limit", [-(10**30), -1, 0, 10**30])
def test_limits_of_absurd_size_are_limits(solve: Solve, limit: int) -> None:
    plan = solve(pod("a"), pools=(pool(limits={"cpu": limit}),), deadline=0.05)
    assert (plan.unschedulable == {}) is (limit > 0)


def test_a_label_for_every_pod_that_no_pod_has_is_reported_to_every_pod(solve: Solve) -> None:
    asking = [pod(f"p{n}", nodeSelector={f"team-{n}": "a"}) for n in range(300)]
    plan = solve(*asking, pod("plain"), deadline=0.05)
    assert {each.code for each in plan.unschedulable.values()} == {"UNKNOWN_LABEL"}
    assert len(plan.unschedulable) == 300


def test_a_resource_for_every_pod_that_no_pod_has_is_reported_to_every_pod(solve: Solve) -> None:
    asking = [pod(f"p{n}", requests={f"example.com/r{n}": "1"}) for n in range(100)]
    plan = solve(*asking, deadline=0.05)
    assert all(f"example.com/r{n}" in plan.unschedulable[f"default/p{n}"].message for n in range(100))


def test_more_rules_on_sharing_than_the_bound_looks_at_leave_it_below_every_plan(solve: Solve) -> None:
    """Each of sixty workloads wants a node for each of its three pods: the bound keeps to some of the rules."""
    apart = [
        pod(f"w{n}-{i}", cpu="100m", labels={"app": f"w{n}"}, **near("podAntiAffinity", HOSTNAME, app=f"w{n}"))
        for n in range(60)
        for i in range(3)
    ]
    plan = solve(*apart, deadline=0.1)
    assert len(plan.nodes) >= 3
    assert plan.cost.lower_bound is not None and 0 < plan.cost.lower_bound <= plan.cost.per_hour
