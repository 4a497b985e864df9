"""Rounding: turn the flows of the LP relaxation into integer pods on integer nodes.

The tier-1 packing decides which pods are on existing nodes and in which domains the others are; that is kept. New
nodes are chosen again: each offering gets as many nodes as the LP fills completely, with the same mix of pods on each
so that no resource runs out early. The LP is solved again for the rest, with smaller nodes, until little is left; that
is placed by the packer.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.optimise.lower_bound import holding, sharing
from dovetail.planner.optimise.relaxation import Demand, Relaxation, relaxation
from dovetail.planner.packing.pack import Packing
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState, put_all
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD

#: The largest number of LP variables: for tier 2, and for a quick improvement.
FINE, COARSE = 8_000, 600
#: Offerings with a reduced cost above this share of their price are excluded from later rounds.
_MAX_REDUCED_COST_SHARE = 0.08
#: A fractional node filled to at least this share is opened as a whole node.
_MIN_OPENED_SHARE = 0.93
#: Rounding ends when the rest costs at most this share of the first LP: the packer places it.
_MAX_REST_SHARE = 0.004
#: Below this share of the first LP, packing the rest is tried after each round as well.
_MAX_TRIED_REST_SHARE = 0.25
#: The strategies by which the packer places the rest.
_REST_STRATEGIES = (Strategy(), Strategy(prefer_larger_nodes=True), Strategy(future_demand_weight=0.0))
_MAX_ROUNDS = 24
#: Price magnitudes per doubling: of offerings with equal magnitude and shape, one is enough.
_MAGNITUDES_PER_DOUBLING = 4.0
#: Pods with a hostname spread use nodes of at most this multiple of the price of their cheapest one.
_MAX_SPREAD_PRICE_FACTOR = 2.5
#: Where no node was filled, later rounds use nodes of at most this multiple of the price of the fullest.
_MAX_SHRUNK_PRICE_FACTOR = 1.3


class Rounding:
    """A rounding in progress: the packing state so far, and the remaining demands."""

    def __init__(self, problem: Problem, start: Packing, largest: int) -> None:
        self.problem = problem
        self.largest = largest
        self.state, pods_to_place = _without_movable_pods(problem, start.state)
        self.sizes = _representative_offerings(problem)
        weights = np.array([pool.weight for pool in problem.pools], dtype=np.int64)
        self.weights = weights[problem.frontier.pools] if len(set(weights.tolist())) > 1 else None
        """The NodePool weight of each offering, if weights differ: a pod uses the heaviest pool that can serve it."""
        self.demands = [
            Demand(request, float(count), self._columns(request, where), sharing(request))
            for (request, where), count in pods_to_place.items()
        ]
        self.where = [where for _, where in pods_to_place]

    def copy(self) -> Rounding:
        """A copy, for continuing differently."""
        twin = copy(self)
        twin.state = self.state.clone()
        twin.demands = [Demand(demand.request, demand.count, demand.offerings, demand.caps) for demand in self.demands]
        return twin

    def _columns(self, request: PlacementRequest, where: tuple[int, ...]) -> Ints:
        ok = holding(self.problem, request) & self.sizes
        for topology_key, domain in enumerate(where):
            if domain >= 0:
                ok &= self.problem.frontier.domains[topology_key] == domain
        if self.weights is not None and ok.any():
            ok &= self.weights == self.weights[ok].max()
        columns = np.flatnonzero(ok)
        if len(columns) and any(counter.kind == SPREAD for counter in request.topology.host_owned):
            prices = self.problem.frontier.prices[columns]
            columns = columns[prices <= _MAX_SPREAD_PRICE_FACTOR * prices.min()]
        return columns

    def run(self, seconds: Callable[[], float]) -> PackingState | None:
        """Round until little is left, and pack the rest when it is small; returns the cheapest packing state."""
        if not any(demand.count > 0 for demand in self.demands):
            return self.state
        open_to: Bools = self.sizes.copy()
        first_price = tried = None
        best: PackingState | None = None
        for _ in range(_MAX_ROUNDS):
            waiting = [demand for demand in self.demands if demand.count > 0]
            shown = [
                Demand(
                    demand.request,
                    demand.count,
                    demand.offerings[open_to[demand.offerings]],
                    demand.caps,
                )
                for demand in waiting
            ]
            all_have_offerings = bool(waiting) and all(len(demand.offerings) for demand in shown)
            flow = relaxation(self.problem, shown, seconds(), largest=self.largest) if all_have_offerings else None
            if flow is None:
                break
            if first_price is None:
                first_price = flow.price
                self._narrow(open_to, flow)
            if flow.price <= _MAX_TRIED_REST_SHARE * first_price and self.state.size != tried:
                best, tried = self._cheaper(best), self.state.size
            if flow.price <= _MAX_REST_SHARE * first_price:
                return best
            if not self._open_filled_nodes(
                flow, {id(pod_class): demand_ for pod_class, demand_ in zip(shown, waiting, strict=True)}
            ):
                self._shrink(open_to, flow)
        return self._cheaper(best) if first_price is not None else None

    def _cheaper(self, best: PackingState | None) -> PackingState | None:
        """The cheaper of `best` and this packing state with the rest placed by the packer."""
        for strategy in _REST_STRATEGIES if self.largest > COARSE else _REST_STRATEGIES[:1]:
            filled = self._packed(strategy)
            if filled is not None and (best is None or filled.cost() < best.cost()):
                best = filled
        return best

    def _packed(self, strategy: Strategy) -> PackingState | None:
        packer = Packer(self.problem, strategy, self.state.clone())
        rest = [(demand, where) for demand, where in zip(self.demands, self.where, strict=True) if demand.count > 0]
        rest.sort(key=lambda row: (-self._share(row[0].request), row[0].request.number))
        for demand, _ in rest:
            packer.waiting += demand.request.amounts * demand.count
        for demand, where in rest:
            packer.waiting -= demand.request.amounts * demand.count
            if packer.place_at(demand.request, int(demand.count), where) < int(demand.count):
                return None
        shrink(packer.state, packer.state.changed(self.state))
        return packer.state

    def _share(self, request: PlacementRequest) -> float:
        return float((request.amounts / (self.problem.frontier.capacity.max(axis=1, initial=0) + 1)).max())

    def _narrow(self, open_to: Bools, flow: Relaxation) -> None:
        for node, slack in flow.slack.items():
            if slack > _MAX_REDUCED_COST_SHARE * self.problem.frontier.prices[node]:
                open_to[node] = False

    def _shrink(self, open_to: Bools, flow: Relaxation) -> None:
        """No node was filled: restrict `open_to` to offerings about as large as the flows."""
        prices = self.problem.frontier.prices
        filled = max(float(prices[node]) * n for node, n in flow.nodes.items())
        dearest = max(float(prices[node]) for node in flow.nodes)
        open_to &= (prices <= _MAX_SHRUNK_PRICE_FACTOR * filled) & (prices < dearest)

    def _open_filled_nodes(self, flow: Relaxation, demand_by_id: dict[int, Demand]) -> bool:
        """Open the nodes that the LP fills, with their pods; returns whether there were any."""
        integer_nodes = {node: int(n + 1 - _MIN_OPENED_SHARE) for node, n in flow.nodes.items()}
        order = sorted(
            (node for node, n in integer_nodes.items() if n),
            key=lambda node: (-self.problem.frontier.prices[node], node),
        )
        for node in order:
            share = min(1.0, integer_nodes[node] / flow.nodes[node])
            mine = []
            carried = 0.5
            for flow_ in flow.flows:
                pod_class = demand_by_id[id(flow_.demand)]
                carried += flow_.amounts.get(node, 0.0) * share
                mine.append((pod_class, min(int(pod_class.count), int(carried))))
                carried -= int(carried)
            self._open_and_fill(node, integer_nodes[node], [row for row in mine if row[1]])
        return bool(order)

    def _open_and_fill(self, offering: int, nodes: int, mine: list[tuple[Demand, int]]) -> None:
        """Open nodes of an offering and fill them evenly, the largest pods first; then fill the remaining room."""
        start = self.state.size
        self.state.open_alike(offering, nodes)
        held: list[dict[int, int]] = [{} for _ in range(nodes)]
        mine.sort(key=lambda row: (not row[0].caps, -self._size(row[0].request, offering), row[0].request.number))
        for demand, amount in mine:
            self._place_evenly(demand, amount, start, held)
        others = sorted(
            (demand for demand in self.demands if demand.count > 0),
            key=lambda demand: (-self._size(demand.request, offering), demand.request.number),
        )
        for demand in others:
            if offering in demand.offerings:
                self._place_evenly(demand, int(demand.count), start, held)
        for index, contents in enumerate(held):
            self.state.contents[start + index] = contents

    def _place_evenly(self, demand: Demand, count: int, start: int, held: list[dict[int, int]]) -> None:
        """Place up to `count` pods evenly on the nodes from `start`, the emptiest first."""
        request = demand.request
        while count > 0:
            bins, room = self.state.room(request, count, start=start)
            if not len(bins):
                return
            share = max(1, count // len(bins))
            takes = np.minimum(room, share)
            if len(bins) * share > count:
                emptiest = np.argsort(-self._slack(request, bins), kind="stable")[:count]
                bins, takes = bins[emptiest], takes[emptiest]
            if request.shared:
                for node, take in zip(bins.tolist(), takes.tolist(), strict=True):
                    self.state.put(request, node, take)
            else:
                put_all(self.state, request, bins, takes)
            for node_index, take in zip(bins.tolist(), takes.tolist(), strict=True):
                held[node_index - start][request.number] = held[node_index - start].get(request.number, 0) + take
            placed = int(takes.sum())
            count -= placed
            demand.count -= placed

    def _slack(self, request: PlacementRequest, bins: Ints) -> Floats:
        """How well a node's free resources suit a pod: the sum over dimensions of request share times free share."""
        dims = request.dims
        capacity = self.problem.frontier.capacity[dims][:, self.state.offering[bins]]
        need = request.amounts[dims, None] / np.maximum(capacity, 1)
        free = self.state.free[:, bins][dims] / np.maximum(capacity, 1)
        return np.asarray((need * free).sum(axis=0))

    def _size(self, request: PlacementRequest, offering: int) -> float:
        return float((request.amounts / np.maximum(self.problem.frontier.capacity[:, offering], 1)).max())


def _representative_offerings(problem: Problem) -> Bools:
    """Offerings with a price, one for each price magnitude, shape, kind and domain."""
    frontier = problem.frontier
    priced = np.isfinite(frontier.prices)
    magnitude = np.round(_MAGNITUDES_PER_DOUBLING * np.log2(np.maximum(np.where(priced, frontier.prices, 1.0), 1e-6)))
    shape = np.round(2 * np.log2(np.maximum(frontier.capacity, 1) / np.maximum(frontier.capacity.max(axis=0), 1)))
    marks = np.vstack([magnitude, shape, frontier.kinds, *frontier.domains])
    _, first = np.unique(marks[:, priced], axis=1, return_index=True)
    chosen = np.zeros(frontier.size, dtype=np.bool_)
    chosen[np.flatnonzero(priced)[first]] = True
    return chosen


def _without_movable_pods(
    problem: Problem, before: PackingState
) -> tuple[PackingState, dict[tuple[PlacementRequest, tuple[int, ...]], int]]:
    """A packing state with the pods that keep their nodes, and the pods to place again with their domains."""
    state = PackingState(problem, before.run)
    pods_to_place: dict[tuple[PlacementRequest, tuple[int, ...]], int] = {}
    for index, contents in enumerate(before.contents):
        if not contents:
            continue
        placement_requests = [(before.placement_requests[number], count) for number, count in contents.items()]
        stays = index < before.existing or any(_has_hostname_affinity(request) for request, _ in placement_requests)
        place = index if index < before.existing else state.open(int(before.offering[index])) if stays else -1
        for request, count in placement_requests:
            if stays:
                state.put(request, place, count)
                continue
            where = where_on(before, index, request)
            pods_to_place[request, where] = pods_to_place.get((request, where), 0) + count
    return state, pods_to_place


def where_on(state: PackingState, node: int, request: PlacementRequest) -> tuple[int, ...]:
    """The domain of a node for each topology key that the request uses; -1 for others."""
    topology_keys = state.problem.topology_keys
    return tuple(
        state.lying(place, node) if topology_key.key in request.keys else -1
        for place, topology_key in enumerate(topology_keys)
    )


def _has_hostname_affinity(request: PlacementRequest) -> bool:
    """Whether the request owns a hostname affinity or is selected by one."""
    return any(counter.kind == AFFINITY for counter in (*request.topology.host_owned, *request.topology.host_members))


def rounded(problem: Problem, start: Packing, seconds: Callable[[], float], largest: int = FINE) -> Packing | None:
    """The packing rounded from the LP relaxation; None if a pod would become unplaced or there was no time.

    The LP knows no limits of NodePools: None also if the packing exceeds one. `largest` is the largest number of LP
    variables; with fewer, more demands are merged.
    """
    if problem.reservations or problem.diversity is not None:
        return None
    packing = Rounding(problem, start, largest).run(seconds)
    if packing is None:
        return None
    shrink(packing)
    return None if packing.exceeds_limits() else Packing(packing, start.left)
