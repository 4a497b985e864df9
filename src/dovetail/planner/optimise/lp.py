"""Linear programmes, built from arrays and solved by HiGHS on one thread."""

from __future__ import annotations

import highspy
import msgspec
import numpy as np

from dovetail.planner.offerings.catalog import Floats, Ints

_INFINITY = highspy.kHighsInf


class LpSolution(msgspec.Struct):
    """A solution: objective value, values and reduced costs of the columns, dual values of the rows."""

    price: float
    values: Floats
    reduced: Floats
    duals: Floats


class LinearProgram:
    """A linear programme in the making. Rows and columns are numbered in order; every column is at least zero."""

    def __init__(self) -> None:
        self._lower: list[Floats] = []
        self._upper: list[Floats] = []
        self._costs: list[Floats] = []
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._height = self._width = 0

    def rows(self, count: int, lower: float = -_INFINITY, upper: float | Floats = _INFINITY) -> Ints:
        self._lower.append(np.full(count, lower))
        self._upper.append(np.broadcast_to(np.asarray(upper, dtype=np.float64), (count,)))
        self._height += count
        return np.arange(self._height - count, self._height)

    def columns(self, costs: Floats) -> Ints:
        self._costs.append(costs)
        self._width += len(costs)
        return np.arange(self._width - len(costs), self._width)

    def entries(self, rows: Ints, columns: Ints, values: Floats) -> None:
        self._entries.append((rows, columns, values))

    def compiled(self) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = self._width, self._height
        model.col_cost_ = np.concatenate(self._costs)
        model.col_lower_ = np.zeros(self._width)
        model.col_upper_ = np.full(self._width, _INFINITY)
        model.row_lower_, model.row_upper_ = np.concatenate(self._lower), np.concatenate(self._upper)
        rows, columns, values = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        nonzero = values != 0.0
        rows, columns, values = rows[nonzero], columns[nonzero], values[nonzero]
        order = np.lexsort((rows, columns))
        starts = np.zeros(self._width + 1, dtype=np.int32)
        np.cumsum(np.bincount(columns, minlength=self._width), out=starts[1:])
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = starts
        model.a_matrix_.index_ = rows[order].astype(np.int32)
        model.a_matrix_.value_ = values[order]
        return model


def minimise_integers(model: LinearProgram, seconds: float, max_branches: int, gap: float) -> Ints | None:
    """The best solution in integers within a number of branch-and-bound nodes and `seconds`; None if none is found."""
    solver = highspy.Highs()
    programme = model.compiled()
    programme.integrality_ = [highspy.HighsVarType.kInteger] * programme.num_col_
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("time_limit", max(0.05, seconds)),
        ("mip_max_nodes", max_branches),
        ("mip_rel_gap", gap),
    ):
        solver.setOptionValue(option, value)
    solver.passModel(programme)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.round(np.array(solver.getSolution().col_value)).astype(np.int64)


def minimise(model: LinearProgram, seconds: float) -> LpSolution | None:
    """The optimal solution, or None if it was not found in `seconds`."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("time_limit", max(0.05, seconds))
    solver.setOptionValue("threads", 1)
    solver.passModel(model.compiled())
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = solver.getSolution()
    return LpSolution(
        float(solver.getInfo().objective_function_value),
        np.array(solution.col_value),
        np.array(solution.col_dual),
        np.array(solution.row_dual),
    )
