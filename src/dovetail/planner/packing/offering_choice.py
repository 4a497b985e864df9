"""Offering choice: the offering to open a new node on.

It is the offering on which the remaining demand would cost least if only this offering could be launched.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints
from dovetail.planner.packing.packer_context import PackerContext
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.request import PlacementRequest

_Steps = tuple[tuple[int, int], ...]


class _FittingOfferings:
    """Offerings that hold a pod of a request: pods per node (`fits`), prices, and capacity by dimension (`room`)."""

    __slots__ = ("fits", "offerings", "part", "prices", "room")

    def __init__(
        self,
        request: PlacementRequest,
        offerings: Ints,
        frontier: OfferingFrontier,
        prices: Floats,
        domains: Bools | None,
        new_attachments: _Steps,
    ) -> None:
        self.offerings = offerings
        self.fits: Ints = np.full(len(offerings), UNLIMITED, dtype=np.int64)
        for dim, amount in request.steps:
            np.minimum(self.fits, frontier.capacity[dim][offerings] // amount, out=self.fits)
        for dim, more in new_attachments:
            if request.amounts[dim]:
                np.minimum(self.fits, (frontier.capacity[dim][offerings] - more) // request.amounts[dim], out=self.fits)
        self.room = [room[offerings] for room in frontier.room]
        self.prices = prices
        self.part = 1.0 if domains is None else max(1, int(domains[:-1].sum())) / max(1, len(domains) - 1)
        """The share of all domains that these offerings cover: the same share of later demand is expected here."""


class OfferingChoice:
    """Chooses the offerings of new nodes for one packer."""

    def __init__(self, problem: Problem) -> None:
        self.frontier = problem.frontier
        self._sharing = problem.sharing
        self._stamp: object = None
        self._catalogs: dict[object, _FittingOfferings | None] = {}
        self._domains: dict[object, frozenset[int]] = {}
        self._pools = problem.pools

    def best(
        self,
        packer: PackerContext,
        request: PlacementRequest,
        count: int,
        per: int,
        topology_key: int | None,
        domains: Bools | None,
    ) -> tuple[int, int] | None:
        """The offering to open, and the number of pods of the request that go on each node of it."""
        strategy = packer.strategy
        packer.state.meter.spent += 2
        fitting = self._fitting(packer, request, topology_key, domains)
        if fitting is None:
            return None
        per, pods_needing_nodes = min(per, count), count + packer.pods_refusing_to_share
        if strategy.size_for_demand or pods_needing_nodes == 1:
            needed: Floats = np.ones(len(fitting.fits))
        elif per == 1:
            needed = np.full(len(fitting.fits), float(pods_needing_nodes))
        else:
            nodes = pods_needing_nodes / np.minimum(fitting.fits, per)
            needed = np.maximum(nodes, 1.0) if strategy.full_nodes_first else np.ceil(nodes)
        later_demand, share = packer.waiting.tolist(), strategy.future_demand_weight * fitting.part
        if packer.pods_refusing_to_share:
            later_demand = [
                max(0.0, more - spare)
                for more, spare in zip(later_demand, _free_on_new_nodes(packer.state), strict=True)
            ]
        for amount, more, room in zip(request.amounts.tolist(), later_demand, fitting.room, strict=True):
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
            offering, [request], self._with_attachments(request, [0] * len(request.amounts)), request, most
        )

    def domains(self, packer: PackerContext, request: PlacementRequest, topology_key: int) -> frozenset[int]:
        """The domains of a topology key in which some offering holds a pod of the request."""
        frontier = packer.problem.frontier

        def domains_offered() -> frozenset[int]:
            return frozenset(frontier.domains[topology_key][self.candidates(packer, request, None, None)].tolist())

        if packer.problem.diversity is not None or packer.extra or packer.strategy.pessimistic_limits:
            return domains_offered()
        key = (request.node_filter, id(request.steps), topology_key)
        cached = self._domains.get(key)
        if cached is None:
            lasting = (
                "domains",
                id(request.offerings),
                topology_key,
                *request.steps,
                self._first_pod_attachments(request),
            )
            cached = self._domains[key] = frontier.recall(lasting, request.offerings, domains_offered)
        return cached

    def same_but_domain(self, request: PlacementRequest, offering: int) -> list[int]:
        """The offerings that differ from `offering` only in their domains and that the request accepts."""
        types = self.frontier.types()

        def equal_offerings() -> list[int]:
            return np.flatnonzero(request.offerings & (types == types[offering])).tolist()

        return self.frontier.recall(("twins", id(request.offerings), offering), request.offerings, equal_offerings)

    def _fitting(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        """The offerings to choose from; cached by the frontier unless they depend on the nodes opened so far."""
        problem = packer.problem
        watched = problem.binding or problem.reservations or problem.diversity is not None
        if watched or packer.extra or packer.strategy.pessimistic_limits:
            return self._with_limits(packer, request, topology_key, domains)
        where = (topology_key, domains.tobytes()) if domains is not None else None
        kind = (
            id(request.offerings),
            where,
            *request.steps,
            self._first_pod_attachments(request),
            packer.strategy.max_node_price,
        )
        return problem.frontier.recall(
            kind, request.offerings, lambda: self._fitting_candidates(packer, request, topology_key, domains)
        )

    def _with_limits(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        """The offerings within limits and reservations; cached until a node is opened or changes its offering."""
        if packer.state.stamp is not self._stamp:
            self._stamp = packer.state.stamp
            self._catalogs.clear()
        key = (request.node_filter, id(request.steps), id(domains), *[id(chosen) for _, chosen in packer.extra])
        if key not in self._catalogs:
            self._catalogs[key] = self._fitting_candidates(packer, request, topology_key, domains)
        return self._catalogs[key]

    def _fitting_candidates(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> _FittingOfferings | None:
        frontier, strategy = packer.problem.frontier, packer.strategy
        packer.state.meter.spent += 3 + frontier.size // 200
        ok = self.candidates(packer, request, topology_key, domains)
        if not ok.any():
            return None
        if len({pool.weight for pool in self._pools}) > 1:
            weights = np.array([pool.weight for pool in self._pools], dtype=np.int64)[frontier.pools]
            ok &= weights == weights[ok].max()
        distinct = np.flatnonzero(ok)
        cheap = distinct[frontier.prices[distinct] <= strategy.max_node_price]
        distinct = cheap if len(cheap) else distinct[:1]
        if strategy.minimise_limits and packer.problem.binding:
            prices = self._limit_shares(packer, distinct)
        else:
            distinct = _distinct(frontier, distinct)
            prices = frontier.finite[distinct]
        return _FittingOfferings(request, distinct, frontier, prices, domains, self._first_pod_attachments(request))

    def _first_pod_attachments(self, request: PlacementRequest) -> _Steps:
        """The attachments that the first pod of the request needs for shared volumes, by dimension."""
        return self._sharing.amounts(request.shared) if request.shared else ()

    def _with_attachments(self, request: PlacementRequest, load: list[int]) -> list[int]:
        for dim, more in self._first_pod_attachments(request):
            load[dim] += more
        return load

    def candidates(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> Bools:
        frontier = packer.problem.frontier
        ok: Bools = request.offerings.copy()
        for dim, amount in request.steps:
            ok &= frontier.capacity[dim] >= amount
        for dim, more in self._first_pod_attachments(request):
            ok &= frontier.capacity[dim] >= request.amounts[dim] + more
        if topology_key is not None and domains is not None:
            ok &= domains[frontier.domains[topology_key]]
        for other, chosen in packer.extra:
            ok &= chosen[frontier.domains[other]]
        if packer.problem.binding or packer.problem.reservations:
            ok &= packer.state.open_to()
        if packer.strategy.pessimistic_limits:
            ok &= self._within_pessimistic_limits(packer)
        diversity = packer.problem.diversity
        if diversity is not None:
            fillable = ok & diversity.fillable(request)
            load = self._with_attachments(request, request.amounts.tolist())
            ok = fillable if fillable.any() else diversity.holding(ok, [request], load)
        return ok

    def _within_pessimistic_limits(self, packer: PackerContext) -> Bools:
        """The offerings within limits if every new node were launched as the largest type that its limits allow."""
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

    def _limit_shares(self, packer: PackerContext, node: Ints) -> Floats:
        """The share of its NodePool's tightest limit that each offering takes."""
        frontier = packer.problem.frontier
        shares = np.full(len(node), 1e-9)
        for name in packer.problem.binding:
            left = [float(max(1, limit.get(name, UNLIMITED))) for limit in packer.problem.limits]
            limits = np.array(left)
            np.maximum(shares, frontier.limited[name][node] / limits[frontier.pools[node]], out=shares)
        return shares


def _free_on_new_nodes(state: PackingState) -> list[int]:
    """The free resources of all new nodes together, by dimension."""
    left: list[int] = np.add.reduce(state.free[:, state.existing : state.size], axis=1).tolist()
    return left


def _distinct(frontier: OfferingFrontier, offerings: Ints) -> Ints:
    """The first of each run of consecutive offerings with equal price and capacity, such as the zones of a type."""
    prices, sizes = frontier.finite[offerings], frontier.capacity[:, offerings]
    first: Bools = np.ones(len(offerings), dtype=np.bool_)
    first[1:] = (prices[1:] != prices[:-1]) | (sizes[:, 1:] != sizes[:, :-1]).any(axis=0)
    return offerings[first]
