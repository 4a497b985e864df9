"""The lower bound: what the pods would cost if they were fluid.

Pods may be cut into pieces and machines bought in fractions, each class only on columns it may stand on, and never
more pods that refuse each other's company than machines. Spreads, affinities and limits are not looked at; machines
that are there are free as far as they reach. Whatever a real plan costs, it cannot cost less.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from dovetail.planner.asks import Ask
from dovetail.planner.columns import Bools
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.optimise.fluid import Demand, Fluid, fluid
from dovetail.planner.problem import Problem

WORDS = (
    "pods may be cut into pieces and machines bought in fractions, but at least the one that the dearest pod needs; "
    "spreads, affinities, limits, reservations and minimum flexibility are left out"
)
#: Where there is no time for the relaxation as it is, pods are poured together down to this many shares.
_COARSE = 300


def relaxed(problem: Problem, left: dict[int, int], seconds: float) -> Fluid | None:
    """The relaxation for the pods that a plan places (`left` has none): a coarser one, or None, where time is short."""
    finite = np.isfinite(problem.menu.prices)
    found = []
    for one in problem.classes:
        count = one.count - left.get(one.index, 0)
        if count > 0:
            ask = problem.ask(one, len(one.levels) - 1)
            columns = np.flatnonzero(holding(problem, ask, problem.blurred) & finite)
            found.append(Demand(ask, float(count), columns, _lonely(ask)))
    return fluid(problem, found, seconds, standing=True) or fluid(problem, found, max(seconds, 1.0), True, _COARSE)


def whole(problem: Problem, left: dict[int, int]) -> float:
    """What the machine costs at least that some pod needs, of those that find no room on machines that are there."""
    most = 0.0
    for one in problem.classes:
        ask = problem.ask(one, len(one.levels) - 1)
        if one.count > left.get(one.index, 0) and not _room_there(problem, ask):
            prices = problem.menu.prices[holding(problem, ask, problem.blurred)]
            most = max(most, float(prices.min(initial=np.inf))) if np.isfinite(prices).any() else most
    return most


def _room_there(problem: Problem, ask: Ask) -> bool:
    room = ask.nodes.copy()
    for dim, amount in ask.steps:
        room &= problem.free[dim] >= amount
    return bool(room.any())


def holding(problem: Problem, ask: Ask, but: Set[int] = frozenset()) -> Bools:
    """The columns that hold a pod of the ask, by all dimensions `but` some."""
    ok = ask.columns.copy()
    for dim, amount in ask.steps:
        if dim not in but:
            ok &= problem.menu.capacity[dim] >= amount
    return ok


def _lonely(ask: Ask) -> tuple[tuple[int, int], ...]:
    return tuple(
        (cell.slot, 1) for cell in ask.ties.promised_hosts if cell.kind == ANTI and cell.group in ask.cls.members
    )


def sharing(ask: Ask) -> tuple[tuple[int, int], ...]:
    """The hostname rules that an ask has with its own kind: a cell, and how many of it may share a machine."""
    return tuple(
        (cell.slot, 1 if cell.kind == ANTI else cell.skew)
        for cell in ask.ties.host_owned
        if cell.kind in (ANTI, SPREAD) and cell.group in ask.cls.members
    )
