"""How many zones the machines to buy may lie in, where nothing pins them."""

from __future__ import annotations

from dovetail.planner.problem import Problem
from dovetail.planner.provision import quick
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.zones import reach
from tests.planner.conftest import SHOP, ZONE, kind, pods, pool, spread

_GPU = "nvidia.com/gpu"


def _reached(zones: tuple[str, ...]) -> int:
    """The zones open to a machine with a GPU, sold in these, and one that is kept to the first."""
    shop = (*SHOP, kind("accelerated", 4, 16, 1.0, zones, capacity={_GPU: 1}))
    trainer = pods(1, "trainer", cpu="3", requests={_GPU: "1"})
    kept = pods(1, "kept", cpu="3", nodeSelector={ZONE: "z1"}, **spread(ZONE, app="kept"))
    problem = Problem(Snapshot(pools=(pool(types=shop),), pending=(*trainer, *kept)))
    return reach(quick(problem).board, 3)


def test_a_machine_may_lie_in_any_zone_that_sells_what_holds_its_pods() -> None:
    assert _reached(("z1", "z2")) == 2


def test_a_zone_that_sells_nothing_to_hold_the_pods_of_a_machine_is_not_open_to_it() -> None:
    assert _reached(("z1",)) == 1
