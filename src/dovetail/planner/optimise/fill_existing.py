"""Filling: existing nodes hold what suits the room they have left, by what pods are worth on the market.

Pods that look at no pod are taken up again, and every node that stands picks among them: the most worth for the
scarcest of what it has left. So none runs out of memory while CPU stands idle. Pods that are left over is launched for.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Floats, Ints
from dovetail.planner.optimise.lower_bound import holding
from dovetail.planner.optimise.relaxation import Demand, relaxation
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest

#: Of as many pods alike as fit, this part is taken before the next pick.
_PART = 4
#: What a pod is worth beside others if nothing on offer would hold it.
_PRECIOUS = 1e6


def filled(problem: Problem, start: Packing, largest: int) -> Packing | None:
    """The packing with existing nodes filled anew; None if a pod would lose their place by it."""
    state, loose = _loosened(problem, start.state)
    if not loose:
        return None
    placement_requests = list(loose)
    counts = np.array([loose[request] for request in placement_requests], dtype=np.int64)
    requests = np.array([request.amounts for request in placement_requests], dtype=np.int64)
    worth = _worth(problem, placement_requests, counts, largest)
    suits = np.array([request.nodes for request in placement_requests])
    there = state.free[:, : state.existing]
    roomy = (there / there.max(axis=1, initial=1, keepdims=True)).sum(axis=0)
    for node in np.argsort(-roomy, kind="stable").tolist():
        open_to = np.flatnonzero(suits[:, node] & (counts > 0))
        for place, take in _picked(state.free[:, node].copy(), requests[open_to], counts[open_to], worth[open_to]):
            number = int(open_to[place])
            state.put(placement_requests[number], node, take)
            counts[number] -= take
    return _add_to_new_claim(problem, start, state, placement_requests, counts)


def _picked(free: Ints, requests: Ints, counts: Ints, worth: Floats) -> list[tuple[int, int]]:
    """Which pods a node takes, and how many: each time those worth most for the largest share of its room."""
    picked = list[tuple[int, int]]()
    counts = counts.copy()
    while True:
        able = np.flatnonzero((counts > 0) & (requests <= free).all(axis=1))
        if not len(able):
            return picked
        shares = (requests[able] / np.maximum(free, 1)).max(axis=1)
        best = int(able[np.argmax(worth[able] / np.maximum(shares, 1e-9))])
        asked = requests[best] > 0
        most = min(int(counts[best]), int((free[asked] // requests[best][asked]).min(initial=1 << 40)))
        take = max(1, most // _PART)
        free = free - take * requests[best]
        counts[best] -= take
        picked.append((best, take))


def _worth(problem: Problem, placement_requests: list[PlacementRequest], counts: Ints, largest: int) -> Floats:
    """What a pod of each ask would cost on the market."""
    finite = np.isfinite(problem.frontier.prices)
    offered = {}
    for request, count in zip(placement_requests, counts.tolist(), strict=True):
        offerings = np.flatnonzero(holding(problem, request, problem.blurred) & finite)
        if len(offerings):
            offered[request] = Demand(request, float(count), offerings)
    context = relaxation(problem, list(offered.values()), 3600.0, largest=largest, proven=True)
    if context is None:
        return np.ones(len(placement_requests))
    worth_by_request = {
        flow.demand.request: float(worth) / flow.demand.count
        for flow, worth in zip(context.flows, context.worth, strict=True)
    }
    return np.array([worth_by_request.get(request, _PRECIOUS) for request in placement_requests])


def _loosened(problem: Problem, before: PackingState) -> tuple[PackingState, dict[PlacementRequest, int]]:
    """A packing state with those who are tied to others where they are, and the pods to be placed again."""
    state = PackingState(problem, before.run)
    loose: dict[PlacementRequest, int] = {}
    for index, contents in enumerate(before.contents):
        placement_requests = [(before.placement_requests[number], count) for number, count in contents.items()]
        tied = [placement_request for placement_request in placement_requests if _tied(placement_request[0])]
        stays = placement_requests if tied and index >= before.existing else tied
        if stays:
            place = index if index < before.existing else state.open(int(before.offering[index]))
            for request, count in stays:
                state.put(request, place, count)
        for request, count in placement_requests if not stays or index < before.existing else ():
            if not _tied(request):
                state.placement_requests[request.number] = request
                loose[request] = loose.get(request, 0) + count
    return state, loose


def _tied(request: PlacementRequest) -> bool:
    return bool(
        request.shared or request.topology.ruled or request.topology.domain_owned or request.topology.domain_members
    )


def _add_to_new_claim(
    problem: Problem, start: Packing, state: PackingState, placement_requests: list[PlacementRequest], counts: Ints
) -> Packing | None:
    """The packing with nodes launched for a pod that is left."""
    packer = Packer(problem, Strategy(), state)
    rest = [(request, count) for request, count in zip(placement_requests, counts.tolist(), strict=True) if count]
    largest = problem.frontier.capacity.max(axis=1, initial=1)
    rest.sort(key=lambda row: (-float((row[0].amounts / np.maximum(largest, 1)).max()), row[0].number))
    for request, count in rest:
        packer.waiting += request.amounts * float(count)
    for request, count in rest:
        packer.waiting -= request.amounts * float(count)
        if packer.place(request, count) < count:
            return None
    shrink(packer.state)
    return Packing(packer.state, start.left)
