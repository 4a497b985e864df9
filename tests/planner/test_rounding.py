"""Rounding the LP relaxation where NodePools have limits, which the LP does not know."""

from __future__ import annotations

from dovetail.planner.optimise.rounding import COARSE, rounded
from dovetail.planner.packing.pack import Packing, pack, rebased
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import Solve, kind, pods, pool

#: A small type that is cheap for each CPU, a large one that is cheap for each GiB, and one between.
_TYPES = (
    kind("cpu", 8, 16, 0.30),
    kind("balanced", 8, 32, 0.40),
    kind("memory", 8, 64, 0.50),
)
_PENDING = (*pods(30, "a", cpu="1700m", memory="2Gi"), *pods(30, "b", cpu="500m", memory="7Gi"))


def _problem(limits: dict[str, int]) -> tuple[Problem, Packing]:
    problem = Problem(Snapshot(pools=(pool("default", types=_TYPES, limits=limits),), pending=_PENDING))
    return problem, pack(problem, Strategy())


def _rounded(limits: dict[str, int]) -> Packing | None:
    problem, packing = _problem(limits)
    return rounded(problem, packing, lambda: 60.0, COARSE)


def test_a_limit_that_leaves_room_does_not_make_plans_dearer(solve: Solve) -> None:
    """A quick plan for 100 pods and a limit of 1,000 CPUs cost up to 10 % more than without a limit."""
    limit = {"cpu": 200_000}
    assert _problem(limit)[0].binding == ["cpu"]
    limited, unlimited = _rounded(limit), _rounded({})
    assert limited is not None and unlimited is not None
    assert limited.cost == unlimited.cost


def test_a_packing_that_exceeds_a_limit_is_refused() -> None:
    """The LP opens whole nodes at once, past a limit that leaves room for all but one of them."""
    unlimited_problem, packing = _problem({})
    unlimited = rounded(unlimited_problem, packing, lambda: 60.0, COARSE)
    assert unlimited is not None
    used = 8000 * len(unlimited.state.new_nodes())
    results = []
    for limit in (used, used - 1):
        problem, _ = _problem({"cpu": limit})
        results.append(rounded(problem, rebased(packing, problem), lambda: 60.0, COARSE))
    assert results[0] is not None
    assert results[1] is None


def test_what_existing_nodes_exceed_refuses_nothing() -> None:
    problem, _ = _problem({"cpu": 200_000})
    state = pack(problem, Strategy()).state
    assert not state.exceeds_limits()
    state.left[0]["cpu"] = -1
    assert state.exceeds_limits()
    state.problem.limits[0]["cpu"] = -1  # existing nodes have more than the limit allows
    assert not state.exceeds_limits()
