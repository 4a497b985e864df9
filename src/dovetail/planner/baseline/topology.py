"""Topology in Karpenter's scheduler: how it counts pods by domain, and which domains its rules leave for a pod.

A NodeClaim may still be launched in several domains. Spreads and affinities count a pod only once its domain is
certain; anti-affinities block every domain that is possible for it. A set of domains is an integer bit mask.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from dovetail.planner.cache import PlannerCache
from dovetail.planner.offerings.open_labels import pool_clauses
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter, TopologyKey, honoured
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD, TopologyGroup
from dovetail.planner.requirements import holds, tolerates_all
from dovetail.planner.snapshot import Pool

#: Cached sets of domains from earlier plans, by NodePool and topology key.
_MAX_CACHED_DOMAINS = 1000

#: The node of a pod: the row of an existing node, or the negative number of a claim.
Place = int


class TopologyCounts:
    """Counts of one run: the members of each group, and the owners of required anti-affinities."""

    def __init__(self, problem: Problem, turn: int = 0, before: TopologyCounts | None = None) -> None:
        self._turn = self._draws = turn
        self.left_to_chance = False
        """Whether a tie between domains was broken, which Karpenter does at random."""
        self.named: list[list[str]]
        self._offered: dict[int, int]
        if before is not None:
            self.named, self._offered = before.named, before._offered
        else:
            named = [
                [_named(pool, topology_key.key, problem.snapshot.memory) for pool in problem.pools]
                for topology_key in problem.topology_keys
            ]
            self.named = [
                [*topology_key.values, *sorted(set[str]().union(*values).difference(topology_key.values))]
                for values, topology_key in zip(named, problem.topology_keys, strict=True)
            ]
            self._offered = _offered(problem, named)
        """The domains of each topology key: those of offerings, then empty ones that only NodePools name."""
        self.everywhere = [(1 << len(every)) - 1 for every in self.named]
        self._domains_without_offering = [
            bits(range(len(topology_key.values), len(every)))
            for every, topology_key in zip(self.named, problem.topology_keys, strict=True)
        ]
        self._known = dict(self._offered)
        self.key_index = {topology_key.key: index for index, topology_key in enumerate(problem.topology_keys)}
        self._members: dict[int, dict[int, int]] = {}
        self._owners: dict[int, dict[int, int]] = {}
        self.anti_affinity_groups = {
            group for pod_class in problem.classes for group in pod_class.levels[0].hard if group.kind == ANTI
        }
        for group, counter in problem.counters.items():
            self._members[counter.index] = _counted(counter.counts.tolist())
            self._owners[counter.index] = _counted(counter.owners.tolist())
            if self._owners[counter.index]:
                self.anti_affinity_groups.add(group)
            if not counter.host:
                self._known[counter.index] |= bits(counter.there)

    def host_admits(self, request: PlacementRequest, place: Place) -> bool:
        """Whether hostname rules allow a pod on a node."""
        for counter in request.topology.host_owned:
            here, mine = self._members[counter.index].get(place, 0), counter in request.topology.own
            if counter.kind == SPREAD and here + mine > counter.skew:
                return False
            if counter.kind == ANTI and here:
                return False
            if counter.kind == AFFINITY and not here and (not mine or self._members[counter.index]):
                return False
        return not any(
            counter.kind == ANTI and self._owners[counter.index].get(place, 0)
            for counter in request.topology.host_members
        )

    def closed_hosts(self, request: PlacementRequest) -> set[Place]:
        """Nodes that hostname rules exclude for a pod, computed at once; `host_admits` checks the others completely."""
        places: set[Place] = set()
        for counter in request.topology.host_owned:
            counts, top = self._members[counter.index], counter.skew - (counter in request.topology.own)
            if counter.kind == SPREAD:
                places.update([place for place, here in counts.items() if here > top])
            elif counter.kind == ANTI:
                places.update(counts)
        for counter in request.topology.host_members:
            if counter.kind == ANTI:
                places.update(self._owners[counter.index])
        return places

    def domains(
        self, request: PlacementRequest, strict: list[int], open_to: list[int | None]
    ) -> list[int | None] | None:
        """The domains of a node that are left on each topology key with one more pod; None where a rule forbids it.

        `strict` are the domains that the pod's requirements allow. Each rule chooses independently among the domains
        that the node had before; rules that choose differently exclude each other.
        """
        open_domains = list(open_to)
        rules: list[tuple[TopologyCounter, bool]] = [(counter, True) for counter in request.topology.domain_owned]
        rules += [
            (counter, False)
            for counter in request.topology.domain_members
            if counter.group in self.anti_affinity_groups
        ]
        for counter, own in rules:
            topology_key = self.key_index[counter.group.key]
            now = open_to[topology_key]
            among = self.everywhere[topology_key] if now is None else now
            chosen = (
                self._owner(request, counter, strict[topology_key], among)
                if own
                else self._without_anti_affinity_owners(counter, among)
            )
            before = open_domains[topology_key]
            left = chosen if before is None else chosen & before
            if not left:
                return None
            open_domains[topology_key] = left
        return open_domains

    def _owner(self, request: PlacementRequest, counter: TopologyCounter, strict: int, among: int) -> int:
        if counter.kind == SPREAD:
            return self._lowest(request, counter, strict, among)
        if counter.kind == ANTI:
            return self._clear(self._members, counter, among & strict & self._known[counter.index])
        counted = bits(self._members[counter.index])
        if counted & strict & among:
            return counted & strict & among
        if counter.group not in request.cls.members or counted & strict:
            return 0
        domains = strict & among & self._known[counter.index]
        return self._first_domains(counter, domains, strict & self._known[counter.index]) if domains else 0

    def _first_domains(self, counter: TopologyCounter, here: int, anywhere: int) -> int:
        """The domains for the first pod of a self-affinity: one of the node's and, chosen again, any."""
        return 1 << self._chosen(counter, places(here), {}) | 1 << self._chosen(counter, places(anywhere), {})

    def _lowest(self, request: PlacementRequest, counter: TopologyCounter, strict: int, among: int) -> int:
        """The domain with the lowest count among those that maxSkew allows."""
        counts = self._members[counter.index]
        universe = self._known[counter.index] | self._domains_without_offering[counter.place]
        universe |= bits(counts)  # a domain with pods exists
        seen = [counts.get(place, 0) for place in places(universe & strict)]
        least = min(seen) if seen and len(seen) >= counter.group.min_domains else 0
        top = least + counter.skew - (counter.group in request.cls.members)
        allowed = [place for place in places(universe & among) if counts.get(place, 0) <= top]
        if not allowed:
            return 0
        return 1 << self._chosen(counter, allowed, counts)

    def _chosen(self, counter: TopologyCounter, domains: Iterable[int], counts: Mapping[int, int]) -> int:
        """The domain with the lowest count; Karpenter breaks ties at random each time."""
        self._draws += self._turn
        every = len(self.named[counter.place])
        open_to = list(domains)
        chosen = min(open_to, key=lambda index: (counts.get(index, 0), (index + self._draws) % every))
        if not self.left_to_chance:
            fewest = counts.get(chosen, 0)
            self.left_to_chance = any(index != chosen and counts.get(index, 0) == fewest for index in open_to)
        return chosen

    def _without_anti_affinity_owners(self, counter: TopologyCounter, among: int) -> int:
        """The domains of NodePools without owners of an anti-affinity against the pod."""
        return self._clear(self._owners, counter, among & self._offered[counter.index])

    @staticmethod
    def _clear(topology_counts: dict[int, dict[int, int]], counter: TopologyCounter, among: int) -> int:
        return among & ~bits(topology_counts[counter.index])

    def record(
        self, request: PlacementRequest, place: Place, domains: list[int | None], seen: Iterable[TopologyCounter]
    ) -> None:
        """Count a placed pod; `seen` are the groups that count it there."""
        for counter in seen:
            self._count_pod(self._members[counter.index], counter, place, domains)
        for counter in (*request.topology.inverse_hosts, *request.topology.inverse_domains):
            if counter.kind == ANTI:
                self._count_pod(self._owners[counter.index], counter, place, domains)

    def _count_pod(
        self, topology_counts: dict[int, int], counter: TopologyCounter, place: Place, domains: list[int | None]
    ) -> None:
        if counter.host:
            topology_counts[place] = topology_counts.get(place, 0) + 1
            return
        among = domains[self.key_index[counter.group.key]]
        if among is None or (counter.kind != ANTI and among & (among - 1)):
            return
        for index in places(among):
            topology_counts[index] = topology_counts.get(index, 0) + 1


def _offered(problem: Problem, named: list[list[set[str]]]) -> dict[int, int]:
    """The domains that each group has from NodePools; `named` are the domains of each NodePool by topology key.

    A spread that honours taints uses the NodePools whose taints its pods tolerate, whether or not anything can be
    launched there; an affinity those that its first owner tolerates before any relaxation.
    """
    first: dict[TopologyGroup, PodClass] = {}
    for pod_class in problem.classes:
        for group in (*pod_class.levels[0].hard, *pod_class.levels[0].soft):
            first.setdefault(group, pod_class)
    offered: dict[int, int] = {}
    for group, counter in problem.counters.items():
        if not counter.host:
            tolerated = [_tolerates_pool(group, first.get(group), pool) for pool in problem.pools]
            values = set[str]().union(*itertools.compress(named[counter.place], tolerated))
            offered[counter.index] = _places_of(problem.topology_keys[counter.place], values)
    return offered


def _tolerates_pool(group: TopologyGroup, first: PodClass | None, pool: Pool) -> bool:
    if group.kind == SPREAD:
        tolerations = honoured(group)
        return tolerations is None or tolerates_all(tolerations, pool.taints, prefer=True)
    return first is None or tolerates_all(first.shape.tolerations, pool.taints, prefer=False)


def _named(pool: Pool, key: str, memory: PlannerCache) -> set[str]:
    """The domains of a NodePool, cached while it is the same object."""
    table: dict[tuple[int, str], tuple[Pool, set[str]]] = memory.table("domains")
    cached = table.get((id(pool), key))
    if cached is None or cached[0] is not pool:
        if len(table) >= _MAX_CACHED_DOMAINS:
            table.clear()
        cached = table[id(pool), key] = (pool, _domains_of(pool, key))
    return cached[1]


def _domains_of(pool: Pool, key: str) -> set[str]:
    """The domains of a NodePool: of all its types, whether or not it may launch them, and those that it lists.

    The NodePool's name is not a domain here.
    """
    if key == NODEPOOL:
        return set()
    if key in pool.labels:
        return {pool.labels[key]}
    rules = [pool_clause for pool_clause in pool_clauses(pool) if pool_clause[0] == key]
    values = {value for kind in pool.types for value in _values(kind, key)}
    values.update(value for _, operator, listed in rules if operator == "In" for value in listed)
    return {value for value in values if all(holds(rule, value) for rule in rules)}


def _values(kind: InstanceType, key: str) -> Iterable[str]:
    """The values that a label may have on nodes of a type."""
    if key == INSTANCE_TYPE:
        return (kind.name,)
    if key == ZONE:
        return {offering.zone for offering in kind.offerings if offering.available}
    if key == CAPACITY_TYPE:
        return {offering.capacity_type for offering in kind.offerings if offering.available}
    return kind.labels.get(key, ())


def _places_of(topology_key: TopologyKey, values: set[str]) -> int:
    return bits(index for index, value in enumerate(topology_key.values) if value in values)


def _counted(counts: list[int]) -> dict[int, int]:
    return {index: count for index, count in enumerate(counts) if count}


def bits(where: Iterable[int]) -> int:
    mask = 0
    for index in where:
        mask |= 1 << index
    return mask


def places(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
