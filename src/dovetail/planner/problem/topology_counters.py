"""Cells: topology groups made ready to count, over the domains of their key.

A spread counts only nodes its policies admit, and takes its minimum over every domain that the pools could
open, not only those that are open. On the hostname key each machine is its own domain and the minimum is 0,
because a new machine is always possible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.model.labels import HOSTNAME
from dovetail.model.pods import Toleration
from dovetail.planner.offerings.catalog import Bools, Columns, Ints
from dovetail.planner.problem.node_index import Roster, present
from dovetail.planner.problem.nodes import passes
from dovetail.planner.problem.topology_groups import ANTI, SPREAD, Group
from dovetail.planner.requirements import Term, bears, holds


class Axis:
    """A topology key (never the hostname) with its domains, and where each machine and column lies on it."""

    __slots__ = ("at", "columns", "key", "nodes", "there", "values")

    def __init__(self, key: str, columns: Columns, roster: Roster) -> None:
        self.key = key
        by_label = {value: mask & columns.available for value, mask in columns.by_label(key).items()}
        sold = {value for value, mask in by_label.items() if mask and value is not None}
        known, lying = roster.codes(key)
        values = list(known)
        there = {value for at in present(lying) if (value := values[at]) is not None}
        self.values = sorted(sold | there)
        self.at = {value: index for index, value in enumerate(self.values)}
        place = np.array([self.at.get(value or "", -1) for value in known], dtype=np.int64)
        self.nodes: Ints = place[lying] if len(lying) else lying
        self.there = frozenset(present(self.nodes))
        """The domains of the machines that stand, also where those are full."""
        self.columns: Ints = np.full(columns.size, -1, dtype=np.int64)
        for value, mask in by_label.items():
            if value is not None and mask:
                self.columns[columns.bools(mask)] = self.at[value]


class Cell:
    """A group with its starting counts. `axis` is None on the hostname key; `place` is its number among the axes.

    `universe` are the domains that a spread takes its minimum over, `among` their numbers, `beyond` those of others.
    """

    __slots__ = (
        "among",
        "axis",
        "beyond",
        "counted_columns",
        "counted_nodes",
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
        "universe",
    )

    def __init__(self, index: int, slot: int, group: Group, axis: Axis | None, place: int) -> None:
        self.index = index
        self.slot = slot
        self.group = group
        self.kind, self.skew = group.kind, group.max_skew
        self.axis = axis
        self.place = place
        self.host = axis is None
        self.among: list[int] = []
        self.beyond: list[int] = []
        self.counts: Ints = np.zeros(0, dtype=np.int64)
        self.owners: Ints = np.zeros(0, dtype=np.int64)
        self.universe: Bools = np.zeros(0, dtype=np.bool_)
        self.there: frozenset[int] = frozenset()
        """The domains of the machines that stand and that it looks at, also where those are full."""
        self.counted_nodes: Bools | None = None
        self.counted_columns: Bools | None = None
        self.everywhere = True
        """Whether it counts pods on whatever machine they are."""

    @property
    def open_ended(self) -> bool:
        """Whether all of its domains may be filled as high as wanted if they rise together."""
        return len(self.among) >= self.group.min_domains


def fill_cell(cell: Cell, columns: Columns, roster: Roster) -> None:
    """Count what is running, and settle which domains the minimum is taken over."""
    group = cell.group
    tolerations = honoured(group)
    filtered = group.terms is not None and group.terms != ((),)
    if group.kind == SPREAD and (filtered or tolerations is not None):
        cell.counted_nodes = _admitted(group, tolerations, roster)
        mask = columns.any_term(group.terms) if group.terms is not None else columns.everything
        if tolerations is not None:
            mask &= tolerated(columns, tolerations, prefer=True)
        cell.counted_columns = columns.bools(mask)
        cell.everywhere = False
    here = roster.members(group)
    if cell.counted_nodes is not None:
        here[~cell.counted_nodes] = 0
    if cell.axis is None:
        cell.counts, cell.owners = here, np.zeros(len(here), dtype=np.int64)
        return
    size = len(cell.axis.values)
    cell.counts = np.zeros(size, dtype=np.int64)
    cell.owners = np.zeros(size, dtype=np.int64)
    if here.any():
        lying = cell.axis.nodes >= 0
        cell.counts += np.bincount(cell.axis.nodes[lying], here[lying], size).astype(np.int64)
    cell.there = cell.axis.there
    if cell.counted_nodes is not None:
        cell.there = frozenset(present(cell.axis.nodes[cell.counted_nodes]))
    cell.universe = _universe(cell, columns, tolerations)
    cell.among = cell.universe.nonzero()[0].tolist()
    cell.beyond = (~cell.universe).nonzero()[0].tolist()


def _universe(cell: Cell, columns: Columns, tolerations: tuple[Toleration, ...] | None) -> Bools:
    assert cell.axis is not None
    group, axis = cell.group, cell.axis
    allowed = np.ones(len(axis.values), dtype=np.bool_)
    if group.kind != SPREAD:
        return allowed
    if group.terms is not None:
        rules = [[each for each in term if each[0] == group.key] for term in group.terms]
        for at, value in enumerate(axis.values):
            allowed[at] = any(all(holds(each, value) for each in term) for term in rules)
    reachable = columns.available
    if tolerations is not None:
        reachable &= tolerated(columns, tolerations, prefer=True)
    sold = {value for value, mask in columns.by_label(group.key).items() if mask & reachable}
    open_to = np.array([value in sold or at in cell.there for at, value in enumerate(axis.values)], dtype=np.bool_)
    return allowed & open_to


def honoured(group: Group) -> tuple[Toleration, ...] | None:
    """What a spread's pods tolerate, where it looks only at machines whose taints they do; None where at all."""
    if group.tolerations is None:
        return None
    return tuple(Toleration(key=k, operator=o, value=v, effect=e) for k, o, v, e in group.tolerations)


def _admitted(group: Group, tolerations: tuple[Toleration, ...] | None, roster: Roster) -> Bools:
    taints, which = roster.taints()
    ok: Bools = np.ones(len(which), dtype=np.bool_)
    if group.terms is not None:
        ok &= rows_passing(roster, group.terms)
    if tolerations is not None:
        ok &= np.array([bears(tolerations, each, prefer=True) for each in taints], dtype=np.bool_)[which]
    return ok


def rows_passing(roster: Roster, terms: tuple[Term, ...]) -> Bools:
    """The machines whose labels satisfy any of the terms."""
    keys = sorted({each[0] for term in terms for each in term})
    return roster.where(lambda labels: passes(labels, terms), keys)


def tolerated(columns: Columns, tolerations: Sequence[Toleration], prefer: bool) -> int:
    """The columns of the pools whose taints are tolerated."""
    mask = 0
    for index, pool in enumerate(columns.pools):
        if bears(tolerations, pool.taints, prefer):
            mask |= columns.of_pool[index]
    return mask


def cells_of(groups: Sequence[Group], columns: Columns, roster: Roster) -> tuple[dict[Group, Cell], list[Axis]]:
    """One cell for each group, hostname cells and others numbered apart."""
    axes: dict[str, Axis] = {}
    cells: dict[Group, Cell] = {}
    hosts = others = 0
    for index, group in enumerate(groups):
        if group.key == HOSTNAME:
            cells[group] = Cell(index, hosts, group, None, -1)
            hosts += 1
        else:
            if group.key not in axes:
                axes[group.key] = Axis(group.key, columns, roster)
            cells[group] = Cell(index, others, group, axes[group.key], list(axes).index(group.key))
            others += 1
    for cell in cells.values():
        fill_cell(cell, columns, roster)
    return cells, list(axes.values())


def add_owners(cell: Cell, where: dict[int, int]) -> None:
    """Machines on which running pods own this anti-affinity."""
    assert cell.kind == ANTI
    for at, count in where.items():
        if cell.axis is None:
            cell.owners[at] += count
        elif cell.axis.nodes[at] >= 0:
            cell.owners[cell.axis.nodes[at]] += count


def keep_rows(cells: Sequence[Cell], axes: Sequence[Axis], kept: Ints) -> None:
    """Leave out machines nobody could use; what runs on them has been counted."""
    for axis in axes:
        axis.nodes = axis.nodes[kept]
    for cell in cells:
        if cell.counted_nodes is not None:
            cell.counted_nodes = cell.counted_nodes[kept]
        if cell.axis is None:
            cell.counts, cell.owners = cell.counts[kept], cell.owners[kept]
