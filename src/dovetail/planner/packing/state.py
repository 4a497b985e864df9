"""The packing state: nodes with what is on them, and every count that a constraint looks at.

Existing nodes come first, new nodes after them. A new node uses one offering of the frontier and may move to another
one that holds its pods. All counts are updated as pods are placed and removed, so the nodes with room for a pod are
found by a few array operations, whatever the number of nodes. Single values are read and written through memory views
of the same arrays, which are faster than indexing the arrays. The functions at the end change many nodes at once.
"""

from __future__ import annotations

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.packing.attachments import attach, attachable, keep_attachable, new_attachments
from dovetail.planner.packing.price_index import PriceIndex
from dovetail.planner.packing.run import PackingRun, WorkMeter
from dovetail.planner.packing.topology_rules import allow_member, allow_owner, cap_member, cap_owner
from dovetail.planner.problem.compile import UNLIMITED, Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD

_NOTHING: dict[int, int] = {}


class PackingState:
    """Mutable. `contents[b]` maps a request's number to how many of its pods are on node b.

    Those mappings are replaced, never changed, so that a clone may share them.
    """

    def __init__(self, problem: Problem, run: PackingRun | None = None) -> None:
        self.problem = problem
        self.run = run if run is not None else PackingRun(WorkMeter())
        self.meter = self.run.meter
        self.frontier = problem.frontier
        existing = len(problem.nodes)
        self.existing = existing
        self.size = existing
        room = max(64, existing + 64)
        self.free = np.zeros((len(problem.dims), room), dtype=np.int64)
        self.free[:, :existing] = problem.free
        self.offering: Ints = np.full(room, -1, dtype=np.int64)
        self.domains = np.full((len(problem.topology_keys), room), -1, dtype=np.int64)
        for lying, topology_key in zip(self.domains, problem.topology_keys, strict=True):
            lying[:existing] = topology_key.nodes
        self.key_index = {topology_key.key: index for index, topology_key in enumerate(problem.topology_keys)}
        hosts = [counter for counter in problem.counters.values() if counter.host]
        self.host_counts = np.zeros((len(hosts), room), dtype=np.int64)
        self.host_owners = np.zeros((len(hosts), room), dtype=np.int64)
        for counter in hosts:
            self.host_counts[counter.slot, :existing] = counter.counts
            self.host_owners[counter.slot, :existing] = counter.owners
        others = [counter for counter in problem.counters.values() if not counter.host]
        self.counts_by_offering = any(counter.counted_offerings is not None for counter in others)
        """Whether a spread counts pods on some offerings only."""
        self.counts: list[list[int]] = [counter.counts.tolist() for counter in others]
        self.owners: list[list[int]] = [counter.owners.tolist() for counter in others]
        self.contents: list[dict[int, int]] = [_NOTHING] * existing
        self.attached = dict(problem.attached)
        """The shared volumes that nodes have attached, where there are any."""
        self.placement_requests = problem.placement_requests
        self.left = [dict(limit) for limit in problem.limits]
        self._watched = [[name for name in limits_left if name in self.frontier.limited] for limits_left in self.left]
        self.reserved: dict[str, int] = {}
        self.gone: list[int] = []
        self.stamp = object()
        """A new object whenever a node is opened, closed or moved to another offering; caches compare it."""
        self._make_views()

    def _make_views(self) -> None:
        """Make the memory views: a list of rows where there are few rows, else one view indexed by row and node."""
        self._free = [row.data for row in self.free]
        self._lying = [row.data for row in self.domains]
        self._column = self.offering.data
        self._members = self.host_counts.data
        self._inverse = self.host_owners.data

    def join(self, run: PackingRun) -> PackingState:
        """This state as a packing of another run: a baseline may become known after the first packing."""
        self.run, self.meter = run, run.meter
        return self

    def bind_to(self, problem: Problem) -> PackingState:
        """This state as a packing of a problem with the same requests, whose pods may accept other nodes."""
        self.problem, self.placement_requests = problem, problem.placement_requests
        return self

    def clone(self, problem: Problem | None = None) -> PackingState:
        """A copy of this state, for `problem` if given (the same requests with other node filters)."""
        clone = object.__new__(PackingState)
        clone.problem = problem if problem is not None else self.problem
        clone.frontier, clone.existing, clone.size = self.frontier, self.existing, self.size
        clone.run, clone.meter = self.run, self.meter
        clone.free, clone.offering, clone.domains = self.free.copy(), self.offering.copy(), self.domains.copy()
        clone.key_index, clone.counts_by_offering = self.key_index, self.counts_by_offering
        clone.host_counts, clone.host_owners = self.host_counts.copy(), self.host_owners.copy()
        clone.counts = [count.copy() for count in self.counts]
        clone.owners = [owner.copy() for owner in self.owners]
        clone.contents, clone.attached = list(self.contents), dict(self.attached)
        clone.placement_requests = clone.problem.placement_requests
        clone.left = [dict(limits_left) for limits_left in self.left]
        clone._watched = self._watched
        clone.reserved, clone.gone, clone.stamp = dict(self.reserved), list(self.gone), self.stamp
        clone._make_views()
        return clone

    # -- nodes with room -----------------------------------------------------------------------------------------

    def room(
        self, request: PlacementRequest, most: int, ignore_counted: bool = False, start: int = 0
    ) -> tuple[Ints, Ints]:
        """The nodes from `start` on that can take pods of the request, and the number each can take, at most `most`."""
        return self.shares(request, self.fitting(request, start), most, ignore_counted)

    def fitting(
        self, request: PlacementRequest, start: int, lying: Ints | None = None, domains: Bools | None = None
    ) -> Ints:
        """The nodes from `start` on that suit the request and hold a pod of it, ignoring hostname rules.

        `domains` narrows to nodes that lie in some domains of a topology key (`lying`).
        """
        end = self.size
        ok = self.suitable(request, start, end)
        if lying is not None and domains is not None:
            ok &= domains[lying[start:end]]
        for dim, amount in request.steps:
            ok &= self.free[dim, start:end] >= amount
        if request.shared:
            keep_attachable(self, request, ok, start)
        bins: Ints = ok.nonzero()[0]
        bins += start
        return bins

    def shares(self, request: PlacementRequest, bins: Ints, most: int, ignore_counted: bool) -> tuple[Ints, Ints]:
        """Of nodes that hold a pod of the request, those that hostname rules admit, and the number each can take.

        That a node holds one pod is the caller's to know: free resources are read only where `most` is more.
        """
        self.meter.spent += 1
        if not len(bins):
            return bins, bins
        fits = np.full(len(bins), most, dtype=np.int64)
        if most > 1:
            for dim, amount in request.steps:
                np.minimum(fits, self.free[dim].take(bins) // amount, out=fits)
            if request.shared:
                fits[:] = [
                    attachable(self, request, node, fit) for node, fit in zip(bins.tolist(), fits.tolist(), strict=True)
                ]
        for counter in request.topology.host_owned:
            cap_owner(counter, counter in request.topology.own, self.host_counts[counter.slot, : self.size], bins, fits)
        for counter in request.topology.host_members:
            if not (ignore_counted and counter.kind == SPREAD):
                cap_member(counter, self.host_counts[counter.slot], self.host_owners[counter.slot], bins, fits)
        if self.problem.diversity is not None:
            fits[:] = [
                self.most_for_min_values(request, node, fit)
                for node, fit in zip(bins.tolist(), fits.tolist(), strict=True)
            ]
        if fits.all():
            return bins, fits
        some = fits.nonzero()[0]
        return bins[some], fits[some]

    def holds(self, request: PlacementRequest, node: int, most: int) -> int:
        """The number of pods of the request, at most `most`, that fit on a node which suits it."""
        free = self._free
        if request.shared:
            most = attachable(self, request, node, most)
        for dim, amount in request.steps:
            left = free[dim][node]
            if left < amount * most:
                most = left // amount
                if most <= 0:
                    return 0
        return most

    def cap(self, request: PlacementRequest, node: int, most: int, ignore_counted: bool) -> int:
        """The number of pods, at most `most`, that hostname rules allow on a node which they do not exclude."""
        for counter in request.topology.host_owned:
            if counter in request.topology.own and counter.kind != AFFINITY:
                most = min(most, counter.skew - self._members[counter.slot, node] if counter.kind == SPREAD else 1)
        for counter in request.topology.host_members:
            if counter.kind == SPREAD and not ignore_counted and self._inverse[counter.slot, node]:
                most = min(most, counter.skew - self._members[counter.slot, node])
        return most

    def nodes_without_room(self, request: PlacementRequest) -> Bools:
        """The nodes that have no room for a pod of the request, whether or not they suit it."""
        nodes_without_room: Bools = np.zeros(self.size, dtype=np.bool_)
        for dim, amount in request.steps:
            nodes_without_room |= self.free[dim, : self.size] < amount
        return nodes_without_room

    def node_bits_without_room(self, request: PlacementRequest) -> int:
        """`nodes_without_room` as bits of an integer: for a few nodes, single tests are faster than arrays."""
        full = 0
        for dim, amount in request.steps:
            free = self._free[dim]
            for node in range(self.size):
                if free[node] < amount:
                    full |= 1 << node
        return full

    def suitable(self, request: PlacementRequest, start: int, end: int) -> Bools:
        """For each node from `start` to `end`, whether the request accepts it."""
        first = self.existing
        if end <= first:
            return request.nodes[start:end].copy()
        candidate_nodes = self.offering[max(first, start) : end]
        new_nodes = request.offerings[candidate_nodes] & (candidate_nodes >= 0)
        return new_nodes if start >= first else np.concatenate([request.nodes[start:first], new_nodes])

    def most_for_min_values(self, request: PlacementRequest, node: int, most: int) -> int:
        """The number of pods, at most `most`, that leave a node enough instance types for minValues."""
        diversity = self.problem.diversity
        if diversity is None or node < self.existing:
            return most
        held, load = [self.placement_requests[number] for number in self.contents[node]], self.used(node)
        for dim, more in new_attachments(self, request, node):
            load[dim] += more
        return diversity.most(int(self.offering[node]), [*held, request], load, request, most)

    def per_new(self, request: PlacementRequest) -> int:
        """The number of pods of the request that hostname rules allow on an empty new node."""
        most = UNLIMITED
        for counter in request.topology.host_owned:
            mine = counter in request.topology.own
            if counter.kind == SPREAD and mine:
                most = min(most, counter.skew)
            elif counter.kind == ANTI and mine:
                most = min(most, 1)
            elif counter.kind == AFFINITY:
                somewhere = bool((self.host_counts[counter.slot, : self.size] > 0).any())
                if somewhere or not mine:
                    return 0
        return most

    # -- domains ------------------------------------------------------------------------------------------------

    def allowance(
        self,
        request: PlacementRequest,
        topology_key: int,
        ignore_counted: bool = False,
        but: TopologyCounter | None = None,
    ) -> list[int]:
        """How many more pods each domain of a topology key may take, by all topology counters except `but`.

        The last entry is for nodes in no domain.
        """
        allowed = [UNLIMITED] * (len(self.problem.topology_keys[topology_key].values) + 1)
        for counter in request.topology.domain_owned:
            if counter.place == topology_key and counter is not but:
                allow_owner(request, counter, self.counts[counter.slot], allowed)
        for counter in request.topology.domain_members:
            if counter.place == topology_key and counter is not but and not (ignore_counted and counter.kind == SPREAD):
                allow_member(counter, self.counts[counter.slot], self.owners[counter.slot], allowed)
        return allowed

    # -- putting and taking -------------------------------------------------------------------------------------

    def put(self, request: PlacementRequest, bin_: int, count: int) -> None:
        """Place `count` pods of the request on a node (a negative count removes them)."""
        number, held = request.number, self.contents[bin_]
        total = held.get(number, 0) + count
        self.contents[bin_] = held = {**held, number: total}
        if not total:
            del held[number]
        free, lying, topology = self._free, self._lying, request.topology
        for dim, amount in request.steps:
            free[dim][bin_] -= amount * count
        if request.shared:
            attach(self, bin_)
        for counter in topology.host_members:
            self._members[counter.slot, bin_] += count
        for counter in topology.inverse_hosts:
            self._inverse[counter.slot, bin_] += count
        for counter in topology.domain_members:
            node = lying[counter.place][bin_]
            if node >= 0 and (counter.everywhere or self.counted(counter, bin_)):
                self.counts[counter.slot][node] += count
        for counter in topology.inverse_domains:
            node = lying[counter.place][bin_]
            if node >= 0:
                self.owners[counter.slot][node] += count

    def host_count(self, counter: TopologyCounter, bin_: int) -> int:
        return self._members[counter.slot, bin_]

    def domain(self, counter: TopologyCounter, bin_: int) -> int:
        return self._lying[counter.place][bin_]

    def counted(self, counter: TopologyCounter, bin_: int) -> bool:
        """Whether a topology counter counts pods on a node."""
        if bin_ < self.existing:
            return counter.counted_nodes is None or bool(counter.counted_nodes[bin_])
        if counter.counted_offerings is None:
            return True
        return bool(counter.counted_offerings[self.frontier.full[self.offering[bin_]]])

    # -- new nodes ----------------------------------------------------------------------------------------

    def open(self, offering: int) -> int:
        """Open an empty node of an offering of the frontier; returns its index."""
        reused = bool(self.gone)
        if reused:
            open_ = self.gone.pop()
        else:
            open_ = self.size
            if open_ == self.free.shape[1]:
                self._grow()
            self.size += 1
            self.contents.append(_NOTHING)
        for free, amount in zip(self._free, self.frontier.sizes[offering], strict=True):
            free[open_] = amount
        if reused:
            self.host_counts[:, open_] = 0
            self.host_owners[:, open_] = 0
        self._charge(offering, 1)
        self._set_offering(open_, offering)
        return open_

    def open_alike(self, offering: int, nodes: int) -> None:
        """Open several empty nodes of an offering of the frontier, after all others."""
        first, end = self.size, self.size + nodes
        while end > self.free.shape[1]:
            self._grow()
        self.free[:, first:end] = self.frontier.capacity[:, offering, None]
        self.offering[first:end] = offering
        for lying, where in zip(self.domains, self.frontier.places[offering], strict=True):
            lying[first:end] = where
        self.contents += [_NOTHING] * nodes
        self.size = end
        self._charge(offering, nodes)

    def _charge(self, offering: int, nodes: int) -> None:
        """Count nodes of an offering against limits and reservations (negative: no longer)."""
        frontier = self.frontier
        self.stamp = object()
        pool = frontier.pool_at[offering]
        for name in self._watched[pool]:
            self.left[pool][name] -= nodes * int(frontier.limited[name][offering])
        reservation = frontier.reservations[offering]
        if reservation is not None:
            self.reserved[reservation] = self.reserved.get(reservation, 0) + nodes

    def _set_offering(self, node: int, offering: int) -> None:
        self._column[node] = offering
        for lying, where in zip(self._lying, self.frontier.places[offering], strict=True):
            lying[node] = where

    def move(self, node: int, offering: int) -> bool:
        """Move a node to another offering; returns whether that released some of a limit or a reservation."""
        frontier, before = self.frontier, self._column[node]
        for free, now, was in zip(self._free, frontier.sizes[offering], frontier.sizes[before], strict=True):
            free[node] += now - was
        self._charge(before, -1)
        self._charge(offering, 1)
        self._set_offering(node, offering)
        self.recount(node, before, offering)
        if frontier.reservations[before] not in (None, frontier.reservations[offering]):
            return True
        charges = [frontier.limited[name] for name in self.problem.binding]
        return any(charge[offering] < charge[before] for charge in charges)

    def recount(self, node: int, before: int, offering: int) -> None:
        """Update the counters of a node that changed its offering: a spread may count its pods now, or no longer."""
        full = self.frontier.full
        for number, count in self.contents[node].items() if self.counts_by_offering else ():
            for counter in self.placement_requests[number].topology.domain_members:
                counted, domain = counter.counted_offerings, self.domain(counter, node)
                if counted is not None and domain >= 0:
                    self.counts[counter.slot][domain] += count * (
                        int(counted[full[offering]]) - int(counted[full[before]])
                    )

    def close(self, node: int) -> None:
        """Close an empty new node."""
        self._charge(self._column[node], -1)
        self.offering[node] = -1
        self.domains[:, node] = -1
        self.free[:, node] = 0
        self.gone.append(node)

    def clear(self, node: int) -> dict[int, int]:
        """Remove all pods from a new node and close it; returns its contents."""
        held = dict(self.contents[node])
        for number, count in held.items():
            self.put(self.placement_requests[number], node, -count)
        self.close(node)
        return held

    def open_to(self, node: int | None = None) -> Bools:
        """The offerings that limits and reservations still allow: for another node, or for moving `node`."""
        frontier = self.frontier
        ok: Bools = np.ones(frontier.size, dtype=np.bool_)
        before = int(self.offering[node]) if node is not None else -1
        for name in self.problem.binding:
            limits = np.array([left.get(name, UNLIMITED) for left in self.left], dtype=np.int64)
            if before >= 0 and name in self.left[int(frontier.pools[before])]:
                limits[frontier.pools[before]] += frontier.limited[name][before]
            ok &= frontier.limited[name] <= limits[frontier.pools]
        for name, most in self.problem.reservations.items():
            held = self.reserved.get(name, 0) - (before >= 0 and frontier.reservations[before] == name)
            if held >= most:
                ok[frontier.reserved(name)] = False
        return ok

    def exceeds_limits(self) -> bool:
        """Whether new nodes take more of a NodePool's limits than is left of them."""
        return any(
            amount < min(0, limits[name])
            for left, limits in zip(self.left, self.problem.limits, strict=True)
            for name, amount in left.items()
        )

    def _grow(self) -> None:
        more = self.free.shape[1]
        self.free = np.concatenate([self.free, np.zeros((self.free.shape[0], more), dtype=np.int64)], axis=1)
        self.offering = np.concatenate([self.offering, np.full(more, -1, dtype=np.int64)])
        nowhere = np.full((self.domains.shape[0], more), -1, dtype=np.int64)
        self.domains = np.concatenate([self.domains, nowhere], axis=1)
        blank = np.zeros((self.host_counts.shape[0], more), dtype=np.int64)
        self.host_counts = np.concatenate([self.host_counts, blank], axis=1)
        self.host_owners = np.concatenate([self.host_owners, blank], axis=1)
        self._make_views()

    # -- sizing -------------------------------------------------------------------------------------------------

    def new_nodes(self) -> list[int]:
        """The new nodes that are open."""
        first = self.existing
        return [
            index for index, offering in enumerate(self.offering[first : self.size].tolist(), first) if offering >= 0
        ]

    def changed(self, before: PackingState) -> list[int]:
        """The new nodes whose contents differ from those of the state this one was cloned from."""
        held = before.contents
        return [node for node in self.new_nodes() if node >= before.size or self.contents[node] is not held[node]]

    def offering_of(self, node: int) -> int:
        """The offering of a new node."""
        return self._column[node]

    def lying(self, topology_key: int, node: int) -> int:
        """The domain of a topology key that a node lies in."""
        return self._lying[topology_key][node]

    def used(self, node: int) -> list[int]:
        """The resources that the pods on a new node use, by dimension."""
        return [
            size - free[node] for size, free in zip(self.frontier.sizes[self._column[node]], self._free, strict=True)
        ]

    def cost(self) -> float:
        candidate_nodes = self.offering[self.existing : self.size]
        return float(self.frontier.prices[candidate_nodes[candidate_nodes >= 0]].sum())


#: From this many nodes on, opening them in one array operation is faster than one by one.
_MIN_BULK_NODES = 3


def open_nodes(state: PackingState, request: PlacementRequest, offering: int, nodes: int, count: int) -> None:
    """Open nodes of an offering of the frontier, with `count` pods of the request on each."""
    if nodes < _MIN_BULK_NODES or state.gone or request.shared:
        for _ in range(nodes):
            state.put(request, state.open(offering), count)
        return
    first = state.size
    state.open_alike(offering, nodes)
    fresh = slice(first, state.size)
    state.free[:, fresh] -= count * request.amounts[:, None]
    for counter in request.topology.host_members:
        state.host_counts[counter.slot, fresh] = count
    for counter in request.topology.inverse_hosts:
        state.host_owners[counter.slot, fresh] = count
    _count(state, request, first, nodes * count)
    state.contents[fresh] = [{request.number: count}] * nodes


def put_all(state: PackingState, request: PlacementRequest, bins: Ints, counts: Ints) -> None:
    """Place pods of the request on new nodes in the same domains; the caller updates `contents`."""
    state.free[:, bins] -= request.amounts[:, None] * counts
    for counter in request.topology.host_members:
        state.host_counts[counter.slot, bins] += counts
    for counter in request.topology.inverse_hosts:
        state.host_owners[counter.slot, bins] += counts
    _count(state, request, int(bins[0]), int(counts.sum()))


def move_all(state: PackingState, nodes: Ints, price_index: PriceIndex) -> None:
    """Move new nodes to the cheapest offering of their price index that holds their pods, where nothing is limited."""
    capacity, candidate_nodes = state.frontier.capacity, state.offering[nodes]
    used = capacity[:, candidate_nodes] - state.free[:, nodes]
    best = price_index.firsts(used)
    moving = (best >= 0) & (best != candidate_nodes)
    nodes, best, candidate_nodes = nodes[moving], best[moving], candidate_nodes[moving]
    state.free[:, nodes] += capacity[:, best] - capacity[:, candidate_nodes]
    if state.counts_by_offering:
        for node, before, offering in zip(nodes.tolist(), candidate_nodes.tolist(), best.tolist(), strict=True):
            state.recount(node, before, offering)
    state.offering[nodes] = best
    for lying, where in zip(state.domains, state.frontier.domains, strict=True):
        lying[nodes] = where[best]
    state.stamp = object()


def used_by_all(state: PackingState) -> list[list[int]]:
    """The resources that the pods on each new node use, by dimension."""
    new_nodes = slice(state.existing, state.size)
    used: list[list[int]] = (
        state.frontier.capacity[:, state.offering[new_nodes]] - state.free[:, new_nodes]
    ).T.tolist()
    return used


def _count(state: PackingState, request: PlacementRequest, node: int, total: int) -> None:
    """Add `total` pods to the counters of the domains of a node."""
    for counter in request.topology.domain_members:
        domain = state.domain(counter, node)
        if domain >= 0 and state.counted(counter, node):
            state.counts[counter.slot][domain] += total
    for counter in request.topology.inverse_domains:
        domain = state.domain(counter, node)
        if domain >= 0:
            state.owners[counter.slot][domain] += total
