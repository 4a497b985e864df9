"""Placement requests: a pod class at one relaxation level, in the form that packing uses.

Requests share equal parts: equal resource requests are one `RequestSize`, equal topology rules one
`TopologyConstraints`, equal node requirements one `NodeFilter`. What depends on one of these alone is computed once for
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.relaxation import RelaxationLevel
from dovetail.planner.problem.topology_counters import TopologyCounter
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, TopologyGroup

#: The mask of existing nodes where there are none.
NOWHERE: Bools = np.zeros(0, dtype=np.bool_)
_index = attrgetter("index")


class RequestSize:
    """The resource requests of a pod in every form that packing uses, and its shared volumes (see `shared_volumes`)."""

    __slots__ = ("amounts", "shared", "steps")

    def __init__(self, amounts: tuple[int, ...], shared: int = 0) -> None:
        self.amounts: Ints = np.array(amounts, dtype=np.int64)
        self.steps = [(index, amount) for index, amount in enumerate(amounts) if amount]
        self.shared = shared


class OwnedCounters:
    """The topology counters that pods own at a level: required ones, which bind other pods as well, and preferences.

    `places` are the topology keys, by index, of the counters over domains.
    """

    __slots__ = ("domains", "hosts", "inverse_domains", "inverse_hosts", "places", "preferences")

    def __init__(self, counters: Mapping[TopologyGroup, TopologyCounter], level: RelaxationLevel) -> None:
        hard = [counters[group] for group in dict.fromkeys(level.hard)]
        self.preferences = [counters[group] for group in dict.fromkeys(level.soft) if group not in level.hard]
        self.inverse_hosts, self.inverse_domains = _hosts_and_domains(hard)
        self.hosts, self.domains = _hosts_and_domains([*hard, *self.preferences])
        self.places = {counter.place: counter.group.key for counter in self.domains}


class MemberCounters:
    """The topology counters that count members of some groups, except `unseen` ones."""

    __slots__ = ("domains", "groups", "hosts", "places")

    def __init__(
        self, counters: Mapping[TopologyGroup, TopologyCounter], groups: Set[TopologyGroup], unseen: Set[TopologyGroup]
    ) -> None:
        self.groups = groups
        seen = [counters[group] for group in groups if group not in unseen]
        self.hosts, self.domains = _hosts_and_domains(sorted(seen, key=_index))
        self.places = {counter.place: counter.group.key for counter in self.domains}


def _hosts_and_domains(counters: list[TopologyCounter]) -> tuple[list[TopologyCounter], list[TopologyCounter]]:
    """Counters on the hostname key, and counters over domains."""
    return [counter for counter in counters if counter.host], [counter for counter in counters if not counter.host]


class TopologyConstraints:
    """The topology counters that pods own and those that count them: on the hostname key, and over domains.

    Of the counters owned, the `inverse` ones bind other pods as well; `preferences` bind only these pods, and only
    while they are placed. `own` are the owned counters that count the pods themselves: of these, `host_self_affinities`
    are hostname affinities, `domain_self_affinities` affinities over domains, and `host_self_anti_affinities` hostname
    anti-affinities. `keys` are the topology keys that they use, except the hostname; `topology_keys` their indices.
    """

    __slots__ = (
        "domain_members",
        "domain_owned",
        "domain_self_affinities",
        "has_hostname_rules",
        "host_members",
        "host_owned",
        "host_self_affinities",
        "host_self_anti_affinities",
        "inverse_domains",
        "inverse_hosts",
        "keys",
        "one_per_node",
        "own",
        "preferences",
        "topology_keys",
    )

    def __init__(self, owned: OwnedCounters, counting: MemberCounters) -> None:
        self.host_owned, self.domain_owned = owned.hosts, owned.domains
        self.host_members, self.domain_members = counting.hosts, counting.domains
        self.inverse_hosts, self.inverse_domains = owned.inverse_hosts, owned.inverse_domains
        self.preferences = owned.preferences
        places = {**owned.places, **counting.places}
        self.topology_keys, self.keys = list(places), list(places.values())
        self.has_hostname_rules = bool(self.host_owned or self.host_members)
        """Whether any hostname rule applies."""
        self.host_self_affinities: list[TopologyCounter] = []
        self.domain_self_affinities: list[TopologyCounter] = []
        self.host_self_anti_affinities: list[TopologyCounter] = []
        self.one_per_node = False
        """Whether a hostname spread or anti-affinity limits the pods of their kind on a node."""
        mine: list[TopologyCounter] = []
        for counter in owned.hosts:
            if counter.group in counting.groups:
                mine.append(counter)
                if counter.kind == AFFINITY:
                    self.host_self_affinities.append(counter)
                    continue
                self.one_per_node = True
                if counter.kind == ANTI:
                    self.host_self_anti_affinities.append(counter)
        for counter in owned.domains:
            if counter.group in counting.groups:
                mine.append(counter)
                if counter.kind == AFFINITY:
                    self.domain_self_affinities.append(counter)
        self.own = frozenset(mine)


class NodeFilter:
    """The nodes that pods accept: offerings of the frontier, `mask` of all offerings, existing nodes, topology keys."""

    __slots__ = ("keys", "mask", "nodes", "offerings")

    def __init__(self, offerings: Bools, mask: int, nodes: Bools, keys: tuple[str, ...]) -> None:
        self.offerings = offerings
        self.mask = mask
        self.nodes = nodes
        self.keys = keys


class LevelConstraints(NamedTuple):
    """A relaxation level of a kind with its topology counters and its node filter."""

    level: RelaxationLevel
    topology: TopologyConstraints
    node_filter: NodeFilter


class PlacementRequest(msgspec.Struct, eq=False):
    """A class at one relaxation level: resource requests, topology constraints and node filter of a pod.

    `shared` are volumes that take an attachment only for the first pod on a node that uses them.
    """

    number: int
    cls: PodClass
    amounts: Ints
    steps: list[tuple[int, int]]
    level: RelaxationLevel
    topology: TopologyConstraints
    node_filter: NodeFilter
    shared: int

    @property
    def offerings(self) -> Bools:
        """The accepted offerings of the frontier."""
        return self.node_filter.offerings

    @property
    def mask(self) -> int:
        """The accepted offerings of the catalog."""
        return self.node_filter.mask

    @property
    def nodes(self) -> Bools:
        """The accepted existing nodes."""
        return self.node_filter.nodes

    @property
    def keys(self) -> list[str]:
        """The topology keys that are used, except the hostname."""
        return self.topology.keys

    @property
    def dims(self) -> list[int]:
        """The dimensions of a pod's requests."""
        return [dim for dim, _ in self.steps]
