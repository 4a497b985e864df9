"""A small share of the price is worth another zone."""

from __future__ import annotations

from dovetail.model.instance_type import Offering
from tests.planner.conftest import HOSTNAME, ZONE, Solve, kind, near, pods, pool


def _shop(dearer: float) -> tuple[Offering, ...]:
    prices = {"z1": 0.1, "z2": 0.1 + dearer, "z3": 0.2}
    return tuple(Offering(zone=zone, capacity_type="on-demand", price=price) for zone, price in prices.items())


def test_another_zone_is_used_where_it_costs_next_to_nothing(solve: Solve) -> None:
    alone = pods(4, **near("podAntiAffinity", HOSTNAME))
    small = kind("small", 2, 8, 0.1, offerings=_shop(0.004))
    plan = solve(*alone, pools=(pool(types=(small,)),), deadline=0.05)
    assert sorted(machine.choice.zone for machine in plan.machines) == ["z1", "z1", "z1", "z2"]
    kept = next(machine for machine in plan.machines if machine.choice.zone == "z2")
    assert {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["z2"]} in kept.requirements


def test_no_zone_is_worth_more_than_a_small_share_of_the_price(solve: Solve) -> None:
    alone = pods(4, **near("podAntiAffinity", HOSTNAME))
    small = kind("small", 2, 8, 0.1, offerings=_shop(0.01))
    plan = solve(*alone, pools=(pool(types=(small,)),), deadline=0.05)
    assert {machine.choice.zone for machine in plan.machines} == {"z1"}


def test_no_zone_is_worth_the_company_that_pods_like_to_have(solve: Solve) -> None:
    """Large pods go first and give up their wish, as nobody is there yet; in the end it holds, and stays so."""
    wish = near("podAffinity", ZONE, app="cache", weight=5)["affinity"]
    web = pods(4, cpu="1500m", affinity=wish | near("podAntiAffinity", HOSTNAME)["affinity"])
    cache, giant = pods(2, "cache", cpu="250m"), pods(1, "giant", cpu="100")
    for dearer in (0.0, 0.001):
        small = kind("small", 2, 8, 0.1, offerings=_shop(dearer))
        plan = solve(*web, *cache, *giant, pools=(pool(types=(small,)),), deadline=0.05)
        zones = {machine.name: machine.choice.zone for machine in plan.machines}
        near_to = {zones[plan.placements[f"default/cache-{at}"].machine or ""] for at in range(2)}
        assert {zones[plan.placements[f"default/web-{at}"].machine or ""] for at in range(4)} <= near_to
