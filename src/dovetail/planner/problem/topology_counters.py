"""Topology counters: the counts of topology groups by domain.

A spread counts only nodes that its policies admit, and takes its minimum over every domain that the NodePools could
launch nodes in, not only those with nodes. On the hostname key each node is its own domain and the minimum is 0,
because a new node is always possible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.model.labels import HOSTNAME
from dovetail.model.pods import Toleration
from dovetail.planner.offerings.catalog import Bools, Ints, OfferingCatalog
from dovetail.planner.problem.node_index import NodeIndex, present
from dovetail.planner.problem.nodes import passes
from dovetail.planner.problem.topology_groups import ANTI, SPREAD, TopologyGroup
from dovetail.planner.requirements import Term, holds, tolerates_all


class TopologyKey:
    """A topology key (not the hostname) with its domains, and the domain of each node and offering."""

    __slots__ = ("at", "key", "nodes", "offerings", "there", "values")

    def __init__(self, key: str, catalog: OfferingCatalog, node_index: NodeIndex) -> None:
        self.key = key
        by_label = {value: mask & catalog.available for value, mask in catalog.by_label(key).items()}
        offered = {value for value, mask in by_label.items() if mask and value is not None}
        codes_by_value, lying = node_index.codes(key)
        values = list(codes_by_value)
        there = {value for index in present(lying) if (value := values[index]) is not None}
        self.values = sorted(offered | there)
        self.at = {value: index for index, value in enumerate(self.values)}
        place = np.array([self.at.get(value or "", -1) for value in codes_by_value], dtype=np.int64)
        self.nodes: Ints = place[lying] if len(lying) else lying
        self.there = frozenset(present(self.nodes))
        """The domains of the existing nodes, including full ones."""
        self.offerings: Ints = np.full(catalog.size, -1, dtype=np.int64)
        for value, mask in by_label.items():
            if value is not None and mask:
                self.offerings[catalog.bools(mask)] = self.at[value]


class TopologyCounter:
    """A group with its initial counts. `topology_key` is None for the hostname; `place` is the index of the key.

    `universe` are the domains of a spread's minimum, `among` their indices, `beyond` the indices of other domains.
    """

    __slots__ = (
        "among",
        "beyond",
        "counted_nodes",
        "counted_offerings",
        "counts",
        "everywhere",
        "group",
        "host",
        "index",
        "kind",
        "owners",
        "place",
        "skew",
        "slot",
        "there",
        "topology_key",
        "universe",
    )

    def __init__(
        self, index: int, slot: int, group: TopologyGroup, topology_key: TopologyKey | None, place: int
    ) -> None:
        self.index = index
        self.slot = slot
        self.group = group
        self.kind, self.skew = group.kind, group.max_skew
        self.topology_key = topology_key
        self.place = place
        self.host = topology_key is None
        self.among: list[int] = []
        self.beyond: list[int] = []
        self.counts: Ints = np.zeros(0, dtype=np.int64)
        self.owners: Ints = np.zeros(0, dtype=np.int64)
        self.universe: Bools = np.zeros(0, dtype=np.bool_)
        self.there: frozenset[int] = frozenset()
        """The domains of the existing nodes that it counts, including full ones."""
        self.counted_nodes: Bools | None = None
        self.counted_offerings: Bools | None = None
        self.everywhere = True
        """Whether it counts pods on all nodes."""

    @property
    def open_ended(self) -> bool:
        """Whether all of its domains can take any number of pods if their counts rise evenly."""
        return len(self.among) >= self.group.min_domains


def _fill_counter(counter: TopologyCounter, catalog: OfferingCatalog, node_index: NodeIndex) -> None:
    """Count running pods, and set the domains of the minimum."""
    group = counter.group
    tolerations = honoured(group)
    filtered = group.terms is not None and group.terms != ((),)
    if group.kind == SPREAD and (filtered or tolerations is not None):
        counter.counted_nodes = _admitted(group, tolerations, node_index)
        mask = catalog.any_term(group.terms) if group.terms is not None else catalog.everything
        if tolerations is not None:
            mask &= tolerated(catalog, tolerations, prefer=True)
        counter.counted_offerings = catalog.bools(mask)
        counter.everywhere = False
    here = node_index.members(group)
    if counter.counted_nodes is not None:
        here[~counter.counted_nodes] = 0
    if counter.topology_key is None:
        counter.counts, counter.owners = here, np.zeros(len(here), dtype=np.int64)
        return
    size = len(counter.topology_key.values)
    counter.counts = np.zeros(size, dtype=np.int64)
    counter.owners = np.zeros(size, dtype=np.int64)
    if here.any():
        lying = counter.topology_key.nodes >= 0
        counter.counts += np.bincount(counter.topology_key.nodes[lying], here[lying], size).astype(np.int64)
    counter.there = counter.topology_key.there
    if counter.counted_nodes is not None:
        counter.there = frozenset(present(counter.topology_key.nodes[counter.counted_nodes]))
    counter.universe = _universe(counter, catalog, tolerations)
    counter.among = counter.universe.nonzero()[0].tolist()
    counter.beyond = (~counter.universe).nonzero()[0].tolist()


def _universe(counter: TopologyCounter, catalog: OfferingCatalog, tolerations: tuple[Toleration, ...] | None) -> Bools:
    assert counter.topology_key is not None
    group, topology_key = counter.group, counter.topology_key
    allowed = np.ones(len(topology_key.values), dtype=np.bool_)
    if group.kind != SPREAD:
        return allowed
    if group.terms is not None:
        rules = [[clause for clause in term if clause[0] == group.key] for term in group.terms]
        for index, value in enumerate(topology_key.values):
            allowed[index] = any(all(holds(clause, value) for clause in term) for term in rules)
    reachable = catalog.available
    if tolerations is not None:
        reachable &= tolerated(catalog, tolerations, prefer=True)
    offered = {value for value, mask in catalog.by_label(group.key).items() if mask & reachable}
    open_to = np.array(
        [value in offered or index in counter.there for index, value in enumerate(topology_key.values)], dtype=np.bool_
    )
    return allowed & open_to


def honoured(group: TopologyGroup) -> tuple[Toleration, ...] | None:
    """The tolerations of a spread that counts only nodes with tolerated taints; None if it counts all nodes."""
    if group.tolerations is None:
        return None
    return tuple(Toleration(key=k, operator=o, value=v, effect=e) for k, o, v, e in group.tolerations)


def _admitted(group: TopologyGroup, tolerations: tuple[Toleration, ...] | None, node_index: NodeIndex) -> Bools:
    taints, which = node_index.taints()
    ok: Bools = np.ones(len(which), dtype=np.bool_)
    if group.terms is not None:
        ok &= rows_passing(node_index, group.terms)
    if tolerations is not None:
        ok &= np.array([tolerates_all(tolerations, taint, prefer=True) for taint in taints], dtype=np.bool_)[which]
    return ok


def rows_passing(node_index: NodeIndex, terms: tuple[Term, ...]) -> Bools:
    """The nodes whose labels satisfy any of the terms."""
    keys = sorted({clause[0] for term in terms for clause in term})
    return node_index.where(lambda labels: passes(labels, terms), keys)


def tolerated(catalog: OfferingCatalog, tolerations: Sequence[Toleration], prefer: bool) -> int:
    """The offerings of the pools whose taints are tolerated."""
    mask = 0
    for index, pool in enumerate(catalog.pools):
        if tolerates_all(tolerations, pool.taints, prefer):
            mask |= catalog.of_pool[index]
    return mask


def counters_of(
    groups: Sequence[TopologyGroup], catalog: OfferingCatalog, node_index: NodeIndex
) -> tuple[dict[TopologyGroup, TopologyCounter], list[TopologyKey]]:
    """A topology counter for each group; hostname counters and others have separate slots."""
    topology_keys: dict[str, TopologyKey] = {}
    counters: dict[TopologyGroup, TopologyCounter] = {}
    hosts = others = 0
    for index, group in enumerate(groups):
        if group.key == HOSTNAME:
            counters[group] = TopologyCounter(index, hosts, group, None, -1)
            hosts += 1
        else:
            if group.key not in topology_keys:
                topology_keys[group.key] = TopologyKey(group.key, catalog, node_index)
            counters[group] = TopologyCounter(
                index, others, group, topology_keys[group.key], list(topology_keys).index(group.key)
            )
            others += 1
    for counter in counters.values():
        _fill_counter(counter, catalog, node_index)
    return counters, list(topology_keys.values())


def add_owners(counter: TopologyCounter, where: dict[int, int]) -> None:
    """Add the nodes on which running pods own this anti-affinity."""
    assert counter.kind == ANTI
    for index, count in where.items():
        if counter.topology_key is None:
            counter.owners[index] += count
        elif counter.topology_key.nodes[index] >= 0:
            counter.owners[counter.topology_key.nodes[index]] += count


def keep_rows(counters: Sequence[TopologyCounter], topology_keys: Sequence[TopologyKey], kept: Ints) -> None:
    """Drop nodes that no pod can use; their pods have been counted."""
    for topology_key in topology_keys:
        topology_key.nodes = topology_key.nodes[kept]
    for counter in counters:
        if counter.counted_nodes is not None:
            counter.counted_nodes = counter.counted_nodes[kept]
        if counter.topology_key is None:
            counter.counts, counter.owners = counter.counts[kept], counter.owners[kept]
