"""The lower bound: what the pods would cost if they were fluid, and how the fluid would flow.

Pods may be cut into pieces and machines bought in fractions, each class only on columns it may stand on, and never
more pods that refuse each other's company than machines. Spreads, affinities and limits are not looked at; machines
that are there are free as far as they reach. Whatever a real plan costs, it cannot cost less.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from dovetail.planner.asks import Ask
from dovetail.planner.columns import Bools, Floats, Ints
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.menu import frontier
from dovetail.planner.optimise.linear import Model, minimise
from dovetail.planner.problem import Problem

WORDS = (
    "pods may be cut into pieces and machines bought in fractions; spreads, affinities, limits, reservations and "
    "minimum flexibility are left out"
)
#: More shares than this and classes are poured together first; it hardly ever costs the bound anything.
_LARGEST, _COARSE = 3000, 300
#: The solver's answer is trusted to this relative precision.
_SAFETY = 1e-6


class Flow(msgspec.Struct):
    """How many pods of one kind would stand on each column."""

    demand: Demand
    amounts: dict[int, float]


class Fluid(msgspec.Struct):
    """`price` is proven. `machines` has the fraction of each column bought, `slack` what columns cost too much."""

    price: float
    flows: list[Flow]
    machines: dict[int, float] = {}
    slack: dict[int, float] = {}


class Demand(msgspec.Struct, eq=False):
    """`count` pods of an ask, to stand on some columns. `caps` are rules on how many share a machine."""

    ask: Ask
    count: float
    columns: Ints
    caps: tuple[tuple[int, int], ...] = ()


class _Pool(msgspec.Struct):
    """Demands poured together."""

    members: list[Demand]
    request: Floats
    columns: Ints
    caps: tuple[tuple[int, int], ...]
    count: float


def relaxed(problem: Problem, left: dict[int, int], seconds: float) -> Fluid | None:
    """The relaxation for the pods that a plan places (`left` has none): a coarser one, or None, where time is short."""
    finite = np.isfinite(problem.menu.prices)
    found = []
    for one in problem.classes:
        count = one.count - left.get(one.index, 0)
        if count > 0:
            ask = problem.ask(one, len(one.levels) - 1)
            found.append(Demand(ask, float(count), np.flatnonzero(holding(problem, ask) & finite), _lonely(ask)))
    return fluid(problem, found, seconds, standing=True) or fluid(problem, found, max(seconds, 1.0), True, _COARSE)


def holding(problem: Problem, ask: Ask) -> Bools:
    """The columns that hold a pod of the ask."""
    ok = ask.columns.copy()
    for dim, amount in ask.steps:
        ok &= problem.menu.capacity[dim] >= amount
    return ok


def _lonely(ask: Ask) -> tuple[tuple[int, int], ...]:
    return tuple(
        (cell.slot, 1) for cell in ask.promised_hosts if cell.group.kind == ANTI and cell.group in ask.cls.members
    )


def sharing(ask: Ask) -> tuple[tuple[int, int], ...]:
    """The hostname rules that an ask has with its own kind: a cell, and how many of it may share a machine."""
    return tuple(
        (cell.slot, 1 if cell.group.kind == ANTI else cell.group.max_skew)
        for cell in ask.host_owned
        if cell.group.kind in (ANTI, SPREAD) and cell.group in ask.cls.members
    )


def fluid(
    problem: Problem, demands: list[Demand], seconds: float, standing: bool = False, largest: int = _LARGEST
) -> Fluid | None:
    """The least price at which demands flow onto columns; `standing`: also onto machines that are there."""
    if not demands:
        return Fluid(0.0, [])
    kept = _undominated(problem, demands)
    narrowed = {raw: columns[kept[columns]] for raw, columns in _distinct(demands).items()}
    shown = [narrowed[each.columns.tobytes()] for each in demands]
    totals = np.array([each.ask.request for each in demands], dtype=np.float64)
    totals *= np.array([[each.count] for each in demands])
    shares = np.log2(np.maximum(totals, 1.0) / np.maximum(totals.max(axis=1, keepdims=True), 1.0))
    pools: list[_Pool] = []
    for fineness in (None, 8.0, 4.0, 2.0, 1.0, 0.0):
        marks = range(len(demands)) if fineness is None else [row.tobytes() for row in np.round(shares * fineness)]
        keys = {(mark, columns.tobytes(), each.caps): len(columns)
                for mark, columns, each in zip(marks, shown, demands, strict=True)}  # fmt: skip
        if sum(keys.values()) <= largest or fineness == 0.0:
            pools = _poured(demands, shown, totals, marks)
            break
    return _solve(problem, pools, seconds, standing and bool(len(problem.nodes)))


def _distinct(demands: list[Demand]) -> dict[bytes, Ints]:
    return {each.columns.tobytes(): each.columns for each in demands}


def _undominated(problem: Problem, demands: list[Demand]) -> Bools:
    """Of columns that every demand sees alike, those that no cheaper one equals or exceeds; others cannot matter."""
    menu = problem.menu
    seen = _distinct(demands)
    admitted = np.zeros((len(seen), menu.size), dtype=np.bool_)
    for row, columns in enumerate(seen.values()):
        admitted[row, columns] = True
    _, family = np.unique(np.packbits(admitted, axis=0), axis=1, return_inverse=True)
    kept = np.zeros(menu.size, dtype=np.bool_)
    for each in np.unique(family):
        kept[frontier(np.flatnonzero(family.ravel() == each), menu.capacity)] = True
    return kept


def _poured(
    demands: list[Demand], shown: list[Ints], totals: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    marks: Sequence[object],
) -> list[_Pool]:  # fmt: skip
    """Demands with the same columns, rules and mark as one: the price can only fall."""
    pools: dict[object, _Pool] = {}
    for each, columns, total, mark in zip(demands, shown, totals, marks, strict=True):
        key = (mark, columns.tobytes(), each.caps)
        known = pools.get(key)
        if known is None:
            pools[key] = _Pool([each], total.copy(), columns, each.caps, each.count)
        else:
            known.members.append(each)
            known.request += total
            known.count += each.count
    return list(pools.values())


def _solve(problem: Problem, pools: list[_Pool], seconds: float, standing: bool) -> Fluid | None:
    """Shares x of pool p on column t, machines y of column t: least price with every pool served."""
    menu = problem.menu
    dims = [d for d in range(len(problem.dims)) if any(each.request[d] > 0 for each in pools)]
    used = np.unique(np.concatenate([each.columns for each in pools])).astype(np.int64)
    place = np.full(menu.size, -1, dtype=np.int64)
    place[used] = np.arange(len(used))
    total = np.sum([each.request for each in pools], axis=0)[dims]
    model = Model()
    room = np.maximum(menu.capacity[dims][:, used], 0).T / total
    rows = model.rows(len(used) * len(dims), upper=0.0).reshape(len(used), len(dims))
    bought = model.columns(menu.prices[used])
    model.entries(rows.ravel(), np.repeat(bought, len(dims)), -room.ravel())
    rules = {rule for each in pools for rule in each.caps}
    limits = {rule: model.rows(len(used), upper=0.0) for rule in sorted(rules)}
    for rule, at in limits.items():
        model.entries(at, bought, np.full(len(used), -float(rule[1])))
    spare = None
    if standing:
        spare = model.rows(len(dims), upper=np.maximum(problem.free[dims], 0).sum(axis=1) / total)
    shares = []
    for each in pools:
        served = model.rows(1, lower=1.0)
        width = len(each.columns)
        mine = model.columns(np.zeros(width + standing))
        shares.append(mine[:width])
        ask = each.request[dims] / total
        model.entries(rows[place[each.columns]].ravel(), np.repeat(mine[:width], len(dims)), np.tile(ask, width))
        if spare is not None:
            model.entries(spare, np.repeat(mine[width:], len(dims)), ask)
        for rule in each.caps:
            model.entries(limits[rule][place[each.columns]], mine[:width], np.full(width, each.count))
        model.entries(np.repeat(served, len(mine)), mine, np.ones(len(mine)))
    solved = minimise(model, seconds)
    if solved is None:
        return None
    machines = {int(at): float(n) for at, n in zip(used, solved.values[bought], strict=True) if n > 1e-9}
    slack = dict(zip(used.tolist(), solved.reduced[bought].tolist(), strict=True))
    flows = [_flow(one, each, solved.values[mine]) for each, mine in zip(pools, shares, strict=True)
             for one in each.members]  # fmt: skip
    return Fluid(max(0.0, solved.price * (1 - _SAFETY) - 1e-9), flows, machines, slack)


def _flow(one: Demand, pool: _Pool, shares: Floats) -> Flow:
    chosen = np.flatnonzero(shares > 1e-7)
    return Flow(one, {int(pool.columns[n]): float(shares[n]) * one.count for n in chosen})
