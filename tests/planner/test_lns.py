"""The search: better packings within a budget of work, starting from one that holds."""

from __future__ import annotations

import pytest

from dovetail.chance import Chance
from dovetail.model.instance_type import Offering
from dovetail.model.labels import CAPACITY_TYPE
from dovetail.planner.optimise import lns
from dovetail.planner.packing.pack import pack
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, Solve, kind, near, pods, pool, spread


def test_packing_from_scratch_leaves_work_for_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much the first tries take, the packing at hand is bettered as well."""
    shy = (pods(6, name, cpu="300m", **near("podAntiAffinity", HOSTNAME, app=name, weight=1)) for name in "abcdef")
    problem = Problem(Snapshot(pools=(pool(),), pending=tuple(pod for each in shy for pod in each)))
    walked: list[float] = []

    def step(self: object, chance: Chance, temperature: float) -> None:
        walked.append(temperature)
        start.state.meter.spent += 1

    monkeypatch.setattr(lns._LocalSearch, "step", step)
    start = pack(problem, Strategy())
    budget = 10 * start.state.meter.spent
    lns.improve(problem, start, seed=0, budget=budget, enough=0.0, out_of_time=lambda: False)
    assert len(walked) > budget / 3


@pytest.mark.parametrize("free", [("z1", "z3"), ("z1", "z4")])
def test_room_that_is_paid_for_is_filled_first_whatever_the_number_of_spreads(
    solve: Solve, free: tuple[str, str]
) -> None:
    """Four zones, two with a reserved node: of five pods the one too many goes where there is room for nothing."""
    zones = ("z1", "z2", "z3", "z4")
    reserved = [
        Offering(zone=zone, capacity_type="reserved", price=1e-7, reservation_id=zone, reservation_capacity=1)
        for zone in free
    ]
    shop = (
        kind("tiny", 1, 4, 0.10, zones),
        kind("small", 2, 8, 0.12, zones),
        kind("huge", 64, 256, 3, offerings=reserved),
    )
    rules = [*spread()["topologySpreadConstraints"], *spread(CAPACITY_TYPE)["topologySpreadConstraints"]]
    plan = solve(*pods(5, topologySpreadConstraints=rules), pools=(pool(types=shop),), deadline=0.2)
    assert plan.cost.per_hour == pytest.approx(0.20, abs=1e-5)
