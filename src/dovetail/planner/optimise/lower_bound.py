"""The lower bound: a cost that no plan can be below. It is the largest of three bounds.

1. The LP relaxation: pods and nodes are divisible, each class uses only offerings that it accepts, and of pods with a
   hostname anti-affinity to each other there are at most as many as nodes. Spreads over domains, affinities and limits
   are ignored, and existing nodes cost nothing.
2. The cost of integer nodes for the pods of one class alone, which is exact where there is one class.
3. The LP relaxation with raised dual prices. Dual prices prove the LP's cost if the pods that a node holds are never
   worth more than the node costs. Integer pods on a node may be worth less than the node; if that is so for every
   offering, all dual prices can be raised until the first offering is reached. This is computed for few pod sizes
   without hostname anti-affinity; many sizes fill nodes almost completely anyway.
"""

from __future__ import annotations

from collections.abc import Set

import highspy
import numpy as np

from dovetail.language import source
from dovetail.planner.offerings.catalog import Bools, Floats, Ints, Table
from dovetail.planner.optimise.relaxation import Demand, Relaxation, relaxation
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_groups import ANTI, SPREAD

WORDS = source(
    "nodes may be launched in fractions, and pods of many sizes split, but at least the "
    "whole nodes that pods of any one kind need; spreads, affinities, limits, reservations "
    "and minimum flexibility are left out"
)
#: The largest number of LP variables (demand × offering), and the number where time is short.
_FINE, _COARSE = 8_000, 2_000
#: Integer nodes are computed for this many classes, those with the highest cost, and exactly up to this many pods.
_MAX_INTEGER_CLASSES, _MAX_EXACT_PODS = 8, 5000


def proven(problem: Problem, left: dict[int, int], seconds: float) -> float | None:
    """The lower bound, in $/h, of plans with the same unplaced pods; None where time is short."""
    relaxation = relaxed(problem, left, seconds)
    return None if relaxation is None else max(relaxation.price, whole(problem, left))


def relaxed(problem: Problem, left: dict[int, int], seconds: float) -> Relaxation | None:
    """The LP relaxation for the pods that a plan places (all but `left`): coarser, or None, where time is short."""
    finite = np.isfinite(problem.frontier.prices)
    demands = []
    for pod_class in problem.classes:
        count = pod_class.count - left.get(pod_class.index, 0)
        if count > 0:
            request = problem.request(pod_class, len(pod_class.levels) - 1)
            offerings = np.flatnonzero(holding(problem, request, problem.shared_dims) & finite)
            demands.append(Demand(request, float(count), offerings, _one_per_node(request)))
    solution = relaxation(problem, demands, seconds, True, _FINE, proven=True)
    solution = solution or relaxation(problem, demands, max(seconds, 1.0), True, _COARSE, proven=True)
    return None if solution is None else stretched(problem, solution)


def whole(problem: Problem, left: dict[int, int]) -> float:
    """The least cost of integer nodes for a class's pods that existing nodes cannot hold; maximum over classes."""
    finite = np.isfinite(problem.frontier.prices)
    needs: list[tuple[float, int, Ints, Floats]] = []
    for pod_class in problem.classes:
        request = problem.request(pod_class, len(pod_class.levels) - 1)
        there = int(_fitting(problem, request, problem.free)[request.nodes].sum())
        count, offerings = pod_class.count - left.get(pod_class.index, 0) - there, request.offerings & finite
        if count > 0 and offerings.any():
            fits, prices = (
                _fitting(problem, request, problem.frontier.capacity)[offerings],
                problem.frontier.prices[offerings],
            )
            if fits.any():
                rate = float((prices[fits > 0] / fits[fits > 0]).min())
                needs.append((count * rate, count, fits, prices))
    needs.sort(key=lambda need: -need[0])
    return max((_cover(count, fits, prices) for _, count, fits, prices in needs[:_MAX_INTEGER_CLASSES]), default=0.0)


def _fitting(
    problem: Problem, request: PlacementRequest, room: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> Ints:
    """The number of pods of a request that each node (a column of `room`) holds without other pods."""
    full: Ints = np.full(room.shape[1], 1 if _one_per_node(request) else UNLIMITED, dtype=np.int64)
    for dim, amount in request.steps:
        if dim not in problem.shared_dims:
            np.minimum(full, np.maximum(room[dim], 0) // amount, out=full)
    return full


def _cover(count: int, fits: Ints, prices: Floats) -> float:
    """The least cost of nodes for `count` pods, where a node of an offering holds `fits` pods at its price."""
    cheapest: dict[int, float] = {}
    for most, price in zip(np.minimum(fits, count).tolist(), prices.tolist(), strict=True):
        if most > 0:
            cheapest[most] = min(price, cheapest.get(most, np.inf))
    if count > _MAX_EXACT_PODS:
        return count * min(price / most for most, price in cheapest.items())
    least = [0.0] * (count + 1)
    for pods in range(1, count + 1):
        least[pods] = min([price + least[max(0, pods - most)] for most, price in cheapest.items()])
    return least[count]


def holding(problem: Problem, request: PlacementRequest, but: Set[int] = frozenset()) -> Bools:
    """The offerings that hold a pod of the request, ignoring the dimensions `but`."""
    ok = request.offerings.copy()
    for dim, amount in request.steps:
        if dim not in but:
            ok &= problem.frontier.capacity[dim] >= amount
    for dim, more in problem.sharing.amounts(request.shared):
        if dim not in but:
            ok &= problem.frontier.capacity[dim] >= request.amounts[dim] + more
    return ok


def _one_per_node(request: PlacementRequest) -> tuple[tuple[int, int], ...]:
    return tuple(
        (counter.slot, 1)
        for counter in request.topology.inverse_hosts
        if counter.kind == ANTI and counter.group in request.cls.members
    )


def sharing(request: PlacementRequest) -> tuple[tuple[int, int], ...]:
    """The hostname rules of a request about its own kind: slot of the topology counter, and pods allowed per node."""
    return tuple(
        (counter.slot, 1 if counter.kind == ANTI else counter.skew)
        for counter in request.topology.host_owned
        if counter.kind in (ANTI, SPREAD) and counter.group in request.cls.members
    )


#: Dual prices are raised only for up to this many pod sizes.
_MAX_POD_SIZES = 16
#: Branch-and-bound nodes of one knapsack: a bound on work, not on time.
_MAX_BRANCHES = 200
#: Relative tolerance of the solver's answers.
_TOLERANCE = 1e-6


def stretched(problem: Problem, relaxation: Relaxation) -> Relaxation:
    """The LP relaxation with all dual prices raised as far as integer pods on every offering allow."""
    placement_requests = [flow.demand.request for flow in relaxation.flows]
    sizes = {request.amounts.tobytes() for request in placement_requests}
    one_per_node = any(flow.demand.caps for flow in relaxation.flows)
    if not relaxation.slack or one_per_node or problem.shared_dims or len(sizes) > _MAX_POD_SIZES:
        return relaxation
    counts = np.array([flow.demand.count for flow in relaxation.flows])
    requests = np.array([request.amounts for request in placement_requests], dtype=np.float64)
    worth, frontier = relaxation.worth / counts, problem.frontier
    room = np.minimum(frontier.capacity[:, list(relaxation.slack)].T, counts @ requests)
    held = (relaxation.rates * room).sum(axis=1)
    most = {
        offering: float(frontier.prices[offering]) / max(float(value), 1e-12)
        for offering, value in zip(relaxation.slack, held, strict=True)
    }
    factor = np.inf
    for offering in sorted(most, key=lambda offering_: (most[offering_], offering_)):
        if most[offering] >= factor:
            break
        here = [index for index, flow in enumerate(relaxation.flows) if offering in flow.demand.offerings]
        best = _most_valuable_fill(
            worth[here], requests[here], counts[here], frontier.capacity[:, offering].astype(np.float64)
        )
        if best > 0:
            factor = min(factor, float(frontier.prices[offering]) / best)
        if factor <= 1.0:
            return relaxation
    by = factor * (1 - _TOLERANCE) if np.isfinite(factor) else 1.0
    return relaxation.scaled(max(1.0, by))


def _most_valuable_fill(worth: Floats, requests: Table, counts: Floats, capacity: Floats) -> float:
    """The largest total dual price of integer pods that a node holds."""
    if not worth.any():
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(requests > 0, np.floor(capacity / requests), np.inf).min(axis=1)
    fits = np.minimum(alone, counts)
    if len(worth) == 1:
        return float(worth[0] * fits[0])
    return _knapsack(worth, requests, fits, capacity)


def _knapsack(worth: Floats, requests: Table, fits: Floats, capacity: Floats) -> float:
    wide = len(worth)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("mip_max_nodes", _MAX_BRANCHES)):
        solver.setOptionValue(option, value)
    index = np.arange(wide, dtype=np.int32)
    solver.addVars(wide, np.zeros(wide), fits)
    solver.changeColsCost(wide, index, -worth / worth.max())
    solver.changeColsIntegrality(wide, index, np.full(wide, highspy.HighsVarType.kInteger))
    for requested, most in zip(requests.T, capacity, strict=True):
        if requested.any():
            solver.addRow(-highspy.kHighsInf, 1.0, wide, index, requested / max(most, 1.0))
    solver.run()
    bound = -float(solver.getInfo().mip_dual_bound)
    return bound * float(worth.max()) if np.isfinite(bound) else np.inf
