"""The lower bound: what the pods would cost if they were fluid, and how the fluid would flow.

Pods may be cut into pieces and machines bought in fractions, each class only on columns it may stand on. Spreads,
affinities, hostname rules and limits are not looked at; machines that are there are free as far as they reach.
Whatever a real plan costs, it cannot cost less.
"""

from __future__ import annotations

import highspy
import msgspec
import numpy as np

from dovetail.planner.columns import Floats, Ints
from dovetail.planner.menu import frontier
from dovetail.planner.problem import Ask, Problem

WORDS = (
    "pods may be cut into pieces and machines bought in fractions; spreads, affinities, hostname rules, limits, "
    "reservations and minimum flexibility are left out"
)
#: More shares than this and classes are poured together first.
_LARGEST = 12_000
#: The solver's answer is trusted to this relative precision.
_SAFETY = 1e-6


class Fluid(msgspec.Struct):
    """`price` is proven. `flows` says how many pods of each class would stand on each column."""

    price: float
    flows: list[tuple[Ask, dict[int, float]]]


class _Demand(msgspec.Struct):
    """What some classes want together; `members` are they, with their counts."""

    members: list[tuple[Ask, float]]
    request: Floats
    columns: Ints


def relaxed(problem: Problem, left: dict[int, int], seconds: float) -> Fluid | None:
    """The relaxation for the pods that a plan places (`left` has none), or None where there was no time."""
    demands = _demands(problem, left)
    if not demands:
        return Fluid(0.0, [])
    _leave_out_dominated(problem, demands)
    for fineness in (4.0, 2.0, 1.0, 0.0):
        if sum(len(each.columns) for each in demands) <= _LARGEST:
            break
        demands = _poured(demands, fineness)
    return _solve(problem, demands, seconds)


def _demands(problem: Problem, left: dict[int, int]) -> list[_Demand]:
    finite = np.isfinite(problem.menu.prices)
    found = []
    for one in problem.classes:
        count = one.count - left.get(one.index, 0)
        if count > 0:
            ask = problem.ask(one, len(one.levels) - 1)
            columns = np.flatnonzero(ask.columns & finite)
            total = np.asarray(ask.request * float(count), dtype=np.float64)
            found.append(_Demand([(ask, float(count))], total, columns))
    return found


def _leave_out_dominated(problem: Problem, demands: list[_Demand]) -> None:
    """Of columns that every demand sees alike, those that a cheaper one equals or exceeds cannot matter here."""
    menu = problem.menu
    seen = {each.columns.tobytes(): each.columns for each in demands}
    admitted = np.zeros((len(seen), menu.size), dtype=np.bool_)
    for row, columns in enumerate(seen.values()):
        admitted[row, columns] = True
    _, family = np.unique(np.packbits(admitted, axis=0), axis=1, return_inverse=True)
    kept = np.zeros(menu.size, dtype=np.bool_)
    for each in np.unique(family):
        kept[frontier(np.flatnonzero(family.ravel() == each), menu.capacity)] = True
    narrowed = {key: columns[kept[columns]] for key, columns in seen.items()}
    for demand in demands:
        demand.columns = narrowed[demand.columns.tobytes()]


def _poured(demands: list[_Demand], fineness: float) -> list[_Demand]:
    """Classes with the same columns and about the same proportions as one: the bound can only fall by it."""
    cells: dict[object, _Demand] = {}
    for each in demands:
        share = np.log2(np.maximum(each.request, 1.0) / max(1.0, float(each.request.max())))
        key = (each.columns.tobytes(), np.round(share * fineness).tobytes())
        known = cells.get(key)
        if known is None:
            cells[key] = _Demand(list(each.members), each.request.copy(), each.columns)
        else:
            known.members += each.members
            known.request = known.request + each.request
    return list(cells.values())


def _solve(problem: Problem, demands: list[_Demand], seconds: float) -> Fluid | None:
    """Shares x of demand d on column t, machines y of column t: least price with every demand served."""
    menu = problem.menu
    dims = [d for d, name in enumerate(problem.dims) if any(each.request[d] > 0 for each in demands)]
    used = np.unique(np.concatenate([each.columns for each in demands])) if demands else np.zeros(0, dtype=np.int64)
    place = {int(at): number for number, at in enumerate(used)}
    free = np.maximum(problem.free[dims], 0).sum(axis=1).astype(np.float64)
    has_free = bool(len(problem.nodes))
    total = sum((each.request for each in demands), np.zeros(len(problem.dims)))
    starts: list[int] = []
    indices: list[int] = []
    values: list[float] = []
    costs = [float(menu.prices[at]) for at in used]
    rows = len(dims)
    for at in used:
        starts.append(len(indices))
        for number, dim in enumerate(dims):
            indices.append(place[int(at)] * rows + number)
            values.append(-float(max(0, menu.capacity[dim, at])) / total[dim])
    base, spare = len(used) * rows, len(used) * rows
    base += rows if has_free else 0
    for number, each in enumerate(demands):
        targets = [place[int(at)] * rows for at in each.columns] + ([spare] if has_free else [])
        for first in targets:
            starts.append(len(indices))
            costs.append(0.0)
            for offset, dim in enumerate(dims):
                if each.request[dim] > 0:
                    indices.append(first + offset)
                    values.append(float(each.request[dim]) / total[dim])
            indices.append(base + number)
            values.append(1.0)
    spares = [float(room) / total[dim] for room, dim in zip(free, dims, strict=True)] if has_free else []
    upper = [0.0] * (len(used) * rows) + spares
    solved = _highs(costs, starts, indices, values, upper, len(demands), seconds)
    if solved is None:
        return None
    price, shares = solved
    return Fluid(price, _flows(demands, shares[len(used) :], has_free))


def _flows(demands: list[_Demand], shares: Floats, has_free: bool) -> list[tuple[Ask, dict[int, float]]]:
    found, at = [], 0
    for each in demands:
        mine = shares[at : at + len(each.columns)]
        chosen = np.flatnonzero(mine > 1e-7)
        for ask, count in each.members:
            found.append((ask, {int(each.columns[n]): float(mine[n]) * count for n in chosen}))
        at += len(each.columns) + has_free
    return found


def _highs(
    costs: list[float], starts: list[int], indices: list[int], values: list[float], upper: list[float], served: int,
    seconds: float,
) -> tuple[float, Floats] | None:  # fmt: skip
    infinity = highspy.kHighsInf
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(costs), len(upper) + served
    model.col_cost_ = np.array(costs)
    model.col_lower_ = np.zeros(len(costs))
    model.col_upper_ = np.full(len(costs), infinity)
    model.row_lower_ = np.array([-infinity] * len(upper) + [1.0] * served)
    model.row_upper_ = np.array([*upper, *([infinity] * served)])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.array([*starts, len(indices)], dtype=np.int32)
    model.a_matrix_.index_ = np.array(indices, dtype=np.int32)
    model.a_matrix_.value_ = np.array(values)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", max(0.05, seconds))
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    price = float(solver.getInfo().objective_function_value)
    return max(0.0, price * (1 - _SAFETY) - 1e-9), np.array(solver.getSolution().col_value)
