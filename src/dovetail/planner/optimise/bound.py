"""The lower bound: what the pods would cost if they were fluid.

Pods may be cut into pieces and spread over fractions of machines, each class only over columns it may stand on.
Zones, hostname rules, spreads, affinities and limits are not looked at, machines that are there are free as far as
they reach. Whatever a real plan costs, it cannot cost less.
"""

from __future__ import annotations

import highspy
import numpy as np

from dovetail.planner.problem import Problem

WORDS = (
    "pods may be cut into pieces and machines bought in fractions; spreads, affinities, hostname rules, limits and "
    "minimum flexibility are left out"
)
#: More cells than this and the bound is not worth its time here.
_LARGEST = 400_000
_SAFETY = 1e-7


def lower_bound(problem: Problem, left: dict[int, int], seconds: float) -> float | None:
    """The fluid bound for the pods that a plan places (`left` has none), or None where there was no time."""
    menu = problem.menu
    demands: dict[tuple[bytes, bytes], tuple[np.ndarray, np.ndarray, np.ndarray | None]] = {}
    for one in problem.classes:
        count = one.count - left.get(one.index, 0)
        if count <= 0:
            continue
        ask = problem.ask(one, len(one.levels) - 1)
        key = (ask.columns.tobytes(), ask.nodes.tobytes())
        if key in demands:
            demands[key][0][:] += ask.request * float(count)
        else:
            demands[key] = (ask.request * float(count), ask.columns, ask.nodes if len(ask.nodes) else None)
    if not demands:
        return 0.0
    if menu.size * len(demands) * len(problem.dims) > _LARGEST:
        return None
    return _solve(problem, list(demands.values()), seconds)


def _solve(problem: Problem, demands: list, seconds: float) -> float | None:  # type: ignore[type-arg]
    """Amounts x[g, t, r] of resource r of group g on column t; y[t] machines; free capacity of nodes costs nothing."""
    menu = problem.menu
    names = [dim for dim, name in enumerate(problem.dims) if not name.startswith("port:")]
    used = [dim for dim in names if any(demand[0][dim] > 0 for demand in demands)]
    columns = np.flatnonzero(np.isfinite(menu.prices) & np.any([demand[1] for demand in demands], axis=0))
    free = _free(problem, demands, used)
    lp = highspy.Highs()
    lp.setOptionValue("output_flag", False)
    lp.setOptionValue("time_limit", max(0.05, seconds))
    lp.setOptionValue("threads", 1)
    infinity = highspy.kHighsInf
    scale = {dim: max(float(demand[0][dim]) for demand in demands) or 1.0 for dim in used}
    for at in columns:
        lp.addVar(0.0, infinity)
        lp.changeColCost(lp.getNumCol() - 1, float(menu.prices[at]))
    capacity_rows: dict[tuple[int, int], tuple[list[int], list[float]]] = {
        (place, dim): ([place], [-float(max(0, menu.capacity[dim, at])) / scale[dim]])
        for place, at in enumerate(columns)
        for dim in used
    }
    number = len(columns)
    for group, (demand, allowed, _) in enumerate(demands):
        for dim in used:
            if demand[dim] <= 0:
                continue
            serving: list[int] = []
            for place, at in enumerate(columns):
                if allowed[at] and menu.capacity[dim, at] > 0:
                    lp.addVar(0.0, infinity)
                    capacity_rows[place, dim][0].append(number)
                    capacity_rows[place, dim][1].append(1.0)
                    serving.append(number)
                    number += 1
            needed = max(0.0, (float(demand[dim]) - free[group][dim]) / scale[dim])
            lp.addRow(needed, infinity, len(serving), np.array(serving, dtype=np.int32), np.ones(len(serving)))
    for indices, values in capacity_rows.values():
        if len(indices) > 1:
            lp.addRow(-infinity, 0.0, len(indices), np.array(indices, dtype=np.int32), np.array(values))
    lp.run()
    if lp.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return max(0.0, float(lp.getInfo().objective_function_value) * (1 - _SAFETY))


def _free(problem: Problem, demands: list, used: list[int]) -> list[dict[int, float]]:  # type: ignore[type-arg]
    """What each group could take of machines that are there, generously: every group may take all of it."""
    found = []
    for _, _, nodes in demands:
        room: dict[int, float] = dict.fromkeys(used, 0.0)
        if nodes is not None:
            for dim in used:
                room[dim] = float(np.maximum(problem.free[dim][nodes], 0).sum())
        found.append(room)
    return found
