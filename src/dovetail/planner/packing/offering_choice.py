"""Targets: which offering to open a node on.

The target is the offering on which the demand still waiting would cost least if nothing else could be launched.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.request import PlacementRequest

if TYPE_CHECKING:
    from dovetail.planner.packing.packer import Packer
    from dovetail.planner.packing.state import PackingState

_Steps = tuple[tuple[int, int], ...]


class _FittingOfferings:
    """Offerings that hold a pod of some kind: how many, at what price, and with how much room of each dimension."""

    __slots__ = ("fits", "offerings", "part", "prices", "room")

    def __init__(
        self,
        request: PlacementRequest,
        offerings: Ints,
        frontier: OfferingFrontier,
        prices: Floats,
        domains: Bools | None,
        brought: _Steps,
    ) -> None:
        self.offerings = offerings
        self.fits: Ints = np.full(len(offerings), UNLIMITED, dtype=np.int64)
        for dim, amount in request.steps:
            np.minimum(self.fits, frontier.capacity[dim][offerings] // amount, out=self.fits)
        for dim, more in brought:
            if request.amounts[dim]:
                np.minimum(self.fits, (frontier.capacity[dim][offerings] - more) // request.amounts[dim], out=self.fits)
        self.room = [room[offerings] for room in frontier.room]
        self.prices = prices
        self.part = 1.0 if domains is None else max(1, int(domains[:-1].sum())) / max(1, len(domains) - 1)
        """Which part of all domains they lie in: as much of what is to come may come here."""


class Targets:
    """Chooses for one packer."""

    def __init__(self, problem: Problem) -> None:
        pools = problem.pools
        self.frontier = problem.frontier
        self._sharing = problem.sharing
        self._stamp: object = None
        self._catalogs: dict[object, _FittingOfferings | None] = {}
        self._domains: dict[object, frozenset[int]] = {}
        self.ranks = sorted({pool.weight for pool in pools}, reverse=True)
        weights = np.array([pool.weight for pool in pools], dtype=np.int64)
        self.weights: Ints = weights[problem.frontier.pools] if len(weights) else np.zeros(0, dtype=np.int64)

    def best(
        self,
        packer: Packer,
        request: PlacementRequest,
        count: int,
        per: int,
        topology_key: int | None,
        domains: Bools | None,
    ) -> tuple[int, int] | None:
        """The offering to open, and how many pods of the request go on it."""
        strategy = packer.strategy
        packer.state.meter.spent += 2
        fitting = self._fitting(packer, request, topology_key, domains)
        if fitting is None:
            return None
        per, apart = min(per, count), count + packer.rivals
        if strategy.size_for_demand or apart == 1:
            needed: Floats = np.ones(len(fitting.fits))
        elif per == 1:
            needed = np.full(len(fitting.fits), float(apart))
        else:
            nodes = apart / np.minimum(fitting.fits, per)
            needed = np.maximum(nodes, 1.0) if strategy.full_nodes_first else np.ceil(nodes)
        coming, share = packer.waiting.tolist(), strategy.future_demand_weight * fitting.part
        if packer.rivals:
            coming = [max(0.0, more - spare) for more, spare in zip(coming, _spare(packer.state), strict=True)]
        for amount, more, room in zip(request.amounts.tolist(), coming, fitting.room, strict=True):
            demand = amount * float(count) + more * share
            if demand:
                np.maximum(needed, demand / room, out=needed)
        needed *= fitting.prices
        best = int(needed.argmin())
        offering, most, diversity = (
            int(fitting.offerings[best]),
            min(per, int(fitting.fits[best])),
            packer.problem.diversity,
        )
        if diversity is None:
            return offering, most
        return offering, diversity.most(
            offering, [request], self._loaded(request, [0] * len(request.amounts)), request, most
        )

    def domains(self, packer: Packer, request: PlacementRequest, topology_key: int) -> frozenset[int]:
        """The domains of a topology key in which a node for a pod is on offer, where nothing that is on offer runs
        out.
        """
        frontier = packer.problem.frontier

        def found() -> frozenset[int]:
            return frozenset(frontier.domains[topology_key][self.candidates(packer, request, None, None)].tolist())

        if packer.problem.diversity is not None or packer.extra or packer.strategy.pessimistic_limits:
            return found()
        key = (request.node_filter, id(request.steps), topology_key)
        cached = self._domains.get(key)
        if cached is None:
            lasting = ("domains", id(request.offerings), topology_key, *request.steps, self._brought(request))
            cached = self._domains[key] = frontier.recall(lasting, request.offerings, found)
        return cached

    def twins(self, request: PlacementRequest, offering: int) -> list[int]:
        """The offerings that differ from one in their place alone, as far as a pod of the request accepts them."""
        types = self.frontier.types()

        def found() -> list[int]:
            return np.flatnonzero(request.offerings & (types == types[offering])).tolist()

        return self.frontier.recall(("twins", id(request.offerings), offering), request.offerings, found)

    def _fitting(
        self, packer: Packer, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        """The offerings to choose from; remembered where they do not depend on what was launched before."""
        problem = packer.problem
        watched = problem.binding or problem.reservations or problem.diversity is not None
        if watched or packer.extra or packer.strategy.pessimistic_limits:
            return self._with_limits(packer, request, topology_key, domains)
        where = (topology_key, domains.tobytes()) if domains is not None else None
        kind = (id(request.offerings), where, *request.steps, self._brought(request), packer.strategy.max_node_price)
        return problem.frontier.recall(
            kind, request.offerings, lambda: self._stocked(packer, request, topology_key, domains)
        )

    def _with_limits(
        self, packer: Packer, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        """The same, remembered until some node is launched or becomes another."""
        if packer.state.stamp is not self._stamp:
            self._stamp = packer.state.stamp
            self._catalogs.clear()
        key = (request.node_filter, id(request.steps), id(domains), *[id(chosen) for _, chosen in packer.extra])
        if key not in self._catalogs:
            self._catalogs[key] = self._stocked(packer, request, topology_key, domains)
        return self._catalogs[key]

    def _stocked(
        self, packer: Packer, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        frontier, strategy = packer.problem.frontier, packer.strategy
        packer.state.meter.spent += 3 + frontier.size // 200
        ok = self.candidates(packer, request, topology_key, domains)
        if not ok.any():
            return None
        if len(self.ranks) > 1:
            ok &= self.weights == self.weights[ok].max()
        distinct = np.flatnonzero(ok)
        cheap = distinct[frontier.prices[distinct] <= strategy.max_node_price]
        distinct = cheap if len(cheap) else distinct[:1]
        if strategy.minimise_limits and packer.problem.binding:
            prices = self._limit_shares(packer, distinct)
        else:
            distinct = _distinct(frontier, distinct)
            prices = frontier.finite[distinct]
        return _FittingOfferings(request, distinct, frontier, prices, domains, self._brought(request))

    def _brought(self, request: PlacementRequest) -> _Steps:
        """What the first pod of the request takes of a node beside its own."""
        return self._sharing.amounts(request.shared) if request.shared else ()

    def _loaded(self, request: PlacementRequest, load: list[int]) -> list[int]:
        for dim, more in self._brought(request):
            load[dim] += more
        return load

    def candidates(
        self, packer: Packer, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> Bools:
        frontier = packer.problem.frontier
        ok: Bools = request.offerings.copy()
        for dim, amount in request.steps:
            ok &= frontier.capacity[dim] >= amount
        for dim, more in self._brought(request):
            ok &= frontier.capacity[dim] >= request.amounts[dim] + more
        if topology_key is not None and domains is not None:
            ok &= domains[frontier.domains[topology_key]]
        for other, chosen in packer.extra:
            ok &= chosen[frontier.domains[other]]
        if packer.problem.binding or packer.problem.reservations:
            ok &= packer.state.open_to()
        if packer.strategy.pessimistic_limits:
            ok &= self._widely(packer)
        diversity = packer.problem.diversity
        if diversity is not None:
            brimming = ok & diversity.brimming(request)
            load = self._loaded(request, request.amounts.tolist())
            ok = brimming if brimming.any() else diversity.holding(ok, [request], load)
        return ok

    def _widely(self, packer: Packer) -> Bools:
        """The offerings within limits if every node that stands became the largest it may."""
        frontier, state = packer.problem.frontier, packer.state
        ok = np.ones(frontier.size, dtype=np.bool_)
        candidate_nodes = [state.offering_of(node) for node in state.new_nodes()]
        for name in packer.problem.binding:
            limits = [limit.get(name, UNLIMITED) for limit in packer.problem.limits]
            charges = frontier.charges(name)
            for offering in candidate_nodes:
                pool = frontier.pool_at[offering]
                within = bisect_right(charges[pool], limits[pool])
                limits[pool] -= charges[pool][within - 1] if within else int(frontier.limited[name][offering])
            ok &= frontier.limited[name] <= np.array(limits, dtype=np.int64)[frontier.pools]
        return ok

    def _limit_shares(self, packer: Packer, node: Ints) -> Floats:
        """What each offering takes of its pool's tightest limit."""
        frontier = packer.problem.frontier
        shares = np.full(len(node), 1e-9)
        for name in packer.problem.binding:
            left = [float(max(1, limit.get(name, UNLIMITED))) for limit in packer.problem.limits]
            limits = np.array(left)
            np.maximum(shares, frontier.limited[name][node] / limits[frontier.pools[node]], out=shares)
        return shares


def _spare(state: PackingState) -> list[int]:
    """The room that is left on the new nodes."""
    left: list[int] = np.add.reduce(state.free[:, state.existing : state.size], axis=1).tolist()
    return left


def _distinct(frontier: OfferingFrontier, offerings: Ints) -> Ints:
    """Of offerings in a row that cost and hold the same, as the zones of a type do, the first: no other is chosen."""
    prices, sizes = frontier.finite[offerings], frontier.capacity[:, offerings]
    first: Bools = np.ones(len(offerings), dtype=np.bool_)
    first[1:] = (prices[1:] != prices[:-1]) | (sizes[:, 1:] != sizes[:, :-1]).any(axis=0)
    return offerings[first]
