"""Rounding: the fluid's flows made into whole pods on whole machines.

Each column gets the pods that the relaxation would let stand on it, packed largest first; what does not come out
even is packed the usual way. For many pods this is within a few percent of the bound at once.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.columns import Floats
from dovetail.planner.optimise.bound import Fluid
from dovetail.planner.packer import Packer
from dovetail.planner.problem import UNLIMITED, Ask, Problem
from dovetail.planner.quick import Packing, class_order
from dovetail.planner.strategy import Strategy


def rounded(problem: Problem, fluid: Fluid, left: dict[int, int]) -> Packing | None:
    """A packing along the flows, or None if somebody would lose their place by it."""
    packer = Packer(problem, Strategy())
    wanted = [(problem.ask(ask.cls, 0), _whole(flow, ask.cls.count - left.get(ask.cls.index, 0)))
              for ask, flow in fluid.flows]  # fmt: skip
    short = {one.index: one.count - left.get(one.index, 0) for one in problem.classes}
    for column in _columns(problem, wanted):
        mine = [(ask, counts[column]) for ask, counts in wanted if column in counts]
        _pour(packer, column, mine, short)
    packer.only, packer.budget = None, UNLIMITED
    rest = [one for one in class_order(problem, packer.strategy) if short[one.index] and not one.error]
    packer.waiting = np.zeros(len(problem.dims))
    for one in rest:
        packer.waiting += problem.ask(one, 0).request * float(short[one.index])
    for one in rest:
        packer.waiting -= problem.ask(one, 0).request * float(short[one.index])
        for rung in range(len(one.levels)):
            if short[one.index]:
                short[one.index] -= packer.place(problem.ask(one, rung), short[one.index])
        if short[one.index]:
            return None
    packer.board.shrink()
    return Packing(packer.board, left)


def _pour(packer: Packer, column: int, mine: list[tuple[Ask, int]], short: dict[int, int]) -> None:
    """Fill as many machines of a column as the flows fill whole; the rest is packed with everybody else's rest."""
    problem = packer.problem
    total: Floats = np.zeros(len(problem.dims))
    for ask, count in mine:
        total += ask.request * float(count)
    whole = int(float((total / np.maximum(problem.menu.capacity[:, column], 1)).max()) + 1e-6)
    if not whole:
        return
    packer.only = np.zeros(problem.menu.size, dtype=np.bool_)
    packer.only[column] = True
    packer.budget = whole
    packer.waiting = total.copy()
    for ask, count in sorted(mine, key=lambda each: (-_size(problem, each[0], column), each[0].number)):
        packer.waiting -= ask.request * float(count)
        short[ask.cls.index] -= packer.place(ask, min(count, short[ask.cls.index]))


def _whole(flow: dict[int, float], count: int) -> dict[int, int]:
    """Whole pods for each column, the largest remainders rounded up."""
    floors = {column: int(amount) for column, amount in flow.items()}
    missing = min(count, round(sum(flow.values()))) - sum(floors.values())
    by_remainder = sorted(flow, key=lambda column: (floors[column] - flow[column], column))
    for column in by_remainder[: max(0, missing)]:
        floors[column] += 1
    return {column: amount for column, amount in floors.items() if amount}


def _columns(problem: Problem, wanted: list[tuple[Ask, dict[int, int]]]) -> list[int]:
    """The columns in use, the most money first."""
    load: dict[int, float] = {}
    for ask, counts in wanted:
        for column, count in counts.items():
            load[column] = load.get(column, 0.0) + _size(problem, ask, column) * count * problem.menu.prices[column]
    return sorted(load, key=lambda column: (-load[column], column))


def _size(problem: Problem, ask: Ask, column: int) -> float:
    return float((ask.request / np.maximum(problem.menu.capacity[:, column], 1)).max())
