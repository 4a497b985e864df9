"""A small share of the price is worth another zone."""

from __future__ import annotations

import pytest

from dovetail.model.instance_type import Offering
from dovetail.model.nodes import Taint
from tests.planner.conftest import HOSTNAME, ZONE, Solve, kind, near, node, pods, pool


def _shop(dearer: float) -> tuple[Offering, ...]:
    prices = {"z1": 0.1, "z2": 0.1 + dearer, "z3": 0.2}
    return tuple(Offering(zone=zone, capacity_type="on-demand", price=price) for zone, price in prices.items())


def test_another_zone_is_used_where_it_costs_next_to_nothing(solve: Solve) -> None:
    """Among so many existing nodes Karpenter's scheduler is not simulated, so its cost is no limit."""
    alone = pods(4, **near("podAntiAffinity", HOSTNAME))
    small = kind("small", 2, 8, 0.1, offerings=_shop(0.004))
    taint = (Taint(key="team", value="x", effect="NoSchedule"),)
    others = tuple(node(f"n{number}", taints=taint) for number in range(501))
    plan = solve(*alone, pools=(pool(types=(small,)),), nodes=others, deadline=0.05)
    assert sorted(planned.choice.zone for planned in plan.nodes) == ["z1", "z1", "z1", "z2"]
    kept = next(planned for planned in plan.nodes if planned.choice.zone == "z2")
    assert {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"]} in kept.requirements


def test_no_zone_is_paid_for_above_karpenters_cost(solve: Solve) -> None:
    """Karpenter launches all four in the cheapest zone as well: a plan is never dearer than that."""
    alone = pods(4, **near("podAntiAffinity", HOSTNAME))
    small = kind("small", 2, 8, 0.1, offerings=_shop(0.004))
    plan = solve(*alone, pools=(pool(types=(small,)),), deadline=0.05)
    assert plan.cost.per_hour == pytest.approx(0.4)
    assert {planned.choice.zone for planned in plan.nodes} == {"z1"}


def test_no_zone_is_worth_more_than_a_small_share_of_the_price(solve: Solve) -> None:
    alone = pods(4, **near("podAntiAffinity", HOSTNAME))
    small = kind("small", 2, 8, 0.1, offerings=_shop(0.01))
    plan = solve(*alone, pools=(pool(types=(small,)),), deadline=0.05)
    assert {planned.choice.zone for planned in plan.nodes} == {"z1"}


def test_no_zone_is_worth_the_co_located_pods_that_pods_like_to_have(solve: Solve) -> None:
    """Large pods go first and relax their preference, as no pod is there yet; in the end it holds, and stays so."""
    preference = near("podAffinity", ZONE, app="cache", weight=5)["affinity"]
    web = pods(4, cpu="1500m", affinity=preference | near("podAntiAffinity", HOSTNAME)["affinity"])
    cache, giant = pods(2, "cache", cpu="250m"), pods(1, "giant", cpu="100")
    for dearer in (0.0, 0.001):
        small = kind("small", 2, 8, 0.1, offerings=_shop(dearer))
        plan = solve(*web, *cache, *giant, pools=(pool(types=(small,)),), deadline=0.05)
        zones = {planned.name: planned.choice.zone for planned in plan.nodes}
        near_to = {zones[plan.placements[f"default/cache-{at}"].new_node or ""] for at in range(2)}
        assert {zones[plan.placements[f"default/web-{at}"].new_node or ""] for at in range(4)} <= near_to
