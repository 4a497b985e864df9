"""Candidate nodes: which nodes may still take a pod of a request, as an integer with bit b for node b.

While pods are only added, free resources only shrink and hostname counts only rise. So a node that was too full for
a pod size, or excluded by a hostname rule, stays excluded. These answers are cached, and most nodes are tested once.
After any other change of the packing state the caches are cleared.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.packer_context import PackerContext
from dovetail.planner.packing.state import PackingState, open_nodes
from dovetail.planner.problem.request import NodeFilter, PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import ANTI, SPREAD

#: After this many nodes that turn out to be too full for a pod size, all nodes are tested again at once.
_MAX_STALE_NODES = 8


class _Hosts:
    """A hostname topology counter as bits of nodes.

    `some`: it counts pods there; `full`: at least maxSkew; `over`: more than maxSkew; `inverse`: owners are there.
    """

    __slots__ = ("full", "inverse", "over", "some")

    def __init__(self, counts: Ints, owners: Ints, skew: int) -> None:
        self.some = bits(counts > 0)
        self.full = bits(counts >= skew) if skew > 0 else -1
        self.over = bits(counts > skew)
        self.inverse = bits(owners > 0)


class _Seen:
    """The nodes that passed a test (`yes`), of the first `size` nodes, which have been tested."""

    __slots__ = ("size", "yes")

    def __init__(self) -> None:
        self.yes = 0
        self.size = 0

    def extend(self, end: int, yes: bool) -> None:
        """Record the same result for all nodes from `size` to `end`."""
        if yes:
            self.yes |= (1 << end) - (1 << self.size)
        self.size = end

    def answer(self, node: int, yes: bool) -> None:
        """Replace the result of a node that has changed."""
        if node < self.size:
            self.yes = self.yes | 1 << node if yes else self.yes & ~(1 << node)


class CandidateNodes:
    """The candidate nodes of one packer's packing state."""

    def __init__(self) -> None:
        self._suiting: dict[NodeFilter, _Seen] = {}
        self._lying: dict[int, tuple[_Seen, int, Bools]] = {}
        self._both: dict[tuple[NodeFilter, int], tuple[int, int]] = {}
        """By node filter and domain mask: the number of nodes tested, and those that suit and lie in the domains."""
        self._full: dict[int, int] = {}
        self._hosts: dict[int, _Hosts] = {}
        self._runs: dict[int, tuple[int, int]] = {}
        """Nodes opened together: first node → end of the range, and the offering that all of them use."""

    def forget(self) -> None:
        """Clear the caches, after a change other than placing pods or opening nodes."""
        self._suiting.clear()
        self._lying.clear()
        self._both.clear()
        self._full.clear()
        self._hosts.clear()
        self._runs.clear()

    def moved(self, state: PackingState, node: int) -> None:
        """Update the caches for a new node that changed its offering, and perhaps domains that no pod on it uses."""
        bit, offering = 1 << node, state.offering[node]
        self._runs.clear()
        self._both.clear()
        self._full = {size: full & ~bit for size, full in self._full.items()}
        for node_filter, seen in self._suiting.items():
            seen.answer(node, bool(node_filter.offerings[offering]))
        for seen, topology_key, domains in self._lying.values():
            seen.answer(node, bool(domains[state.lying(topology_key, node)]))

    def fill(
        self,
        packer: PackerContext,
        request: PlacementRequest,
        count: int,
        topology_key: int | None,
        domains: Bools | None,
    ) -> int:
        """Place up to `count` pods of the request on open nodes, in their order; returns the number placed."""
        state, problem, size, has_hostname_rules = (
            packer.state,
            packer.problem,
            id(request.steps),
            request.topology.has_hostname_rules,
        )
        full = self._full.get(size)
        if full is None:
            full = self._full[size] = _without_room(state, request)
        left = self.lying(packer, request, topology_key, domains) & ~full
        if has_hostname_rules and left:
            left &= ~self._excluded_by_hostname_rules(state, request, packer.ignore_counted)
        if not left:
            return 0
        state.meter.spent += 1
        placed = missed = 0
        while left:
            lowest = left & -left
            node = lowest.bit_length() - 1
            take = state.holds(request, node, count - placed)
            if not take:
                left ^= lowest
                if request.shared:  # the node has room once another pod has attached the volumes
                    continue
                full |= lowest
                missed += 1
                if missed == _MAX_STALE_NODES:
                    full = _without_room(state, request)
                    left &= ~full
                continue
            if take > 1 and has_hostname_rules:
                take = state.cap(request, node, take, packer.ignore_counted)
            if problem.diversity is not None:
                take = state.most_for_min_values(request, node, take)
            if take:
                state.put(request, node, take)
                if has_hostname_rules:
                    self._close(state, request, node, lowest)
                placed += take
                if placed == count:
                    break
            left ^= lowest
        if missed:
            self._full[size] = full
        return placed

    def lying(
        self, packer: PackerContext, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> int:
        """The nodes that pods of the request accept, within the domains."""
        cached = self._both.get((request.node_filter, id(domains)))
        if cached is None or cached[0] != packer.state.size:
            cached = self._accepted_within(packer.state, request, topology_key, domains)
        left = cached[1]
        if packer.extra:
            for other, chosen in packer.extra:
                left &= self._within(packer.state, other, chosen)
        return left

    def _accepted_within(
        self, state: PackingState, request: PlacementRequest, topology_key: int | None, domains: Bools | None
    ) -> tuple[int, int]:
        within = self._within(state, topology_key, domains) if topology_key is not None and domains is not None else -1
        seen = self._both[request.node_filter, id(domains)] = (state.size, self._suits(state, request) & within)
        return seen

    def _suits(self, state: PackingState, request: PlacementRequest) -> int:
        """The nodes that pods of the request accept."""
        seen = self._suiting.get(request.node_filter)
        if seen is None:
            seen = self._suiting[request.node_filter] = _Seen()
        while (run := self._runs.get(seen.size)) is not None:
            seen.extend(run[0], bool(request.offerings[run[1]]))
        if seen.size < state.size:
            seen.yes |= bits(state.suitable(request, seen.size, state.size)) << seen.size
            seen.size = state.size
        return seen.yes

    def _within(self, state: PackingState, topology_key: int, domains: Bools) -> int:
        """The nodes in some domains of a topology key. The mask is kept alive because its id is the cache key."""
        cached = self._lying.get(id(domains))
        if cached is None:
            cached = self._lying[id(domains)] = (_Seen(), topology_key, domains)
        seen = cached[0]
        while (run := self._runs.get(seen.size)) is not None:
            seen.extend(run[0], bool(domains[state.frontier.places[run[1]][topology_key]]))
        if seen.size < state.size:
            seen.yes |= bits(domains[state.domains[topology_key, seen.size : state.size]]) << seen.size
            seen.size = state.size
        return seen.yes

    def _excluded_by_hostname_rules(self, state: PackingState, request: PlacementRequest, ignore_counted: bool) -> int:
        """The nodes that hostname rules exclude for the request."""
        excluded, hosts, topology = 0, self._hosts, request.topology
        for counter in topology.host_owned:
            host = hosts.get(counter.slot) or self._host_bits(state, counter)
            if counter.kind == SPREAD:
                excluded |= host.full if counter in topology.own else host.over
            elif counter.kind == ANTI:
                excluded |= host.some
            elif host.some or counter not in topology.own:
                excluded |= ~host.some
        for counter in topology.host_members:
            if counter.kind == ANTI:
                excluded |= (hosts.get(counter.slot) or self._host_bits(state, counter)).inverse
            elif counter.kind == SPREAD and not ignore_counted:
                host = hosts.get(counter.slot) or self._host_bits(state, counter)
                excluded |= host.inverse & host.full
        return excluded

    def _host_bits(self, state: PackingState, counter: TopologyCounter) -> _Hosts:
        cached = self._hosts.get(counter.slot)
        if cached is None:
            counts, owners = (
                state.host_counts[counter.slot, : state.size],
                state.host_owners[counter.slot, : state.size],
            )
            cached = self._hosts[counter.slot] = _Hosts(counts, owners, counter.skew)
        return cached

    def put(self, state: PackingState, request: PlacementRequest, node: int, count: int) -> None:
        """Place pods of the request on a node, and record which hostname rules exclude it from now on."""
        state.put(request, node, count)
        self._close(state, request, node, 1 << node)

    def open_nodes(self, state: PackingState, request: PlacementRequest, offering: int, nodes: int, count: int) -> None:
        """Open nodes with `count` pods of the request on each, and record which hostname rules exclude them."""
        first, again = state.size, bool(state.gone)
        open_nodes(state, request, offering, nodes, count)
        if again:  # closed nodes are reused: their numbers are in the caches
            self.forget()
            return
        self._runs[first] = (state.size, offering)
        self._close(state, request, first, (1 << nodes) - 1 << first)

    def _close(self, state: PackingState, request: PlacementRequest, node: int, bits: int) -> None:
        """Record what pods of the request exclude on nodes (`bits`) that all have as many of them as `node`."""
        hosts, topology = self._hosts, request.topology
        for counter in topology.host_members:
            cached = hosts.get(counter.slot)
            if cached is not None and not cached.over & bits:
                cached.some |= bits
                over = state.host_count(counter, node) - counter.skew
                if over >= 0:
                    cached.full |= bits
                    if over:
                        cached.over |= bits
        for counter in topology.inverse_hosts:
            cached = hosts.get(counter.slot)
            if cached is not None:
                cached.inverse |= bits

    def is_empty(self, state: PackingState, counter: TopologyCounter) -> bool:
        """Whether a hostname topology counter counts no pod on any node."""
        return not self._host_bits(state, counter).some


def _without_room(state: PackingState, request: PlacementRequest) -> int:
    """The nodes that have no room for a pod of the request."""
    if state.size > _MAX_STALE_NODES:
        return bits(state.nodes_without_room(request))
    return state.node_bits_without_room(request)


def bits(chosen: Bools) -> int:
    """The true positions of an array as bits of an integer."""
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
