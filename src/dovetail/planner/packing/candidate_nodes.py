"""Standing: which nodes may still take a pod of a kind, as bits of an integer, bit b for node b.

While a packing grows, room only shrinks and hostname counts only rise. So a node that was too full for a size of
pod, or closed to it by a hostname rule, stays so; what was found once is kept, and most nodes are never looked at
again. Whatever else happens to a packing state, all of it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.state import PackingState, open_nodes
from dovetail.planner.problem.request import NodeFilter, PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import ANTI, SPREAD

if TYPE_CHECKING:
    from dovetail.planner.packing.packer import Packer


#: After so many nodes that turn out to be full for a size of pod, all are asked again at once.
_STALE = 8


class _Hosts:
    """A hostname topology counter over all nodes: where it counts some, as many as its skew, more, and where it is
    required by others.
    """

    __slots__ = ("full", "inverse", "over", "some")

    def __init__(self, counts: Ints, owners: Ints, skew: int) -> None:
        self.some = bits(counts > 0)
        self.full = bits(counts >= skew) if skew > 0 else -1
        self.over = bits(counts > skew)
        self.inverse = bits(owners > 0)


class _Seen:
    """Nodes that a question was answered with yes for, of as many as there were when it was last asked."""

    __slots__ = ("size", "yes")

    def __init__(self) -> None:
        self.yes = 0
        self.size = 0

    def extend(self, end: int, yes: bool) -> None:
        """Answer for the next nodes, which are all alike."""
        if yes:
            self.yes |= (1 << end) - (1 << self.size)
        self.size = end

    def answer(self, node: int, yes: bool) -> None:
        """Answer anew for a node that is another now."""
        if node < self.size:
            self.yes = self.yes | 1 << node if yes else self.yes & ~(1 << node)


class CandidateNodes:
    """Answers for one packer about the packing state it has."""

    def __init__(self) -> None:
        self._suiting: dict[NodeFilter, _Seen] = {}
        self._lying: dict[int, tuple[_Seen, int, Bools]] = {}
        self._both: dict[tuple[NodeFilter, int], tuple[int, int]] = {}
        """Nodes that suit and lie in some domains, of as many as there were."""
        self._full: dict[int, int] = {}
        self._hosts: dict[int, _Hosts] = {}
        self._runs: dict[int, tuple[int, int]] = {}
        """Nodes launched together: from the first to the end, and the offering that all of them stand on."""

    def forget(self) -> None:
        """Something other than putting pods and opening nodes has happened."""
        self._suiting.clear()
        self._lying.clear()
        self._both.clear()
        self._full.clear()
        self._hosts.clear()
        self._runs.clear()

    def moved(self, state: PackingState, node: int) -> None:
        """A new node stands on another offering, perhaps in domains that did not matter to any pod on it."""
        bit, offering = 1 << node, state.offering[node]
        self._runs.clear()
        self._both.clear()
        self._full = {size: full & ~bit for size, full in self._full.items()}
        for node_filter, seen in self._suiting.items():
            seen.answer(node, bool(node_filter.offerings[offering]))
        for seen, topology_key, domains in self._lying.values():
            seen.answer(node, bool(domains[state.lying(topology_key, node)]))

    def fill(
        self, packer: Packer, request: PlacementRequest, count: int, topology_key: int | None, domains: Bools | None
    ) -> int:
        """Put up to `count` pods of the request on existing nodes, in their order; returns how many."""
        state, problem, size, ruled = packer.state, packer.problem, id(request.steps), request.topology.ruled
        full = self._full.get(size)
        if full is None:
            full = self._full[size] = bits(state.cramped(request))
        left = self.lying(packer, request, topology_key, domains) & ~full
        if ruled and left:
            left &= ~self._barred(state, request, packer.ignore_counted)
        if not left:
            return 0
        state.meter.spent += 1
        got = missed = 0
        while left:
            lowest = left & -left
            node = lowest.bit_length() - 1
            take = state.holds(request, node, count - got)
            if not take:
                left ^= lowest
                if request.shared:  # it will have room once another pod has brought the volumes
                    continue
                full |= lowest
                missed += 1
                if missed == _STALE:
                    full = bits(state.cramped(request))
                    left &= ~full
                continue
            if take > 1 and ruled:
                take = state.cap(request, node, take, packer.ignore_counted)
            if problem.diversity is not None:
                take = state.varied(request, node, take)
            if take:
                state.put(request, node, take)
                if ruled:
                    self._close(state, request, node, lowest)
                got += take
                if got == count:
                    break
            left ^= lowest
        if missed:
            self._full[size] = full
        return got

    def lying(self, packer: Packer, request: PlacementRequest, topology_key: int | None, domains: Bools | None) -> int:
        """The nodes that pods of the request accept, in the domains that they must lie in."""
        cached = self._both.get((request.node_filter, id(domains)))
        if cached is None or cached[0] != packer.state.size:
            cached = self._look(packer.state, request, topology_key, domains)
        left = cached[1]
        if packer.extra:
            for other, chosen in packer.extra:
                left &= self._within(packer.state, other, chosen)
        return left

    def _look(
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
        """The nodes that lie in some domains; a mask is of one topology key, and kept so that its id stays its own."""
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

    def _barred(self, state: PackingState, request: PlacementRequest, ignore_counted: bool) -> int:
        """The nodes that hostname rules close to the request."""
        barred, hosts, topology = 0, self._hosts, request.topology
        for counter in topology.host_owned:
            host = hosts.get(counter.slot) or self._known(state, counter)
            if counter.kind == SPREAD:
                barred |= host.full if counter in topology.own else host.over
            elif counter.kind == ANTI:
                barred |= host.some
            elif host.some or counter not in topology.own:
                barred |= ~host.some
        for counter in topology.host_members:
            if counter.kind == ANTI:
                barred |= (hosts.get(counter.slot) or self._known(state, counter)).inverse
            elif counter.kind == SPREAD and not ignore_counted:
                host = hosts.get(counter.slot) or self._known(state, counter)
                barred |= host.inverse & host.full
        return barred

    def _known(self, state: PackingState, counter: TopologyCounter) -> _Hosts:
        cached = self._hosts.get(counter.slot)
        if cached is None:
            counts, owners = (
                state.host_counts[counter.slot, : state.size],
                state.host_owners[counter.slot, : state.size],
            )
            cached = self._hosts[counter.slot] = _Hosts(counts, owners, counter.skew)
        return cached

    def put(self, state: PackingState, request: PlacementRequest, node: int, count: int) -> None:
        """Put pods of the request on a node, and note what that closes."""
        state.put(request, node, count)
        self._close(state, request, node, 1 << node)

    def open_nodes(self, state: PackingState, request: PlacementRequest, offering: int, nodes: int, count: int) -> None:
        """Open nodes with so many pods of the request on each, and note what that closes."""
        first, again = state.size, bool(state.gone)
        open_nodes(state, request, offering, nodes, count)
        if again:  # some of them stand where others stood before
            self.forget()
            return
        self._runs[first] = (state.size, offering)
        self._close(state, request, first, (1 << nodes) - 1 << first)

    def _close(self, state: PackingState, request: PlacementRequest, node: int, bits: int) -> None:
        """Note what pods of the request close on some nodes that have as many of them as one of these has."""
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
        return not self._known(state, counter).some


def bits(chosen: Bools) -> int:
    """The places of an array that are true, as an integer."""
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
