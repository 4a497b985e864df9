"""minValues: a machine must be buyable as enough different things, within the limits of its pool."""

from __future__ import annotations

from .conftest import SHOP, Solve, pods, pool

TYPES = ({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 2},)


def test_limits_count_the_larger_machine_that_flexibility_allows(solve: Solve) -> None:
    """Two small machines would do, but each may be launched as a medium one: the limit has room for one of those."""
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 7000}),))
    assert {choice.instance_type for machine in plan.machines for choice in machine.offerings} == {"small", "medium"}
    assert len(plan.unschedulable) == 1


def test_flexibility_within_limits_leaves_nobody_out(solve: Solve) -> None:
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 8000}),))
    assert not plan.unschedulable
