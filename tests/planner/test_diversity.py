"""minValues: a machine must be buyable as enough different things, within the limits of its pool."""

from __future__ import annotations

from dovetail.model.instancetype import Offering

from .conftest import MEDIUM, SHOP, SMALL, Solve, kind, pods, pool

TYPES = ({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 2},)


def test_limits_count_the_larger_machine_that_flexibility_allows(solve: Solve) -> None:
    """Two small machines would do, but each may be launched as a medium one: the limit has room for one of those."""
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 7000}),))
    assert {choice.instance_type for machine in plan.machines for choice in machine.offerings} == {"small", "medium"}
    assert len(plan.unschedulable) == 1


def test_flexibility_within_limits_leaves_nobody_out(solve: Solve) -> None:
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 8000}),))
    assert not plan.unschedulable


def test_a_reserved_machine_has_others_to_fall_back_on_where_its_pool_asks_for_variety(solve: Solve) -> None:
    """A reservation is of one type; the pool's two types are there if it cannot be had."""
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    types = (kind("small", 2, 8, 0.1, offerings=(*SMALL.offerings, kept)), MEDIUM)
    (machine,) = solve(*pods(1), pools=(pool(types=types, requirements=TYPES),)).machines
    assert (machine.price, machine.choice.reservation_id) == (0.0, "cr-1")
    assert {choice.instance_type for choice in machine.offerings} == {"small", "medium"}
    assert not [each for each in machine.requirements if each["key"].endswith("capacity-reservation-id")]
