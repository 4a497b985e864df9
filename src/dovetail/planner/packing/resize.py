"""Resizing: move new nodes to the cheapest offering that holds their pods, or to a larger one for one more pod.

`NodeConstraints` are the offerings that the pods on a node accept together. They depend only on the node filters of
the pods, not on their number or size, so nodes with the same set of node filters share them, and nodes with the same
constraints in the same domains share one price index.

`Growth` finds the new node that is cheapest to enlarge. While pods are only added, nodes fill up and limits run out,
so a node that no larger offering helps stays so, and its answer is computed again only after its pods have changed.
The cache is cleared when a limit is released or the packing state is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_, attrgetter

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.attachments import new_attachments
from dovetail.planner.packing.candidate_nodes import CandidateNodes
from dovetail.planner.packing.packer_context import PackerContext
from dovetail.planner.packing.price_index import PriceIndex
from dovetail.planner.packing.state import PackingState, move_all
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.request import NodeFilter, PlacementRequest

#: From this many nodes on, moving them in one array operation is faster than one by one.
_MIN_BULK_NODES = 6


def shrink(state: PackingState, nodes: Iterable[int] | None = None) -> None:
    """Move new nodes (all, or `nodes`) to the cheapest offering that holds their pods."""
    problem = state.problem
    chosen = state.new_nodes() if nodes is None else nodes
    limited = bool(problem.binding or problem.reservations)
    if not limited and problem.diversity is None:
        _shrink_freely(state, chosen)
        return
    for node in chosen:
        state.meter.spent += 1
        best = cheapest(state, node, open_to=state.open_to(node) if limited else None)
        if best is not None and best != state.offering_of(node):
            state.move(node, best)


def _shrink_freely(state: PackingState, nodes: Iterable[int]) -> None:
    """Shrink nodes where nothing is limited: they are independent, and those with one price index move together."""
    by_price_index: dict[PriceIndex, list[int]] = {}
    for node in nodes:
        state.meter.spent += 1
        these = constraints_on(state, node)
        by_price_index.setdefault(these.price_index(state.frontier, *_kind_and_domains(state, node, these)), []).append(
            node
        )
    for price_index, here in by_price_index.items():
        if len(here) >= _MIN_BULK_NODES:
            move_all(state, np.array(here, dtype=np.int64), price_index)
            continue
        for node_index in here:
            best = price_index.first(state.used(node_index))
            if best is not None and best != state.offering_of(node_index):
                state.move(node_index, best)


def cheapest(
    state: PackingState, node: int, request: PlacementRequest | None = None, open_to: Bools | None = None
) -> int | None:
    """The cheapest offering (of `open_to`) that holds the pods of a node, and one more pod of `request` if given."""
    these, load, diversity = constraints_on(state, node, request), state.used(node), state.problem.diversity
    for dim, amount in request.steps if request is not None else ():
        load[dim] += amount
    for dim, amount in new_attachments(state, request, node) if request is not None and request.shared else ():
        load[dim] += amount
    offerings = these.price_index(state.frontier, *_kind_and_domains(state, node, these)).holding(load)
    if open_to is not None:
        offerings = (offering for offering in offerings if open_to[offering])
    if diversity is not None:
        held = [state.placement_requests[number] for number in state.contents[node]]
        offerings = diversity.among(offerings, [*held, request] if request is not None else held, load)
    return next(offerings, None)


def _kind_and_domains(state: PackingState, node: int, these: NodeConstraints) -> tuple[int, list[int]]:
    """What a change of size keeps: the node's kind, and its domains of the topology keys that its pods use."""
    return state.frontier.kind_at[state.offering_of(node)], [
        state.lying(topology_key, node) for topology_key in these.topology_keys
    ]


#: The number of nodes considered for enlarging per pod.
_MAX_GROWTH_NODES = 64
_Size = tuple[NodeFilter, int]


class Growth:
    """The new node to enlarge, for one packer's packing state."""

    def __init__(self, candidate_nodes: CandidateNodes) -> None:
        self._candidate_nodes = candidate_nodes
        self._never: dict[_Size, int] = {}
        self._held: dict[tuple[int, _Size], tuple[object, int, int | None]] = {}

    def forget(self) -> None:
        """Clear the cache, after a change other than placing pods, opening nodes or enlarging them."""
        self._never.clear()
        self._held.clear()

    def best(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> tuple[int, int] | None:
        """The node that takes one more pod of the request for the least extra price, and its larger offering."""
        state, frontier = packer.state, packer.problem.frontier
        watched = bool(packer.problem.binding or packer.problem.reservations)
        best: tuple[int, int] | None = None
        least = float("inf")
        open_to: dict[int, Bools] = {}
        for node in self._admitted(packer, request, topology_key, domains)[:_MAX_GROWTH_NODES].tolist():
            offering = self._cheapest(packer, request, node)
            before = state.offering_of(node)
            if watched and offering is not None:
                if before not in open_to:
                    open_to[before] = state.open_to(node)
                if not open_to[before][offering]:
                    offering = cheapest(state, node, request, open_to[before])
            if offering is None and request.shared:  # may change once another pod has attached the volumes
                continue
            if offering is None:
                self._never[request.node_filter, id(request.steps)] |= 1 << node
                continue
            price, extra = frontier.prices[offering], float(frontier.prices[offering] - frontier.prices[before])
            if extra < least and price <= max(packer.strategy.max_node_price, frontier.prices[before]):
                best, least = (node, offering), extra
        return best

    def _admitted(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> Ints:
        """New nodes in the domains that hostname rules admit and that may still grow, whatever their free resources."""
        state = packer.state
        never = self._never.setdefault((request.node_filter, id(request.steps)), 0)
        left = self._candidate_nodes.lying(packer, request, topology_key, domains) & ~never
        left = left >> state.existing << state.existing
        if not left:
            return np.zeros(0, dtype=np.int64)
        # Asked for one pod, `shares` tests the rules alone: free resources do not matter, the node is to be enlarged.
        bins, _ = state.shares(request, np.array(_places(left), dtype=np.int64), 1, packer.ignore_counted)
        return bins

    def _cheapest(self, packer: PackerContext, request: PlacementRequest, node: int) -> int | None:
        """The cheapest offering for a node with one more pod of the request, ignoring limits; None if there is none."""
        packer.state.meter.spent += 1
        state, key = packer.state, (node, (request.node_filter, id(request.steps)))
        contents, offering = state.contents[node], state.offering_of(node)
        cached = self._held.get(key)
        if cached is None or cached[0] is not contents or cached[1] != offering:
            cached = self._held[key] = (contents, offering, cheapest(state, node, request))
        return cached[2]


def _places(bits: int) -> list[int]:
    """The positions of the bits that are set."""
    places = []
    while bits:
        lowest = bits & -bits
        places.append(lowest.bit_length() - 1)
        bits ^= lowest
    return places


_node_filter = attrgetter("node_filter")


class NodeConstraints:
    """What pods of some node filters accept together: offerings (of the frontier, and `mask` of all), topology keys."""

    __slots__ = ("_accepted", "_price_indexes", "keys", "mask", "topology_keys")

    def __init__(self, node_filters: frozenset[NodeFilter], state: PackingState) -> None:
        self._accepted = {id(node_filter.offerings): node_filter.offerings for node_filter in node_filters}
        self._price_indexes: dict[tuple[int, ...], PriceIndex] = {}
        self.mask = reduce(and_, [node_filter.mask for node_filter in node_filters], -1)
        self.topology_keys = sorted({state.key_index[key] for node_filter in node_filters for key in node_filter.keys})
        self.keys = [state.problem.topology_keys[topology_key].key for topology_key in self.topology_keys]

    def alike(self, frontier: OfferingFrontier, kind: int, places: list[int]) -> Bools:
        """The accepted offerings of a kind in the given domains: they differ only in size and price."""
        ok: Bools = frontier.kinds == kind
        for offerings in self._accepted.values():
            ok &= offerings
        for topology_key, place in zip(self.topology_keys, places, strict=True):
            ok &= frontier.domains[topology_key] == place
        return ok

    def price_index(self, frontier: OfferingFrontier, kind: int, places: list[int]) -> PriceIndex:
        """The price index of these offerings; cached with the frontier, which outlives a plan."""
        cached = self._price_indexes.get((kind, *places))
        if cached is None:
            key = (kind, frozenset(self._accepted), *zip(self.topology_keys, places, strict=True))
            cached = frontier.recall(
                key, self._accepted, lambda: PriceIndex(frontier, self.alike(frontier, kind, places))
            )
            self._price_indexes[kind, *places] = cached
        return cached


def constraints_on(state: PackingState, node: int, request: PlacementRequest | None = None) -> NodeConstraints:
    """The constraints of the pods on a node, and of one more pod of `request` if given."""
    held = map(_node_filter, map(state.placement_requests.__getitem__, state.contents[node]))
    key: frozenset[NodeFilter] = frozenset(held) if request is None else frozenset((*held, request.node_filter))
    constraints_cache: dict[frozenset[NodeFilter], NodeConstraints] = state.problem.constraints_cache
    node_constraints = constraints_cache.get(key)
    if node_constraints is None:
        node_constraints = constraints_cache[key] = NodeConstraints(key, state)
    return node_constraints
