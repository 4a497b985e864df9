"""A spread that honours node affinity counts pods only where its owner could stand, and machines may change."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import Board
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import MEDIUM, SMALL, pod, pods, pool, spread


def _problem() -> Problem:
    """One pod that needs four cores is spread over zones beside others, which are counted on such machines alone."""
    large = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [large]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    owner = pod("owner", labels={"app": "web"}, affinity=affinity, **spread(skew=2))
    others = pods(8, cpu="500m")
    return Problem(Snapshot(pools=(pool(types=(SMALL, MEDIUM)),), pending=(owner, *others)))


def _column(problem: Problem, price: float) -> int:
    return int(np.flatnonzero(problem.menu.prices == price)[0])


@pytest.mark.parametrize("machines", [1, 8])
def test_pods_on_a_machine_made_smaller_are_counted_no_longer(machines: int) -> None:
    problem = _problem()
    medium = _column(problem, MEDIUM.offerings[0].price or 0.0)
    other = next(one for one in problem.classes if one.count == 8)
    board = Board(problem)
    for _ in range(machines):
        board.put(problem.ask(other, 0), board.open(medium), 1)
    (cell,) = problem.cells.values()
    assert sum(board.counts[cell.slot]) == machines
    shrink(board)
    assert {problem.menu.prices[board.standing(at)] for at in board.bought()} == {SMALL.offerings[0].price}
    assert sum(board.counts[cell.slot]) == 0


def test_pods_on_a_machine_made_larger_are_counted_from_then_on() -> None:
    problem = _problem()
    small = _column(problem, SMALL.offerings[0].price or 0.0)
    other = next(one for one in problem.classes if one.count == 8)
    board = Board(problem)
    at = board.open(small)
    board.put(problem.ask(other, 0), at, 3)
    (cell,) = problem.cells.values()
    assert sum(board.counts[cell.slot]) == 0
    twin = board.clone()
    twin.move(at, _column(problem, MEDIUM.offerings[0].price or 0.0))
    assert sum(twin.counts[cell.slot]) == 3
    assert sum(board.counts[cell.slot]) == 0
