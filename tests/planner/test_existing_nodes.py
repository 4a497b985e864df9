"""Room on existing nodes goes to the pods that would cost most elsewhere."""

from __future__ import annotations

import sys

import pytest

from dovetail.planner.baseline.to_packing import Simulations
from dovetail.planner.packing.pack import Packing, pack
from dovetail.planner.packing.run import PackingRun
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify.cluster import PlannedCluster
from dovetail.planner.verify.offerings import PlannedOfferingsCache
from tests.planner.conftest import HOSTNAME, MEDIUM, SMALL, ZONE, Solve, near, node, pod, pods, pool, spread, zones_of


def test_small_lonely_pods_do_not_crowd_out_large_ones(solve: Solve) -> None:
    one_per_node = pods(2, "lonely", cpu="1", **near("podAntiAffinity", HOSTNAME, "lonely"))
    large = pods(2, "large", cpu="3500m")
    shop = (pool(types=(SMALL, MEDIUM)),)
    plan = solve(*one_per_node, *large, pools=shop, nodes=(node("n1"), node("n2")), deadline=1.0)
    assert [plan.placements[f"default/large-{at}"].node is not None for at in range(2)] == [True, True]
    assert [planned.choice.instance_type for planned in plan.nodes] == ["small", "small"]


def test_a_pod_that_fits_on_an_existing_node_takes_one_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing and violates nothing: neither other strategies nor Karpenter's scheduler could do better."""
    packings: list[Strategy] = []

    def counted(problem: Problem, strategy: Strategy, run: PackingRun | None = None) -> Packing:
        packings.append(strategy)
        return pack(problem, strategy)

    def simulated(problem: Problem) -> Simulations:
        raise AssertionError("Karpenter's scheduler was simulated")

    pipeline = sys.modules["dovetail.planner.provision"]
    monkeypatch.setattr(pipeline, "pack", counted)
    monkeypatch.setattr(pipeline, "Simulations", simulated)
    plan = provision(Snapshot(pools=(pool(),), nodes=(node("n1"),), pending=pods(2)), deadline=1.0)
    assert len(packings) == 1
    assert {placement.node for placement in plan.placements.values()} == {"n1"}
    assert plan.cost.lower_bound == 0.0


def test_a_preference_that_an_existing_node_violates_is_weighed(solve: Solve) -> None:
    """The search goes on where the free packing relaxes a preference: a node in the zone may be worth its price."""
    prefers = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}}
            ]
        }
    }
    plan = solve(pod("a", affinity=prefers), nodes=(node("n1", "z1"),))
    assert zones_of(plan) == ["z2"]


def test_a_node_found_full_for_one_zone_is_still_asked_for_another(solve: Solve) -> None:
    wanted = [
        pod(f"p-{zone}-{at}", cpu="1", nodeSelector={"topology.kubernetes.io/zone": zone})
        for at in range(4)
        for zone in ("z1", "z2")
    ]
    plan = solve(*wanted, nodes=(node("n1", "z1"), node("n2", "z2")))
    assert plan.nodes == ()


def test_a_lot_answers_for_the_smallest_of_its_offerings(solve: Solve) -> None:
    snapshot = Snapshot(pools=(pool(),), pending=(pod("a"),))
    plan = solve(*snapshot.pending)
    world = PlannedCluster(snapshot, plan.nodes)
    planned_offerings = PlannedOfferingsCache(world).of(plan.nodes[0])
    assert set(planned_offerings.kinds) == {"small", "medium", "large"}
    assert planned_offerings.holds((), {}, {"cpu": 2000})
    assert not planned_offerings.holds((), {}, {"cpu": 2001})
    assert not planned_offerings.holds((), {"topology.kubernetes.io/zone": "z1"}, {})


def test_an_affinity_to_its_own_kind_outweighs_a_soft_spread_over_the_same_key(solve: Solve) -> None:
    soft = spread(whenUnsatisfiable="ScheduleAnyway")
    plan = solve(*pods(5, cpu="1500m", **soft, **near("podAffinity", ZONE)))
    assert len(set(zones_of(plan))) == 1
    assert not plan.unschedulable


def test_a_kind_that_must_share_one_node_stops_at_the_skew_of_its_zone_spread(solve: Solve) -> None:
    plan = solve(*pods(4, **spread(), **near("podAffinity", HOSTNAME)))
    assert len(plan.unschedulable) == 3


def test_those_who_can_go_nowhere_else_have_the_room(solve: Solve) -> None:
    """Larger pods come first and would fill the node; the search asks them to make room."""
    home = node("n1", labels={"team": "x"}, cpu="4")
    bound = pods(4, "bound", cpu="500m", nodeSelector={"team": "x"})
    plan = solve(*pods(4, "any", cpu="1"), *bound, nodes=(home,), deadline=0.3)
    assert not plan.unschedulable
