"""The optimiser in a process of its own: it may help, be late or die, and tier 1's answer is never lost by it."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dovetail.planner.optimise.improve import Improvement, better_by_work
from dovetail.planner.optimise.worker import OptimiserProcess, layout_of, packing_of, serve
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision, quick_packing
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import ZONE, node, pods, pool, spread

PENDING = (*pods(9, cpu="700m"), *pods(5, "spread", cpu="300m", **spread(ZONE, app="spread")))
WORLD = Snapshot(pools=(pool(),), pending=PENDING, nodes=(node("n1"),))


@pytest.fixture
def child() -> Iterator[OptimiserProcess]:
    made = OptimiserProcess()
    yield made
    made.close()


def test_the_child_finds_what_would_be_found_here(child: OptimiserProcess) -> None:
    """Ended by work alone, where it is done makes no difference."""
    here = provision(WORLD, seed=3, deadline=0.1, optimiser=better_by_work)
    problem = Problem(WORLD)
    start = quick_packing(problem)
    sent = pickle.loads(pickle.dumps(problem))
    found = better_by_work(sent, packing_of(sent, layout_of(start), start.state.run), 3, 0.1, 0.0)
    assert found.packing.cost == pytest.approx(here.cost.per_hour)
    assert found.bound == here.cost.lower_bound


def test_a_plan_from_the_child_holds_and_has_a_bound(child: OptimiserProcess) -> None:
    plan = provision(WORLD, deadline=60.0, optimiser=child)
    assert verify(plan, WORLD) == []
    assert plan.cost.lower_bound is not None
    assert plan.cost.per_hour <= provision(WORLD).cost.per_hour
    assert child.lost == 0


def test_one_child_serves_one_plan_after_another(child: OptimiserProcess) -> None:
    for count in (8, 9):
        small = Snapshot(pools=(pool(),), pending=pods(count))
        assert provision(small, deadline=60.0, optimiser=child).cost.lower_bound is not None
    assert child.lost == 0


@pytest.mark.parametrize("program", ["raise SystemExit(1)", "import sys; sys.stdin.buffer.read()"])
def test_a_child_that_dies_or_says_nothing_costs_nothing_but_the_improving(program: str) -> None:
    broken = OptimiserProcess((sys.executable, "-c", program))
    try:
        plan = provision(WORLD, deadline=0.2, optimiser=broken)
    finally:
        broken.close()
    quickly = provision(WORLD)
    assert plan.placements == quickly.placements
    assert plan.cost.per_hour == quickly.cost.per_hour


def test_a_child_that_dies_in_the_middle_is_replaced(child: OptimiserProcess) -> None:
    assert provision(WORLD, deadline=60.0, optimiser=child).cost.lower_bound is not None
    assert child._child is not None
    child._child.kill()
    child._child.wait()
    assert provision(WORLD, deadline=60.0, optimiser=child).cost.lower_bound is not None
    assert child.lost == 1


def test_what_the_child_reported_before_it_failed_is_kept() -> None:
    """A child that reports a bound and then stops: the bound counts, and so does the packing reported with it."""
    program = (
        "import sys, time\n"
        "from dovetail.planner.optimise import improve, worker\n"
        "def solve(problem, packing, seed, deadline, spent, on_improvement):\n"
        "    on_improvement(improve.Improvement(packing, 0.25))\n"
        "    raise SystemExit(1)\n"
        "worker.serve(sys.stdin.buffer, sys.stdout.buffer, solve)\n"
    )
    failing = OptimiserProcess((sys.executable, "-c", program))
    try:
        plan = provision(WORLD, deadline=60.0, optimiser=failing)
    finally:
        failing.close()
    assert plan.cost.lower_bound == 0.25
    assert failing.lost == 1


def test_the_child_ends_when_no_pod_can_ask_any_more() -> None:
    """A pod that started it may be killed at any time; it must not be left behind."""
    command = [sys.executable, "-m", "dovetail.planner.optimise.worker"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0


def test_ctrl_c_in_a_terminal_reaches_the_parent_alone() -> None:
    child = OptimiserProcess((sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"))
    child.start()
    process = child._child
    assert process is not None and process.stdout is not None
    assert process.stdout.read() == b"True\n"
    child.close()


def test_serving_ends_with_its_input() -> None:
    sink = io.BytesIO()

    def never(*_: object, **__: object) -> Improvement:
        raise AssertionError

    serve(io.BytesIO(b""), sink, never)
    assert sink.getvalue().endswith(b"listening")
