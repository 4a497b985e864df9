"""How many zones the new nodes may lie in, where nothing pins them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.model.instance_type import Offering
from dovetail.planner.packing.zone_spread import zones_reached
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import quick_packing
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, SHOP, ZONE, ZONES, Solve, kind, near, pods, pool, spread, zones_of

_GPU = "nvidia.com/gpu"


def _reached(zones: tuple[str, ...]) -> int:
    """The zones open to a node with a GPU, offered in these, and one that is kept to the first."""
    shop = (*SHOP, kind("accelerated", 4, 16, 1.0, zones, capacity={_GPU: 1}))
    trainer = pods(1, "trainer", cpu="3", requests={_GPU: "1"})
    kept = pods(1, "kept", cpu="3", nodeSelector={ZONE: "z1"}, **spread(ZONE, app="kept"))
    problem = Problem(Snapshot(pools=(pool(types=shop),), pending=(*trainer, *kept)))
    return zones_reached(quick_packing(problem).state, 3)


def test_a_node_may_lie_in_any_zone_that_sells_what_holds_its_pods() -> None:
    assert _reached(("z1", "z2")) == 2


def test_a_zone_that_sells_nothing_to_hold_the_pods_of_a_node_is_not_open_to_it() -> None:
    assert _reached(("z1",)) == 1


def test_zones_that_karpenter_uses_are_reached_by_a_pod_that_gets_there_for_least(solve: Solve) -> None:
    """The large nodes might lie anywhere, but at twice the price; a small one goes to the third zone instead."""

    def offers(*prices: float) -> tuple[Offering, ...]:
        return tuple(
            Offering(zone=zone, capacity_type="on-demand", price=price)
            for zone, price in zip(ZONES, prices, strict=True)
        )

    shop = (
        kind("small", 2, 8, 0.1, offerings=offers(0.12, 0.10, 0.13)),
        kind("large", 16, 64, 1.0, offerings=offers(1.0, 2.0, 2.0)),
    )
    alone = pods(8, cpu="1500m", **spread(app="absent"), **near("podAntiAffinity", HOSTNAME))
    plan = solve(*alone, *pods(2, "large", cpu="15"), pools=(pool(types=shop),), deadline=0.2)
    assert zones_of(plan) == ["z1", "z1", *["z2"] * 7, "z3"]
    assert plan.cost.per_hour == pytest.approx(2.83)


def test_nodes_of_reservations_lie_in_several_zones_where_that_costs_nothing(solve: Solve) -> None:
    """Each reservation is of one zone and would serve all of them; one zone's failure should not take all."""
    kept = [
        Offering(zone=zone, capacity_type="reserved", price=0.01, reservation_id=f"cr-{zone}", reservation_capacity=3)
        for zone in ZONES[:2]
    ]
    shop = tuple(replace(each, offerings=(*each.offerings, *kept)) for each in SHOP[:1])
    apart = pods(3, "db", cpu="500m", **near("podAntiAffinity", HOSTNAME, app="db"))
    for others in ((), pods(1, "web", cpu="500m", nodeSelector={ZONE: "z1"}, **spread())):
        plan = solve(*apart, *others, pools=(pool(types=shop),), deadline=0.1)
        assert {planned.choice.capacity_type for planned in plan.nodes} == {"reserved"}
        assert set(zones_of(plan)) == {"z1", "z2"}
