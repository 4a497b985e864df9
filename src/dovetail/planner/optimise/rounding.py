"""Rounding: the fluid's flows made into whole pods on whole machines.

Each column gets the pods that the relaxation would let stand on it, packed largest first; what does not come out
even is packed the usual way. For many pods this is within a few percent of the bound at once.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.optimise.bound import Fluid
from dovetail.planner.packer import Packer, Strategy
from dovetail.planner.problem import Ask, Problem
from dovetail.planner.quick import Packing


def rounded(problem: Problem, fluid: Fluid, left: dict[int, int]) -> Packing | None:
    """A packing along the flows, or None if somebody would lose their place by it."""
    packer = Packer(problem, Strategy(foresight=0.5))
    wanted = [(problem.ask(ask.cls, 0), _whole(flow, ask.cls.count - left.get(ask.cls.index, 0)))
              for ask, flow in fluid.flows]  # fmt: skip
    rest: dict[int, int] = {}
    for column in _columns(problem, wanted):
        packer.only = np.zeros(problem.menu.size, dtype=np.bool_)
        packer.only[column] = True
        mine = [(ask, counts[column]) for ask, counts in wanted if column in counts]
        mine.sort(key=lambda each: (-_size(problem, each[0], column), each[0].number))
        packer.waiting = np.zeros(len(problem.dims))
        for ask, count in mine:
            packer.waiting += ask.request * float(count)
        for ask, count in mine:
            packer.waiting -= ask.request * float(count)
            missing = count - packer.place(ask, count)
            if missing:
                rest[ask.cls.index] = rest.get(ask.cls.index, 0) + missing
    packer.only = None
    packer.waiting = np.zeros(len(problem.dims))
    for ask, counts in wanted:
        short = ask.cls.count - left.get(ask.cls.index, 0) - sum(counts.values()) + rest.get(ask.cls.index, 0)
        for rung in range(len(ask.cls.levels)):
            short -= packer.place(problem.ask(ask.cls, rung), short) if short else 0
        if short:
            return None
    packer.board.shrink()
    return Packing(packer.board, left)


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
