"""The lower bound: what the pods would cost if they were fluid.

Pods may be cut into pieces and machines bought in fractions, each class only on columns it may stand on, and never
more pods that refuse each other's company than machines. Spreads, affinities and limits are not looked at; machines
that are there are free as far as they reach. Whatever a real plan costs, it cannot cost less.

Nor can it cost less than whole machines for the whole pods of one class alone, which is exact where there is one.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np

from dovetail.planner.asks import Ask
from dovetail.planner.columns import Bools, Floats, Ints
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.optimise.fluid import Demand, Fluid, fluid
from dovetail.planner.optimise.wholes import stretched
from dovetail.planner.problem import UNLIMITED, Problem

WORDS = (
    "machines may be bought in fractions, and pods of many sizes cut into pieces, but at least the whole machines "
    "that pods of any one kind need; spreads, affinities, limits, reservations and minimum flexibility are left out"
)
#: So many shares the relaxation has at most; so many where there is no time for more.
_FINE, _COARSE = 8_000, 2_000
#: So many classes are asked what whole machines for them cost, those that need most; and up to so many pods of one.
_ASKED, _COUNTED = 8, 5000


def proven(problem: Problem, left: dict[int, int], seconds: float) -> float | None:
    """What no plan costs less than that leaves out the same pods; None where time is short."""
    fluid = relaxed(problem, left, seconds)
    return None if fluid is None else max(fluid.price, whole(problem, left))


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
    poured = fluid(problem, found, seconds, True, _FINE, proven=True)
    poured = poured or fluid(problem, found, max(seconds, 1.0), True, _COARSE, proven=True)
    return None if poured is None else stretched(problem, poured)


def whole(problem: Problem, left: dict[int, int]) -> float:
    """What machines cost at least for pods of one class, of those that find no room on machines that are there."""
    finite = np.isfinite(problem.menu.prices)
    needs: list[tuple[float, int, Ints, Floats]] = []
    for one in problem.classes:
        ask = problem.ask(one, len(one.levels) - 1)
        there = int(_fitting(problem, ask, problem.free)[ask.nodes].sum())
        count, columns = one.count - left.get(one.index, 0) - there, ask.columns & finite
        if count > 0 and columns.any():
            fits, prices = _fitting(problem, ask, problem.menu.capacity)[columns], problem.menu.prices[columns]
            if fits.any():
                rate = float((prices[fits > 0] / fits[fits > 0]).min())
                needs.append((count * rate, count, fits, prices))
    needs.sort(key=lambda each: -each[0])
    return max((_cover(count, fits, prices) for _, count, fits, prices in needs[:_ASKED]), default=0.0)


def _fitting(problem: Problem, ask: Ask, room: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Ints:
    """How many pods of an ask each machine holds at most by itself, with so much room in every dimension."""
    found: Ints = np.full(room.shape[1], 1 if _lonely(ask) else UNLIMITED, dtype=np.int64)
    for dim, amount in ask.steps:
        if dim not in problem.blurred:
            np.minimum(found, np.maximum(room[dim], 0) // amount, out=found)
    return found


def _cover(count: int, fits: Ints, prices: Floats) -> float:
    """The least that machines for so many pods cost, where each holds so many at its price."""
    cheapest: dict[int, float] = {}
    for most, price in zip(np.minimum(fits, count).tolist(), prices.tolist(), strict=True):
        if most > 0:
            cheapest[most] = min(price, cheapest.get(most, np.inf))
    if count > _COUNTED:
        return count * min(price / most for most, price in cheapest.items())
    least = [0.0] * (count + 1)
    for pods in range(1, count + 1):
        least[pods] = min([price + least[max(0, pods - most)] for most, price in cheapest.items()])
    return least[count]


def holding(problem: Problem, ask: Ask, but: Set[int] = frozenset()) -> Bools:
    """The columns that hold a pod of the ask, by all dimensions `but` some."""
    ok = ask.columns.copy()
    for dim, amount in ask.steps:
        if dim not in but:
            ok &= problem.menu.capacity[dim] >= amount
    for dim, more in problem.sharing.amounts(ask.shared):
        if dim not in but:
            ok &= problem.menu.capacity[dim] >= ask.request[dim] + more
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
