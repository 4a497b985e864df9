"""The lower bound: what the pods would cost if they were LP relaxation.

Pods may be cut into pieces and nodes launched in fractions, each class only on offerings it may stand on, and never
more pods that refuse each other's co-located pods than nodes. Spreads, affinities and limits are not looked at; nodes
that are there are free as far as they reach. Whatever a real plan costs, it cannot cost less.

Nor can it cost less than whole nodes for the whole pods of one class alone, which is exact where there is one.

Whole pods: how much dearer an LP relaxation must be because no node holds a part of a pod.

An LP relaxation proves its price by what pods are worth: nothing that a node holds of it is worth more than the node
costs. Whole pods on a node may be worth less than that. If they are on every node, all pods may be worth that
much more and still prove their price. It is worked out where pods are of few sizes and refuse no pod's co-located
pods; many
sizes fill nodes anyway.
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
#: So many shares the relaxation has at most; so many where there is no time for more.
_FINE, _COARSE = 8_000, 2_000
#: So many classes are asked what whole nodes for them cost, those that need most; and up to so many pods of one.
_ASKED, _COUNTED = 8, 5000


def proven(problem: Problem, left: dict[int, int], seconds: float) -> float | None:
    """What no plan costs less than that leaves out the same pods; None where time is short."""
    relaxation = relaxed(problem, left, seconds)
    return None if relaxation is None else max(relaxation.price, whole(problem, left))


def relaxed(problem: Problem, left: dict[int, int], seconds: float) -> Relaxation | None:
    """The relaxation for the pods that a plan places (`left` has none): a coarser one, or None, where time is short."""
    finite = np.isfinite(problem.frontier.prices)
    demands = []
    for pod_class in problem.classes:
        count = pod_class.count - left.get(pod_class.index, 0)
        if count > 0:
            request = problem.request(pod_class, len(pod_class.levels) - 1)
            offerings = np.flatnonzero(holding(problem, request, problem.blurred) & finite)
            demands.append(Demand(request, float(count), offerings, _one_per_node(request)))
    along_relaxation = relaxation(problem, demands, seconds, True, _FINE, proven=True)
    along_relaxation = along_relaxation or relaxation(problem, demands, max(seconds, 1.0), True, _COARSE, proven=True)
    return None if along_relaxation is None else stretched(problem, along_relaxation)


def whole(problem: Problem, left: dict[int, int]) -> float:
    """What nodes cost at least for pods of one class, of those that find no room on existing nodes."""
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
    return max((_cover(count, fits, prices) for _, count, fits, prices in needs[:_ASKED]), default=0.0)


def _fitting(
    problem: Problem, request: PlacementRequest, room: np.ndarray[tuple[int, int], np.dtype[np.int64]]
) -> Ints:
    """How many pods of a request each node holds at most by itself, with so much room in every dimension."""
    full: Ints = np.full(room.shape[1], 1 if _one_per_node(request) else UNLIMITED, dtype=np.int64)
    for dim, amount in request.steps:
        if dim not in problem.blurred:
            np.minimum(full, np.maximum(room[dim], 0) // amount, out=full)
    return full


def _cover(count: int, fits: Ints, prices: Floats) -> float:
    """The least that nodes for so many pods cost, where each holds so many at its price."""
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


def holding(problem: Problem, request: PlacementRequest, but: Set[int] = frozenset()) -> Bools:
    """The offerings that hold a pod of the request, by all dimensions `but` some."""
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
    """The hostname rules that a request has with its own kind: a topology counter, and how many of it may share a
    node.
    """
    return tuple(
        (counter.slot, 1 if counter.kind == ANTI else counter.skew)
        for counter in request.topology.host_owned
        if counter.kind in (ANTI, SPREAD) and counter.group in request.cls.members
    )


#: More sizes of pods than this are not looked at.
_SIZES = 16
#: Branches of one question: a limit on work, not on time.
_BRANCHES = 200
_SAFETY = 1e-6


def stretched(problem: Problem, relaxation: Relaxation) -> Relaxation:
    """The LP relaxation with all pods worth as much more as whole nodes allow."""
    placement_requests = [flow.demand.request for flow in relaxation.flows]
    sizes = {request.amounts.tobytes() for request in placement_requests}
    one_per_node = any(flow.demand.caps for flow in relaxation.flows)
    if not relaxation.slack or one_per_node or problem.blurred or len(sizes) > _SIZES:
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
        best = _most(worth[here], requests[here], counts[here], frontier.capacity[:, offering].astype(np.float64))
        if best > 0:
            factor = min(factor, float(frontier.prices[offering]) / best)
        if factor <= 1.0:
            return relaxation
    by = factor * (1 - _SAFETY) if np.isfinite(factor) else 1.0
    return relaxation.scaled(max(1.0, by))


def _most(worth: Floats, requests: Table, counts: Floats, capacity: Floats) -> float:
    """What whole pods are worth at most that a node holds."""
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
