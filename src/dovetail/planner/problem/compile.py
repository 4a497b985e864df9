"""The problem: a snapshot compiled into arrays and masks, with everything that packing needs computed once.

The capacity of an offering is what daemons leave of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec.structs import replace

from dovetail.model.labels import HOSTNAME
from dovetail.model.nodes import Taint
from dovetail.model.taints import PREFER_NO_SCHEDULE
from dovetail.planner.offerings.catalog import Bools, Ints, LabelQueries, OfferingCatalog, possible_types
from dovetail.planner.offerings.interchangeable import distinct_pools
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.min_values import Diversity, larger_offerings, min_values_keys, single_node_affinities
from dovetail.planner.problem.node_index import node_index_of, present
from dovetail.planner.problem.nodes import Daemon, daemons_of, node_labels, passes
from dovetail.planner.problem.pod_classes import TOO_MUCH, ConstraintClass, PodClass, classes_of, pods_by_shape
from dovetail.planner.problem.preferences import preferences_of
from dovetail.planner.problem.relaxation import RelaxationLevel
from dovetail.planner.problem.request import (
    NOWHERE,
    LevelConstraints,
    MemberCounters,
    NodeFilter,
    OwnedCounters,
    PlacementRequest,
    TopologyConstraints,
)
from dovetail.planner.problem.resources import EVERYWHERE, PORT, demand_of, port_requests, with_ports
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.problem.spread_order import BindPrecedence
from dovetail.planner.problem.topology_counters import add_owners, counters_of, keep_rows, rows_passing, tolerated
from dovetail.planner.problem.topology_groups import ANTI, TopologyGroup, affinity_group, known_namespaces
from dovetail.planner.problem.volumes import Volume, held
from dovetail.planner.requirements import Term, tolerates_all
from dovetail.planner.snapshot import MinValues, Pool, Snapshot

UNLIMITED = 1 << 60
#: From this many existing nodes on, full ones are left out of the packing.
_MIN_NODES_TO_DROP_FULL = 200
#: How much of a limited resource a plan may use: a multiple of what its pods request, and so many of the largest nodes.
_WORST_FILLING, _SENSIBLE_NODES, _MOST_NODES = 8, 2, 64
#: Cached largest capacities from earlier plans, by the types of a NodePool and resource.
_MAX_CACHED_CAPACITIES = 1000
_kind = attrgetter("kind")


class Problem:
    """A compiled, frozen snapshot: what changes during planning is in `PackingState` and `PackingRun`.

    kube-scheduler checks a spread only for its owners. With `owners_first`, members that do not own a spread are not
    counted by it: they are bound after its owners. Without it, a spread holds for any binding order.

    Of NodePools that no pod can distinguish, as many are kept as a sensible plan needs for their limits; with
    `more_pools`, as many as any plan could need.

    With `owners_only`, and where NodePools have minValues, a preferred spread counts only pods that still own it.
    Counting others would fix a label of their nodes, which may leave too few instance types.
    """

    frontier: OfferingFrontier

    def __init__(
        self, snapshot: Snapshot, owners_first: bool = False, more_pools: bool = False, owners_only: bool = False
    ) -> None:
        self.snapshot = snapshot
        self.owners_first = owners_first
        self.more_pools = more_pools
        self.owners_only = owners_only
        self.pools = sorted(snapshot.pools, key=lambda pool: (-pool.weight, pool.name))
        self.daemons = daemons_of(snapshot)
        with snapshot.memory.lock:
            self._compile()
        self._frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if "_frozen" in self.__dict__:
            raise AttributeError(f"Problem is frozen: {name} cannot be set")
        super().__setattr__(name, value)

    def with_node_filters(self, filters: Mapping[int, NodeFilter]) -> Problem:
        """The same problem with other node filters for some requests, by number."""
        if not filters:
            return self
        twin = copy(self)
        values = twin.__dict__
        values["_placement_requests"] = [
            [
                replace(request, node_filter=filters[request.number]) if request.number in filters else request
                for request in levels
            ]
            for levels in self._placement_requests
        ]
        values["order_cache"] = {}
        values["first_requests"] = [levels[0] for levels in twin._placement_requests]
        values["placement_requests"] = list(chain.from_iterable(twin._placement_requests))
        return twin

    def _compile(self) -> None:
        snapshot = self.snapshot
        node_index = self.node_index = node_index_of(snapshot)
        node_index.sync(snapshot.nodes, self.daemons, snapshot.daemons)
        snapshot.memory.trim(pods=len(snapshot.pending) + node_index.population, nodes=len(snapshot.nodes))
        self.nodes = self.all_nodes = node_index.all_nodes
        self.names, (self.taints, self.taint_at) = node_index.alike, node_index.taints()
        self._known_masks: dict[object, int] = {}
        self._compile_classes()
        self._compile_catalog()
        if self.min_values and not self.nodes:
            close = single_node_affinities(self.kinds, self.catalog, self._mask, self.min_values)
            if close:
                self._compile_classes(close)
        self._compile_dimensions()
        self.counters, self.topology_keys = counters_of(self.groups, self.catalog, node_index)
        for group, where in self.running_anti_affinities.items():
            if group in self.counters:
                add_owners(self.counters[group], where)
        self._placement_requests: list[list[PlacementRequest]] = []
        self._known_owned: dict[int, OwnedCounters] = {}
        self._known_counting: dict[tuple[int, frozenset[TopologyGroup]], MemberCounters] = {}
        self._known_topology: dict[object, TopologyConstraints] = {}
        self._known_terms: dict[tuple[Term, ...], Bools] = {}
        self._known_taints: dict[object, Bools] = {}
        self._known_nodes: dict[object, Bools] = {}
        self._known_filters: dict[object, NodeFilter] = {}
        self.weighted = False
        self.constraints_cache: dict[Any, Any] = {}
        """Constraints of pods that share a node, by their node filters; see `resize`."""
        self.order_cache: dict[Any, Any] = {}
        """Orders of the classes, by the parameters of a strategy; see `pack`."""
        self.limits = self._limits()
        self.reservations = self.catalog.reservations()
        self._drop_full()
        self._compile_requests()
        self.preferences = preferences_of(self)

    # -- classes ------------------------------------------------------------------------------------------------

    def _compile_classes(self, close: frozenset[TopologyGroup] = frozenset()) -> None:
        running = self.node_index.shapes_with_anti_affinity()
        by_shape = pods_by_shape(self.snapshot)
        namespaces = known_namespaces(self.snapshot, [shape for shape, _ in running])
        for name in {shape.namespace for shape in by_shape}:
            namespaces.setdefault(name, {"kubernetes.io/metadata.name": name})
        self.running_anti_affinities: dict[TopologyGroup, dict[int, int]] = {}
        for shape, rows in running:
            for group in {affinity_group(near, ANTI, namespaces) for near in shape.anti if not near.weight}:
                where = self.running_anti_affinities.setdefault(group, {})
                for row, count in rows.items():
                    where[row] = where.get(row, 0) + count
        taints = {pool.taints for pool in self.pools} | self.tainted
        has_avoided_taints = any(taint.effect == PREFER_NO_SCHEDULE for pool_taints in taints for taint in pool_taints)
        self.classes, groups, self.sharing = classes_of(
            by_shape,
            self.snapshot,
            namespaces,
            has_avoided_taints,
            list(self.running_anti_affinities),
            close,
            lambda: self._known_held.values(),
        )
        kinds = list(map(_kind, self.classes))
        number = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
        self.kinds = list(number)
        self.kind_at: Ints = np.array([number[kind] for kind in kinds], dtype=np.int64)
        self.total = sum([pod_class.count for pod_class in self.classes])
        counted = set[TopologyGroup]().union(*{kind.members for kind in self.kinds})
        owned = {group for level in {kind.levels[0] for kind in self.kinds} for group in (*level.hard, *level.soft)}
        self.groups = [group for group in groups if group in owned or group in counted]

    @property
    def tainted(self) -> set[tuple[Taint, ...]]:
        """The sets of taints on existing nodes."""
        return {self.taints[index] for index in present(self.taint_at) if self.taints[index]}

    @cached_property
    def order(self) -> BindPrecedence:
        """Which pods are bound after the owners of which spreads."""
        return BindPrecedence(self.kinds)

    @cached_property
    def relaxed(self) -> dict[int, int]:
        """The number of relaxed preferences by number of the request, where there are any."""
        return {
            request.number: len(request.level.relaxed) for request in self.placement_requests if request.level.relaxed
        }

    # -- offerings ------------------------------------------------------------------------------------------------

    def _compile_catalog(self) -> None:
        terms: list[Term] = [term for kind in self.kinds for level in kind.levels for term in level.terms]
        terms += [term for kind in self.kinds for term in kind.alternatives if term]
        terms += [term for daemon in self.daemons for term in daemon.shape.required]
        label_queries = LabelQueries(dict.fromkeys(terms), (group.key for group in self.groups))
        self._keep_distinct_pools(terms)
        key = (
            tuple(id(pool) for pool in self.pools),
            tuple(label_queries.values.items()),
            self.snapshot.unavailable,
            tuple(id(daemon) for daemon in self.snapshot.daemons),
        )
        table = self.snapshot.memory.table("offerings")
        cached = table.get(key)
        if cached is None:
            if len(table) > 8:
                table.clear()
            catalog = build_catalog(self.pools, label_queries, self.snapshot.unavailable, self.daemons)
            cached = table[key] = (catalog, self.pools, self.snapshot.daemons)
        self.catalog: OfferingCatalog = cached[0]

    def _keep_distinct_pools(self, terms: list[Term]) -> None:
        """Drop NodePools that offer the same as another one, and compile the minValues of the others."""
        preferred = [term for pod_class in self.classes for _, term in pod_class.shape.preferred]
        counted = [term for group in self.groups for term in group.terms or ()]
        all_terms, keys = (*terms, *preferred, *counted), {group.key for group in self.groups}
        self.pools, self.stands_for = distinct_pools(self.pools, all_terms, keys, self._share_of_use)
        strict = self.snapshot.min_values is MinValues.STRICT
        self.min_values = {
            index: [
                (requirement.key, requirement.min_values) for requirement in pool.requirements if requirement.min_values
            ]
            for index, pool in enumerate(self.pools)
            if strict and any(requirement.min_values for requirement in pool.requirements)
        }

    def _share_of_use(self, pool: Pool) -> float:
        """The share of what a plan for these pods uses for which a NodePool surely has room in its limits, up to 1.

        Up to its largest node of a limit may stay unused, because no further node fits.
        """
        share = 1.0
        for name, limit in pool.limits.items():
            demand = sum(pod_class.count * pod_class.requests.get(name, 0) for pod_class in self.classes)
            largest = _largest_capacity(self.snapshot, pool, name)
            left = max(0, limit) - self.node_index.pool_usage[pool.name][name]
            use = self._worst_use(name, demand, largest, _MOST_NODES if self.more_pools else _SENSIBLE_NODES)
            if left < use:
                share = min(share, max(0, left - largest) / use)
        return share

    def _worst_use(self, name: str, demand: int, largest: int, nodes: int = _MOST_NODES) -> int:
        """An upper bound of the limited resource that a plan with so many largest nodes uses for these pods."""
        return self.total if name == "nodes" else _WORST_FILLING * demand + largest * min(self.total, nodes)

    @property
    def may_lack_pools(self) -> bool:
        """Whether NodePools were left out that could take pods once the limits of those that are kept are reached."""
        return bool(self.stands_for and self.binding) and not self.more_pools

    # -- dimensions ---------------------------------------------------------------------------------------------

    def _compile_dimensions(self) -> None:
        addresses: dict[tuple[str, int], set[str]] = {}
        ports = [port for pod_class in self.classes if pod_class.shape.ports for port in pod_class.shape.ports]
        ports += [port for daemon in self.daemons for port in daemon.shape.ports]
        ports += [port for _, fact in self.node_index.using() for port in fact.ports]
        for ip, protocol, number in ports:
            addresses.setdefault((protocol, number), set()).add(ip)
        self.dims, self.requests, self.counts, self._known_sizes, self.demand = demand_of(
            self.classes, addresses, self.sharing
        )
        self.sharing = self.sharing.over(self.dims)
        self.shared_dims = {dim for dim, _ in self.sharing.by_dim}
        """Dimensions in which pods together take less than the sum of each: lower bounds must ignore them."""
        for name in self.dims:
            if name.startswith(PORT):
                self.catalog.set_amounts(name, self._ports(name))
            elif name.startswith(ATTACH):
                most = [entry.type.attach_limits.get(driver_of(name), TOO_MUCH) for entry in self.catalog.rows]
                self.catalog.set_amounts(name, np.array(most, dtype=np.int64))
        self.free = np.zeros((len(self.dims), len(self.nodes)), dtype=np.int64)
        for dim, name in enumerate(self.dims):
            self.free[dim] = self._free(name, addresses)
        using = self._known_held.items() if self.sharing.bits else ()
        self.attached = {row: self.sharing.mask(volumes) for row, volumes in using}
        """The shared volumes attached to existing nodes, by row."""

    def _ports(self, name: str) -> Ints:
        """The amount of a port on each offering: one, or none where a daemon listens on the port on every address."""
        everywhere = f"{name.rpartition('/')[0]}/{EVERYWHERE}"
        ports = np.ones(self.catalog.size, dtype=np.int64)
        shared = everywhere != name and everywhere in self.catalog.overhead_resources()
        return ports - self.catalog.overhead(everywhere) if shared else ports

    @cached_property
    def _known_held(self) -> dict[int, set[Volume]]:
        """The volumes that pods on nodes use, by row."""
        return {row: held(fact.claims, self.snapshot) for row, fact in self.node_index.using()}

    def _free(self, name: str, addresses: dict[tuple[str, int], set[str]]) -> Ints:
        """The free amount of a dimension on each existing node."""
        if name.startswith(PORT):
            free = np.ones(len(self.nodes), dtype=np.int64)
            for row, fact in self.node_index.using():
                free[row] -= port_requests(tuple(fact.ports), addresses).get(name, 0)
            return free
        if name.startswith(ATTACH):
            left = np.array([node.attach_limits.get(driver_of(name), TOO_MUCH) for node in self.nodes], dtype=np.int64)
            for row, volumes in self._known_held.items():
                left[row] -= sum(ATTACH + driver == name for driver, _ in volumes)
            return left
        return self.node_index.free(name)

    # -- limits -------------------------------------------------------------------------------------------------

    def _limits(self) -> list[dict[str, int]]:
        """The remaining limits of each NodePool, by resource."""
        new_nodes = [self.node_index.pool_usage[pool.name] for pool in self.pools]
        return [
            {name: max(0, limit) - had[name] for name, limit in pool.limits.items()}
            for pool, had in zip(self.pools, new_nodes, strict=True)
        ]

    def _binding(self) -> list[str]:
        """The limited resources that these pods could exhaust; other limits need no checks."""
        binding: set[str] = set()
        for index, left in enumerate(self.limits):
            for name, amount in left.items():
                if amount < self._worst_use(name, self.demand.get(name, 0), self.catalog.largest(name, index)):
                    binding.add(name)
        return sorted(binding)

    def _drop_full(self) -> None:
        """Drop nodes without room for the smallest request of each dimension."""
        self.rows: Ints = np.arange(len(self.nodes))
        if len(self.nodes) < _MIN_NODES_TO_DROP_FULL or not self.classes:
            return
        ok: Bools = (self.free >= self.requests.min(axis=0)[:, None]).all(axis=0)
        if ok.all():
            return
        self.rows = np.flatnonzero(ok)
        self.attached = {
            index: self.attached[row] for index, row in enumerate(self.rows.tolist()) if row in self.attached
        }
        self.free = np.ascontiguousarray(self.free[:, self.rows])
        self.nodes = self.nodes.some(self.rows)
        self.taint_at = self.taint_at[self.rows]
        keep_rows(list(self.counters.values()), self.topology_keys, self.rows)

    # -- requests -----------------------------------------------------------------------------------------------

    def _compile_requests(self) -> None:
        self.binding = self._binding()
        self.weighted = bool(self.binding) and len({pool.weight for pool in self.pools}) > 1
        masks = {kind: [self._mask(kind, level) for level in kind.levels] for kind in self.kinds}
        limited = [name for name in self.binding if name != "nodes"]
        self.frontier = self._frontier(list(chain.from_iterable(masks.values())), limited)
        self.diversity = Diversity(self) if self.min_values else None
        if self.diversity is not None:
            self.frontier = self.diversity.listed(self.frontier)
        self.uncounted = self._only_preferred() if self.min_values else frozenset[TopologyGroup]()
        self.constraints = {kind: self._constraints_by_level(kind, masks[kind]) for kind in self.kinds}
        number = 0
        for pod_class, size in zip(self.classes, self._known_sizes, strict=True):
            placement_requests: list[PlacementRequest] = []
            for level, topology, node_filter in self.constraints[pod_class.kind]:
                placement_requests.append(
                    PlacementRequest(
                        number, pod_class, size.amounts, size.steps, level, topology, node_filter, size.shared
                    )
                )
                number += 1
            self._placement_requests.append(placement_requests)
        self.first_requests = [placement_requests[0] for placement_requests in self._placement_requests]
        self.placement_requests = list(chain.from_iterable(self._placement_requests))
        """Every class at every relaxation level, by number."""

    def _only_preferred(self) -> frozenset[TopologyGroup]:
        """Groups of preferences over a label that minValues leave open: they count only pods that still own them.

        Counting a pod would fix the label on its node, and then the node would no longer meet minValues.
        """
        topology_keys = {group.key for group in self.counters}
        label_keys = (
            topology_keys - {HOSTNAME}
            if self.owners_only
            else min_values_keys(self.catalog, self.min_values, topology_keys)
        )
        return frozenset(group for group in self._preferred_groups() if group.key in label_keys)

    def _preferred_groups(self) -> list[TopologyGroup]:
        """Groups that are owned as preferences alone."""
        needed = {group for kind in self.kinds for group in kind.levels[0].hard} | self.running_anti_affinities.keys()
        return [group for group in self.counters if group not in needed]

    @property
    def counts_relaxed(self) -> bool:
        """Whether a preferred spread counts pods that no longer own it, where NodePools have minValues."""
        return bool(self.min_values) and any(
            group.key != HOSTNAME and group not in self.uncounted for group in self._preferred_groups()
        )

    def _constraints_by_level(self, kind: ConstraintClass, masks: list[int]) -> list[LevelConstraints]:
        """The relaxation levels of a kind, with the topology counters and the accepted nodes of each."""
        constraints = []
        foreign: frozenset[TopologyGroup] = frozenset(self.order.foreign(kind)) if self.owners_first else frozenset()
        for level, mask in zip(kind.levels, masks, strict=True):
            key = (id(level), id(kind.members))
            topology = self._known_topology.get(key)
            if topology is None:
                unseen = foreign | self.uncounted.difference(level.soft) if self.uncounted else foreign
                topology = self._known_topology[key] = TopologyConstraints(
                    self._owned(level), self._counting(kind.members, unseen)
                )
            constraints.append(LevelConstraints(level, topology, self._node_filter(kind, level, topology, mask)))
        return constraints

    def _owned(self, level: RelaxationLevel) -> OwnedCounters:
        cached = self._known_owned.get(id(level))
        if cached is None:
            cached = self._known_owned[id(level)] = OwnedCounters(self.counters, level)
        return cached

    def _counting(self, members: frozenset[TopologyGroup], unseen: frozenset[TopologyGroup]) -> MemberCounters:
        cached = self._known_counting.get((id(members), unseen))
        if cached is None:
            cached = self._known_counting[id(members), unseen] = MemberCounters(self.counters, members, unseen)
        return cached

    def _node_filter(
        self, kind: ConstraintClass, level: RelaxationLevel, topology: TopologyConstraints, mask: int
    ) -> NodeFilter:
        """The node filter of a kind at a level; equal filters are one object."""
        nodes = self._nodes_for(kind, level)
        key = (mask, id(nodes), *topology.keys)
        cached = self._known_filters.get(key)
        if cached is None:
            cached = self._known_filters[key] = NodeFilter(self.frontier.shown[mask], mask, nodes, tuple(topology.keys))
        return cached

    def _frontier(self, masks: list[int], limited: list[str]) -> OfferingFrontier:
        topology_keys = tuple((topology_key.key, *topology_key.values) for topology_key in self.topology_keys)
        pools_with_min_values = frozenset(self.min_values)
        key = (
            id(self.catalog),
            tuple(self.dims),
            frozenset(masks),
            topology_keys,
            tuple(limited),
            pools_with_min_values,
        )
        table = self.snapshot.memory.table("frontiers")
        cached = table.get(key)
        if cached is None:
            if len(table) > 8:
                table.clear()
            wide = larger_offerings(self.catalog, self.dims, self.min_values) if pools_with_min_values else None
            frontier = OfferingFrontier(self.catalog, self.dims, masks, self.topology_keys, limited, wide)
            cached = table[key] = (frontier, self.catalog)
        offering_frontier: OfferingFrontier = cached[0]
        return offering_frontier

    def __getstate__(self) -> dict[str, Any]:
        """What packing needs, without the snapshot: small enough for the child process."""
        state = self.__dict__.copy()
        names = [name for name in state if name.startswith("_known")]
        for name in ("snapshot", "node_index", "all_nodes", "daemons", "fears", *names):
            state.pop(name, None)
        state["nodes"] = [None] * len(self.nodes)
        state["constraints_cache"] = {}
        state["pools"] = [replace(pool, types=()) for pool in self.pools]
        if self.diversity is None:
            del state["catalog"]
        return state

    def request(self, pod_class: PodClass, level_index: int) -> PlacementRequest:
        return self._placement_requests[pod_class.index][level_index]

    def levels_of(self, pod_class: PodClass) -> list[PlacementRequest]:
        return self._placement_requests[pod_class.index]

    def _mask(self, kind: ConstraintClass, level: RelaxationLevel) -> int:
        key = (level.terms, level.tolerates_prefer_no_schedule, kind.tolerated, kind.alternatives)
        cached = self._known_masks.get(key)
        if cached is None:
            catalog = self.catalog
            mask = catalog.any_term(level.terms) & catalog.any_term(kind.alternatives) & catalog.available
            cached = mask & tolerated(catalog, kind.tolerations, level.tolerates_prefer_no_schedule)
            self._known_masks[key] = cached
        return cached

    def _nodes_for(self, kind: ConstraintClass, level: RelaxationLevel) -> Bools:
        if not self.nodes:
            return NOWHERE
        key = (level.terms, kind.alternatives, kind.tolerations, level.tolerates_prefer_no_schedule)
        known_node = self._known_nodes.get(key)
        if known_node is None:
            known_node = self._known_nodes[key] = self._find_nodes(kind, level)
        return known_node

    def _find_nodes(self, kind: ConstraintClass, level: RelaxationLevel) -> Bools:
        ok = self.passing(level.terms)
        if kind.alternatives != ((),):
            ok = ok & self.passing(kind.alternatives)
        if not self.tainted:
            return ok
        key = (kind.tolerations, level.tolerates_prefer_no_schedule)
        cached = self._known_taints.get(key)
        if cached is None:
            tolerated_sets = [
                not taint or tolerates_all(kind.tolerations, taint, level.tolerates_prefer_no_schedule)
                for taint in self.taints
            ]
            cached = self._known_taints[key] = np.array(tolerated_sets, dtype=np.bool_)[self.taint_at]
        return ok & cached

    def passing(self, terms: tuple[Term, ...]) -> Bools:
        """The existing nodes whose labels satisfy any of the terms."""
        cached = self._known_terms.get(terms)
        if cached is None:
            cached = self._known_terms[terms] = self._find_passing(terms)
        return cached

    def _find_passing(self, terms: tuple[Term, ...]) -> Bools:
        with self.snapshot.memory.lock:
            if self.node_index.belongs_to(self.snapshot.nodes):
                return rows_passing(self.node_index, terms)[self.rows]
        return np.array([passes(node_labels(node), terms) for node in self.nodes], dtype=np.bool_)


def _largest_capacity(snapshot: Snapshot, pool: Pool, name: str) -> int:
    """The largest capacity of a resource among the types that a NodePool may launch, cached for NodePools alike."""
    table: dict[object, tuple[object, int]] = snapshot.memory.table("largest capacities")
    key = (id(pool.types), pool.requirements, frozenset(pool.labels), name)
    cached = table.get(key)
    if cached is None or cached[0] is not pool.types:
        if len(table) >= _MAX_CACHED_CAPACITIES:
            table.clear()
        largest = max((kind.capacity.get(name, 0) for kind in possible_types(pool)), default=0)
        cached = table[key] = (pool.types, largest)
    return cached[1]


Unavailable = frozenset[tuple[str, str, str]]


def build_catalog(
    pools: Sequence[Pool], label_queries: LabelQueries, unavailable: Unavailable, daemons: Iterable[Daemon]
) -> OfferingCatalog:
    catalog = OfferingCatalog(pools, label_queries, unavailable)
    for daemon in daemons:
        mask = catalog.any_term(daemon.shape.required) & tolerated(catalog, daemon.tolerations, prefer=True)
        catalog.add_overhead(mask, with_ports(daemon.shape.requests, daemon.shape.ports))
    catalog.exclude_overcommitted(ignored=(PORT, ATTACH))
    return catalog
