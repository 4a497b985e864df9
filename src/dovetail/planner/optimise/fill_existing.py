"""Fill existing nodes again, with the pods that would cost most on new nodes.

Pods without rules about other pods are removed from the packing. Each existing node then takes pods greedily by dual
price (what the pod would cost on new nodes) per share of the node's scarcest free resource, so that no node runs out
of memory while its CPU is unused. New nodes are opened for the remaining pods.
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

#: One greedy step takes 1/4 of the equal pods that fit.
_PICK_DIVISOR = 4
#: Dual price, in $/h, of a pod that no offering holds: existing nodes take it first.
_NO_OFFERING_PRICE = 1e6


def filled(problem: Problem, start: Packing, largest: int) -> Packing | None:
    """The packing with existing nodes filled again; None if a pod would become unplaced."""
    state, pods_to_place = _remove_independent_pods(problem, start.state)
    if not pods_to_place:
        return None
    placement_requests = list(pods_to_place)
    counts = np.array([pods_to_place[request] for request in placement_requests], dtype=np.int64)
    requests = np.array([request.amounts for request in placement_requests], dtype=np.int64)
    worth = _dual_prices(problem, placement_requests, counts, largest)
    suits = np.array([request.nodes for request in placement_requests])
    there = state.free[:, : state.existing]
    roomy = (there / there.max(axis=1, initial=1, keepdims=True)).sum(axis=0)
    for node in np.argsort(-roomy, kind="stable").tolist():
        open_to = np.flatnonzero(suits[:, node] & (counts > 0))
        for place, take in _picked(state.free[:, node].copy(), requests[open_to], counts[open_to], worth[open_to]):
            number = int(open_to[place])
            state.put(placement_requests[number], node, take)
            counts[number] -= take
    return _place_rest(problem, start, state, placement_requests, counts)


def _picked(free: Ints, requests: Ints, counts: Ints, worth: Floats) -> list[tuple[int, int]]:
    """The pods that a node takes, greedily by dual price per largest share of its free resources: index and count."""
    picked = list[tuple[int, int]]()
    counts = counts.copy()
    while True:
        able = np.flatnonzero((counts > 0) & (requests <= free).all(axis=1))
        if not len(able):
            return picked
        shares = (requests[able] / np.maximum(free, 1)).max(axis=1)
        best = int(able[np.argmax(worth[able] / np.maximum(shares, 1e-9))])
        requested_dims = requests[best] > 0
        most = min(
            int(counts[best]), int((free[requested_dims] // requests[best][requested_dims]).min(initial=1 << 40))
        )
        take = max(1, most // _PICK_DIVISOR)
        free = free - take * requests[best]
        counts[best] -= take
        picked.append((best, take))


def _dual_prices(problem: Problem, placement_requests: list[PlacementRequest], counts: Ints, largest: int) -> Floats:
    """The dual price of a pod of each request: what it costs on new nodes in the LP relaxation, in $/h."""
    finite = np.isfinite(problem.frontier.prices)
    offered = {}
    for request, count in zip(placement_requests, counts.tolist(), strict=True):
        offerings = np.flatnonzero(holding(problem, request, problem.shared_dims) & finite)
        if len(offerings):
            offered[request] = Demand(request, float(count), offerings)
    context = relaxation(problem, list(offered.values()), 3600.0, largest=largest, proven=True)
    if context is None:
        return np.ones(len(placement_requests))
    worth_by_request = {
        flow.demand.request: float(worth) / flow.demand.count
        for flow, worth in zip(context.flows, context.worth, strict=True)
    }
    return np.array([worth_by_request.get(request, _NO_OFFERING_PRICE) for request in placement_requests])


def _remove_independent_pods(
    problem: Problem, before: PackingState
) -> tuple[PackingState, dict[PlacementRequest, int]]:
    """A packing state with only the pods that have topology rules or shared volumes, and the pods to place again."""
    state = PackingState(problem, before.run)
    pods_to_place: dict[PlacementRequest, int] = {}
    for index, contents in enumerate(before.contents):
        placement_requests = [(before.placement_requests[number], count) for number, count in contents.items()]
        dependent = [
            placement_request
            for placement_request in placement_requests
            if _depends_on_other_pods(placement_request[0])
        ]
        stays = placement_requests if dependent and index >= before.existing else dependent
        if stays:
            place = index if index < before.existing else state.open(int(before.offering[index]))
            for request, count in stays:
                state.put(request, place, count)
        for request, count in placement_requests if not stays or index < before.existing else ():
            if not _depends_on_other_pods(request):
                state.placement_requests[request.number] = request
                pods_to_place[request] = pods_to_place.get(request, 0) + count
    return state, pods_to_place


def _depends_on_other_pods(request: PlacementRequest) -> bool:
    return bool(
        request.shared
        or request.topology.has_hostname_rules
        or request.topology.domain_owned
        or request.topology.domain_members
    )


def _place_rest(
    problem: Problem, start: Packing, state: PackingState, placement_requests: list[PlacementRequest], counts: Ints
) -> Packing | None:
    """The packing with the remaining pods placed, on new nodes where needed; None if one cannot be placed."""
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
