"""Requests: a class on one level of its relaxation levels, in the form that packing wants it in.

What requests have in common they share: equal requests are one `Size`, equal relations to other pods one
`TopologyConstraints`, equal
demands on the node itself one `NodeFilter`. Whatever depends on one of these alone is worked out once for all of them.
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
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, Group

#: No existing node, where there is none.
NOWHERE: Bools = np.zeros(0, dtype=np.bool_)
_index = attrgetter("index")


class Size:
    """A request in every form that packing wants it in, and the shared volumes that come with it, see
    `shared_volumes`.
    """

    __slots__ = ("amounts", "shared", "steps")

    def __init__(self, amounts: tuple[int, ...], shared: int = 0) -> None:
        self.amounts: Ints = np.array(amounts, dtype=np.int64)
        self.steps = [(index, amount) for index, amount in enumerate(amounts) if amount]
        self.shared = shared


class Owned:
    """The topology counters that pods own on a level: those that bind others as well are required by others, the rest
    are preferences.

    `places` are the topology keys of those over domains, with their keys.
    """

    __slots__ = ("domains", "hosts", "inverse_domains", "inverse_hosts", "places", "preferences")

    def __init__(self, counters: Mapping[Group, TopologyCounter], level: RelaxationLevel) -> None:
        hard = [counters[group] for group in dict.fromkeys(level.hard)]
        self.preferences = [counters[group] for group in dict.fromkeys(level.soft) if group not in level.hard]
        self.inverse_hosts, self.inverse_domains = _apart(hard)
        self.hosts, self.domains = _apart([*hard, *self.preferences])
        self.places = {counter.place: counter.group.key for counter in self.domains}


class Counting:
    """The topology counters that count the pods which are members of some groups, beside those that do not see them."""

    __slots__ = ("domains", "groups", "hosts", "places")

    def __init__(self, counters: Mapping[Group, TopologyCounter], groups: Set[Group], unseen: Set[Group]) -> None:
        self.groups = groups
        seen = [counters[group] for group in groups if group not in unseen]
        self.hosts, self.domains = _apart(sorted(seen, key=_index))
        self.places = {counter.place: counter.group.key for counter in self.domains}


def _apart(counters: list[TopologyCounter]) -> tuple[list[TopologyCounter], list[TopologyCounter]]:
    """Topology counters on the hostname key, and those over domains."""
    return [counter for counter in counters if counter.host], [counter for counter in counters if not counter.host]


class TopologyConstraints:
    """The topology counters that pods own and those that count them: on the hostname key, and over domains.

    Of the topology counters owned, others must keep to the `required by others` ones as well; the rest bind these
    pods alone, and only while
    they are placed. `own` are those that count the pods themselves: among them `self_affine` are affinities to their
    own
    kind on one node, `settling` such affinities over domains, and `refused` what makes them refuse each other's
    co-located pods on a node. `keys` are the topology keys that matter to them, beside the hostname; `topology keys`
    their numbers.
    """

    __slots__ = (
        "domain_members",
        "domain_owned",
        "host_members",
        "host_owned",
        "inverse_domains",
        "inverse_hosts",
        "keys",
        "one_per_node",
        "own",
        "preferences",
        "refused",
        "ruled",
        "self_affine",
        "settling",
        "topology_keys",
    )

    def __init__(self, owned: Owned, counting: Counting) -> None:
        self.host_owned, self.domain_owned = owned.hosts, owned.domains
        self.host_members, self.domain_members = counting.hosts, counting.domains
        self.inverse_hosts, self.inverse_domains = owned.inverse_hosts, owned.inverse_domains
        self.preferences = owned.preferences
        places = {**owned.places, **counting.places}
        self.topology_keys, self.keys = list(places), list(places.values())
        self.ruled = bool(self.host_owned or self.host_members)
        """Whether any hostname rule has a say about them."""
        self.self_affine: list[TopologyCounter] = []
        self.settling: list[TopologyCounter] = []
        self.refused: list[TopologyCounter] = []
        self.one_per_node = False
        """Whether they want a node each."""
        mine: list[TopologyCounter] = []
        for counter in owned.hosts:
            if counter.group in counting.groups:
                mine.append(counter)
                if counter.kind == AFFINITY:
                    self.self_affine.append(counter)
                    continue
                self.one_per_node = True
                if counter.kind == ANTI:
                    self.refused.append(counter)
        for counter in owned.domains:
            if counter.group in counting.groups:
                mine.append(counter)
                if counter.kind == AFFINITY:
                    self.settling.append(counter)
        self.own = frozenset(mine)


class NodeFilter:
    """Which nodes pods accept: to launch, as offerings of the frontier and of all, and there; and the keys that pin
    them.
    """

    __slots__ = ("keys", "mask", "nodes", "offerings")

    def __init__(self, offerings: Bools, mask: int, nodes: Bools, keys: tuple[str, ...]) -> None:
        self.offerings = offerings
        self.mask = mask
        self.nodes = nodes
        self.keys = keys


class LevelConstraints(NamedTuple):
    """A level of the relaxation levels of a kind: the topology counters that matter on it, and the nodes that are
    accepted there.
    """

    level: RelaxationLevel
    topology: TopologyConstraints
    node_filter: NodeFilter


class PlacementRequest(msgspec.Struct, eq=False):
    """A class on one level of its relaxation levels: what a pod takes, how it is tied to others, and where it may go.

    `shared` are volumes that the first pod of those who use them brings to a node, beside what each pod takes.
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
        """The offerings of the frontier that are accepted."""
        return self.node_filter.offerings

    @property
    def mask(self) -> int:
        """The offerings of all that are accepted."""
        return self.node_filter.mask

    @property
    def nodes(self) -> Bools:
        """The existing nodes that are accepted."""
        return self.node_filter.nodes

    @property
    def keys(self) -> list[str]:
        """The topology keys that matter, beside the hostname."""
        return self.topology.keys

    @property
    def dims(self) -> list[int]:
        """The dimensions that a pod takes some of."""
        return [dim for dim, _ in self.steps]
