"""Rounding: the LP relaxation's flows made into whole pods on whole nodes.

The quick packing has settled which pods stand on existing nodes and in which domains the others lie; that
stays. Their nodes are chosen anew: each offering gets as many nodes as the relaxation fills whole, all filled
alike so that none runs out of one thing while it has plenty of another. What does not come out even is poured again,
onto smaller nodes, until little is left, and that is packed the usual way.
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

#: Shares that the relaxation has at most: for the search, and for the quick answer.
FINE, COARSE = 8_000, 600
#: Offerings that cost this share more than they are worth at the relaxation's prices are not looked at again.
_NEAR = 0.08
#: An offering filled to this share is launched whole.
_NEARLY = 0.93
#: The rest is packed the usual way when it is worth less than this share of everything.
_CRUMBS = 0.004
#: From this share on the rest may be packed the usual way as well.
_REST = 0.25
_WAYS = (Strategy(), Strategy(prefer_larger_nodes=True), Strategy(future_demand_weight=0.0))
_MOST_ROUNDS = 24
_STEPS = 4.0
#: A pod that lets few of a kind on its node goes on one at most this many times the price of its smallest.
_SMALL = 2.5
#: How much larger than its filling a node may be when it is looked for again.
_ROOMY = 1.3


class Rounding:
    """One rounding in the making: a packing state that fills up, and the demands still to be met."""

    def __init__(self, problem: Problem, start: Packing, largest: int) -> None:
        self.problem = problem
        self.largest = largest
        self.state, loose = _emptied(problem, start.state)
        self.sizes = _sizes(problem)
        weights = np.array([pool.weight for pool in problem.pools], dtype=np.int64)
        self.weights = weights[problem.frontier.pools] if len(set(weights.tolist())) > 1 else None
        """The weight of each offering's pool, where they differ: a pod that a heavier pool can serve is served by
        it.
        """
        self.demands = [
            Demand(request, float(count), self._columns(request, where), sharing(request))
            for (request, where), count in loose.items()
        ]
        self.where = [where for _, where in loose]

    def copy(self) -> Rounding:
        """The same, to go on with another way."""
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
            columns = columns[prices <= _SMALL * prices.min()]
        return columns

    def run(self, seconds: Callable[[], float]) -> PackingState | None:
        """Pour until little is left, and pack the rest whenever it might do; the cheapest packing state found."""
        if not any(demand.count > 0 for demand in self.demands):
            return self.state
        open_to: Bools = self.sizes.copy()
        whole = tried = None
        best: PackingState | None = None
        for _ in range(_MOST_ROUNDS):
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
            hopeful = bool(waiting) and all(len(demand.offerings) for demand in shown)
            flow = relaxation(self.problem, shown, seconds(), largest=self.largest) if hopeful else None
            if flow is None:
                break
            if whole is None:
                whole = flow.price
                self._narrow(open_to, flow)
            if flow.price <= _REST * whole and self.state.size != tried:
                best, tried = self._cheaper(best), self.state.size
            if flow.price <= _CRUMBS * whole:
                return best
            if not self._pour_all(
                flow, {id(pod_class): demand_ for pod_class, demand_ in zip(shown, waiting, strict=True)}
            ):
                self._shrink(open_to, flow)
        return self._cheaper(best) if whole is not None else None

    def _cheaper(self, best: PackingState | None) -> PackingState | None:
        """The better of a packing state and this one with the rest packed the usual way."""
        for strategy in _WAYS if self.largest > COARSE else _WAYS[:1]:
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
            if slack > _NEAR * self.problem.frontier.prices[node]:
                open_to[node] = False

    def _shrink(self, open_to: Bools, flow: Relaxation) -> None:
        """Nothing was filled whole: look at nodes of about the size that would be."""
        prices = self.problem.frontier.prices
        filled = max(float(prices[node]) * n for node, n in flow.nodes.items())
        dearest = max(float(prices[node]) for node in flow.nodes)
        open_to &= (prices <= _ROOMY * filled) & (prices < dearest)

    def _pour_all(self, flow: Relaxation, whose: dict[int, Demand]) -> bool:
        """Buy what is filled whole; False if nothing was."""
        wholes = {node: int(n + 1 - _NEARLY) for node, n in flow.nodes.items()}
        order = sorted(
            (node for node, n in wholes.items() if n), key=lambda node: (-self.problem.frontier.prices[node], node)
        )
        for node in order:
            share = min(1.0, wholes[node] / flow.nodes[node])
            mine = []
            carried = 0.5
            for flow_ in flow.flows:
                pod_class = whose[id(flow_.demand)]
                carried += flow_.amounts.get(node, 0.0) * share
                mine.append((pod_class, min(int(pod_class.count), int(carried))))
                carried -= int(carried)
            self._round(node, wholes[node], [row for row in mine if row[1]])
        return bool(order)

    def _round(self, offering: int, nodes: int, mine: list[tuple[Demand, int]]) -> None:
        """Open nodes of an offering and fill them alike, the largest pods first; then use up what room is left."""
        start = self.state.size
        self.state.open_alike(offering, nodes)
        held: list[dict[int, int]] = [{} for _ in range(nodes)]
        mine.sort(key=lambda row: (not row[0].caps, -self._size(row[0].request, offering), row[0].request.number))
        for demand, amount in mine:
            self._even(demand, amount, start, held)
        others = sorted(
            (demand for demand in self.demands if demand.count > 0),
            key=lambda demand: (-self._size(demand.request, offering), demand.request.number),
        )
        for demand in others:
            if offering in demand.offerings:
                self._even(demand, int(demand.count), start, held)
        for index, contents in enumerate(held):
            self.state.contents[start + index] = contents

    def _even(self, demand: Demand, count: int, start: int, held: list[dict[int, int]]) -> None:
        """Put up to `count` pods on the nodes from `start`, the emptiest first."""
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
            done = int(takes.sum())
            count -= done
            demand.count -= done

    def _slack(self, request: PlacementRequest, bins: Ints) -> Floats:
        """How well the room that is left on nodes suits a pod: its scarcest dimension relative to the request."""
        dims = request.dims
        capacity = self.problem.frontier.capacity[dims][:, self.state.offering[bins]]
        need = request.amounts[dims, None] / np.maximum(capacity, 1)
        free = self.state.free[:, bins][dims] / np.maximum(capacity, 1)
        return np.asarray((need * free).sum(axis=0))

    def _size(self, request: PlacementRequest, offering: int) -> float:
        return float((request.amounts / np.maximum(self.problem.frontier.capacity[:, offering], 1)).max())


def _sizes(problem: Problem) -> Bools:
    """Offerings with a price; where sizes come in small steps, a few of each magnitude will do."""
    frontier = problem.frontier
    priced = np.isfinite(frontier.prices)
    magnitude = np.round(_STEPS * np.log2(np.maximum(np.where(priced, frontier.prices, 1.0), 1e-6)))
    shape = np.round(2 * np.log2(np.maximum(frontier.capacity, 1) / np.maximum(frontier.capacity.max(axis=0), 1)))
    marks = np.vstack([magnitude, shape, frontier.kinds, *frontier.domains])
    _, first = np.unique(marks[:, priced], axis=1, return_index=True)
    chosen = np.zeros(frontier.size, dtype=np.bool_)
    chosen[np.flatnonzero(priced)[first]] = True
    return chosen


def _emptied(
    problem: Problem, before: PackingState
) -> tuple[PackingState, dict[tuple[PlacementRequest, tuple[int, ...]], int]]:
    """A packing state with what stays where it is, and the pods to be placed again with the domains they must lie
    in.
    """
    state = PackingState(problem, before.run)
    loose: dict[tuple[PlacementRequest, tuple[int, ...]], int] = {}
    for index, contents in enumerate(before.contents):
        if not contents:
            continue
        placement_requests = [(before.placement_requests[number], count) for number, count in contents.items()]
        stays = index < before.existing or any(_clings(request) for request, _ in placement_requests)
        place = index if index < before.existing else state.open(int(before.offering[index])) if stays else -1
        for request, count in placement_requests:
            if stays:
                state.put(request, place, count)
                continue
            where = where_on(before, index, request)
            loose[request, where] = loose.get((request, where), 0) + count
    return state, loose


def where_on(state: PackingState, node: int, request: PlacementRequest) -> tuple[int, ...]:
    """The domains of a node, as far as they matter to a request: -1 where they do not."""
    topology_keys = state.problem.topology_keys
    return tuple(
        state.lying(place, node) if topology_key.key in request.keys else -1
        for place, topology_key in enumerate(topology_keys)
    )


def _clings(request: PlacementRequest) -> bool:
    """Whether a pod, or another one because of it, must share its node with a pod."""
    return any(counter.kind == AFFINITY for counter in (*request.topology.host_owned, *request.topology.host_members))


def rounded(problem: Problem, start: Packing, seconds: Callable[[], float], largest: int = FINE) -> Packing | None:
    """A packing along the flows, or None if a pod would lose their place by it or there was no time.

    `largest` is how finely the relaxation reports pods apart.
    """
    if problem.binding or problem.reservations or problem.diversity is not None:
        return None
    packing = Rounding(problem, start, largest).run(seconds)
    if packing is None:
        return None
    shrink(packing)
    return Packing(packing, start.left)
