"""Asks: a class on one rung of its ladder, in the form that packing wants it in.

What asks have in common they share: equal requests are one `Size`, equal relations to other pods one `Ties`, equal
demands on the machine itself one `Stance`. Whatever depends on one of these alone is worked out once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from operator import attrgetter
from typing import NamedTuple

import msgspec
import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.relaxation import Level
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, Group

#: No machine that is there, where there is none.
NOWHERE: Bools = np.zeros(0, dtype=np.bool_)
_index = attrgetter("index")


class Size:
    """A request in every form that packing wants it in, and the shared volumes that come with it, see `sharing`."""

    __slots__ = ("request", "shared", "steps")

    def __init__(self, amounts: tuple[int, ...], shared: int = 0) -> None:
        self.request: Ints = np.array(amounts, dtype=np.int64)
        self.steps = [(at, amount) for at, amount in enumerate(amounts) if amount]
        self.shared = shared


class Owned:
    """The cells that pods own on a rung: those that bind others as well are promised, the rest are wishes.

    `places` are the axes of those over domains, with their keys.
    """

    __slots__ = ("domains", "hosts", "places", "promised_domains", "promised_hosts", "wishes")

    def __init__(self, cells: Mapping[Group, Cell], level: Level) -> None:
        hard = [cells[group] for group in dict.fromkeys(level.hard)]
        self.wishes = [cells[group] for group in dict.fromkeys(level.soft) if group not in level.hard]
        self.promised_hosts, self.promised_domains = _apart(hard)
        self.hosts, self.domains = _apart([*hard, *self.wishes])
        self.places = {cell.place: cell.group.key for cell in self.domains}


class Counting:
    """The cells that count the pods which are members of some groups, beside those that do not see them."""

    __slots__ = ("domains", "groups", "hosts", "places")

    def __init__(self, cells: Mapping[Group, Cell], groups: Set[Group], unseen: Set[Group]) -> None:
        self.groups = groups
        seen = [cells[group] for group in groups if group not in unseen]
        self.hosts, self.domains = _apart(sorted(seen, key=_index))
        self.places = {cell.place: cell.group.key for cell in self.domains}


def _apart(cells: list[Cell]) -> tuple[list[Cell], list[Cell]]:
    """Cells on the hostname key, and those over domains."""
    return [cell for cell in cells if cell.host], [cell for cell in cells if not cell.host]


class Ties:
    """The cells that pods own and those that count them: on the hostname key, and over domains.

    Of the cells owned, others must keep to the `promised` ones as well; the rest bind these pods alone, and only while
    they are placed. `own` are those that count the pods themselves: among them `companions` are affinities to their own
    kind on one machine, `settling` such affinities over domains, and `refused` what makes them refuse each other's
    company on a machine. `keys` are the topology keys that matter to them, beside the hostname; `axes` their numbers.
    """

    __slots__ = (
        "axes",
        "companions",
        "domain_members",
        "domain_owned",
        "host_members",
        "host_owned",
        "keys",
        "lonely",
        "own",
        "promised_domains",
        "promised_hosts",
        "refused",
        "ruled",
        "settling",
        "wishes",
    )

    def __init__(self, owned: Owned, counting: Counting) -> None:
        self.host_owned, self.domain_owned = owned.hosts, owned.domains
        self.host_members, self.domain_members = counting.hosts, counting.domains
        self.promised_hosts, self.promised_domains = owned.promised_hosts, owned.promised_domains
        self.wishes = owned.wishes
        places = {**owned.places, **counting.places}
        self.axes, self.keys = list(places), list(places.values())
        self.ruled = bool(self.host_owned or self.host_members)
        """Whether any hostname rule has a say about them."""
        self.companions: list[Cell] = []
        self.settling: list[Cell] = []
        self.refused: list[Cell] = []
        self.lonely = False
        """Whether they want a machine each."""
        mine: list[Cell] = []
        for cell in owned.hosts:
            if cell.group in counting.groups:
                mine.append(cell)
                if cell.kind == AFFINITY:
                    self.companions.append(cell)
                    continue
                self.lonely = True
                if cell.kind == ANTI:
                    self.refused.append(cell)
        for cell in owned.domains:
            if cell.group in counting.groups:
                mine.append(cell)
                if cell.kind == AFFINITY:
                    self.settling.append(cell)
        self.own = frozenset(mine)


class Stance:
    """Which machines pods accept: to buy, as columns of the menu and of all, and there; and the keys that pin them."""

    __slots__ = ("columns", "keys", "mask", "nodes")

    def __init__(self, columns: Bools, mask: int, nodes: Bools, keys: tuple[str, ...]) -> None:
        self.columns = columns
        self.mask = mask
        self.nodes = nodes
        self.keys = keys


class Rung(NamedTuple):
    """A level of the ladder of a kind: the cells that matter on it, and the machines that are accepted there."""

    level: Level
    ties: Ties
    stance: Stance


class Ask(msgspec.Struct, eq=False):
    """A class on one rung of its ladder: what a pod takes, how it is tied to others, and where it may go.

    `shared` are volumes that the first pod of those who use them brings to a machine, beside what each pod takes.
    """

    number: int
    cls: PodClass
    request: Ints
    steps: list[tuple[int, int]]
    level: Level
    ties: Ties
    stance: Stance
    shared: int

    @property
    def columns(self) -> Bools:
        """The columns of the menu that are accepted."""
        return self.stance.columns

    @property
    def mask(self) -> int:
        """The columns of all that are accepted."""
        return self.stance.mask

    @property
    def nodes(self) -> Bools:
        """The machines that are there and are accepted."""
        return self.stance.nodes

    @property
    def keys(self) -> list[str]:
        """The topology keys that matter, beside the hostname."""
        return self.ties.keys

    @property
    def dims(self) -> list[int]:
        """The dimensions that a pod takes some of."""
        return [dim for dim, _ in self.steps]
