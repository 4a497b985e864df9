"""Whole pods: how much dearer a fluid must be because no machine holds a part of a pod.

A fluid proves its price by what pods are worth: nothing that a machine holds of it is worth more than the machine
costs. Whole pods on a machine may be worth less than that. If they are on every machine, all pods may be worth that
much more and still prove their price. It is worked out where pods are of few sizes and refuse nobody's company; many
sizes fill machines anyway.
"""

from __future__ import annotations

import highspy
import numpy as np

from dovetail.planner.columns import Floats, Table
from dovetail.planner.optimise.fluid import Fluid
from dovetail.planner.problem import Problem

#: More sizes of pods than this are not looked at.
_SIZES = 16
#: Branches of one question: a limit on work, not on time.
_BRANCHES = 200
_SAFETY = 1e-6


def stretched(problem: Problem, fluid: Fluid) -> Fluid:
    """The fluid with all pods worth as much more as whole machines allow."""
    asks = [flow.demand.ask for flow in fluid.flows]
    sizes = {ask.request.tobytes() for ask in asks}
    lonely = any(flow.demand.caps for flow in fluid.flows)
    if not fluid.slack or lonely or problem.blurred or len(sizes) > _SIZES:
        return fluid
    counts = np.array([flow.demand.count for flow in fluid.flows])
    requests = np.array([ask.request for ask in asks], dtype=np.float64)
    worth, menu = fluid.worth / counts, problem.menu
    room = np.minimum(menu.capacity[:, list(fluid.slack)].T, counts @ requests)
    held = (fluid.rates * room).sum(axis=1)
    most = {column: float(menu.prices[column]) / max(float(value), 1e-12)
            for column, value in zip(fluid.slack, held, strict=True)}  # fmt: skip
    factor = np.inf
    for column in sorted(most, key=lambda each: (most[each], each)):
        if most[column] >= factor:
            break
        here = [at for at, flow in enumerate(fluid.flows) if column in flow.demand.columns]
        best = _most(worth[here], requests[here], counts[here], menu.capacity[:, column].astype(np.float64))
        if best > 0:
            factor = min(factor, float(menu.prices[column]) / best)
        if factor <= 1.0:
            return fluid
    by = factor * (1 - _SAFETY) if np.isfinite(factor) else 1.0
    return fluid.scaled(max(1.0, by))


def _most(worth: Floats, requests: Table, counts: Floats, capacity: Floats) -> float:
    """What whole pods are worth at most that a machine holds."""
    if not worth.any():
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(requests > 0, np.floor(capacity / requests), np.inf).min(axis=1)
    fits = np.minimum(alone, counts)
    if len(worth) == 1:
        return float(worth[0] * fits[0])
    return _programme(worth, requests, fits, capacity)


def _programme(worth: Floats, requests: Table, fits: Floats, capacity: Floats) -> float:
    wide = len(worth)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", _BRANCHES)):
        solver.setOptionValue(option, value)
    index = np.arange(wide, dtype=np.int32)
    solver.addVars(wide, np.zeros(wide), fits)
    solver.changeColsCost(wide, index, -worth / worth.max())
    solver.changeColsIntegrality(wide, index, np.full(wide, highspy.HighsVarType.kInteger))
    for asked, most in zip(requests.T, capacity, strict=True):
        if asked.any():
            solver.addRow(-highspy.kHighsInf, 1.0, wide, index, asked / max(most, 1.0))
    solver.run()
    bound = -float(solver.getInfo().mip_dual_bound)
    return bound * float(worth.max()) if np.isfinite(bound) else np.inf
