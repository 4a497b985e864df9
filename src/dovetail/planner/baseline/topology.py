"""Tally: how the reference counts pods over domains, and the domains that its rules leave for one more.

A machine that is not bought yet may still land in several domains. Spreads and affinities count a pod only once its
domain is certain; anti-affinities block every domain that it may end in. A set of domains is the bits of an integer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from dovetail.planner.offerings.open_labels import pool_clauses
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.request import Ask
from dovetail.planner.problem.topology_counters import Axis, Cell, honoured
from dovetail.planner.problem.topology_groups import AFFINITY, ANTI, SPREAD, Group
from dovetail.planner.requirements import bears, holds
from dovetail.planner.snapshot import Pool

#: Where a pod is: the row of a machine that is there, or a claim's number below zero.
Place = int


class Tally:
    """Counts of one run: pods that a group selects (members), and pods that hard anti-affinities belong to."""

    def __init__(self, problem: Problem, turn: int = 0, before: Tally | None = None) -> None:
        self._turn = self._draws = turn
        self.left_to_chance = False
        """Whether any domain was chosen among several with as few pods."""
        self.named: list[list[str]]
        self._offered: dict[int, int]
        if before is not None:
            self.named, self._offered = before.named, before._offered
        else:
            named = [[_named(pool, axis.key) for pool in problem.pools] for axis in problem.axes]
            self.named = [
                [*axis.values, *sorted(set[str]().union(*each).difference(axis.values))]
                for each, axis in zip(named, problem.axes, strict=True)
            ]
            self._offered = _offered(problem, named)
        """The domains on every axis; behind those for sale others that pools name: the reference sees them, empty."""
        self.everywhere = [(1 << len(every)) - 1 for every in self.named]
        self._unsold = [
            bits(range(len(axis.values), len(every))) for every, axis in zip(self.named, problem.axes, strict=True)
        ]
        self._known = dict(self._offered)
        self.axis_at = {axis.key: at for at, axis in enumerate(problem.axes)}
        self._members: dict[int, dict[int, int]] = {}
        self._owners: dict[int, dict[int, int]] = {}
        self.feared = {group for one in problem.classes for group in one.levels[0].hard if group.kind == ANTI}
        for group, cell in problem.cells.items():
            self._members[cell.index] = _counted(cell.counts.tolist())
            self._owners[cell.index] = _counted(cell.owners.tolist())
            if self._owners[cell.index]:
                self.feared.add(group)
            if not cell.host:
                self._known[cell.index] |= bits(cell.there)

    def host_admits(self, ask: Ask, place: Place) -> bool:
        """Whether hostname rules let a pod onto a machine."""
        for cell in ask.ties.host_owned:
            here, mine = self._members[cell.index].get(place, 0), cell in ask.ties.own
            if cell.kind == SPREAD and here + mine > cell.skew:
                return False
            if cell.kind == ANTI and here:
                return False
            if cell.kind == AFFINITY and not here and (not mine or self._members[cell.index]):
                return False
        return not any(cell.kind == ANTI and self._owners[cell.index].get(place, 0) for cell in ask.ties.host_members)

    def closed_hosts(self, ask: Ask) -> set[Place]:
        """Machines that hostname rules close to a pod, all at once; of those that are open `host_admits` knows more."""
        found: set[Place] = set()
        for cell in ask.ties.host_owned:
            counts, top = self._members[cell.index], cell.skew - (cell in ask.ties.own)
            if cell.kind == SPREAD:
                found.update([place for place, here in counts.items() if here > top])
            elif cell.kind == ANTI:
                found.update(counts)
        for cell in ask.ties.host_members:
            if cell.kind == ANTI:
                found.update(self._owners[cell.index])
        return found

    def domains(self, ask: Ask, strict: list[int], open_to: list[int | None]) -> list[int | None] | None:
        """What is left of a machine's domains on every axis with one more pod on it; None where a rule forbids it.

        `strict` are the domains that the pod's hard requirements allow. Every rule chooses on its own, among the
        domains the machine had before; rules that choose differently exclude each other.
        """
        found = list(open_to)
        rules: list[tuple[Cell, bool]] = [(cell, True) for cell in ask.ties.domain_owned]
        rules += [(cell, False) for cell in ask.ties.domain_members if cell.group in self.feared]
        for cell, own in rules:
            axis = self.axis_at[cell.group.key]
            now = open_to[axis]
            among = self.everywhere[axis] if now is None else now
            chosen = self._owner(ask, cell, strict[axis], among) if own else self._unfeared(cell, among)
            before = found[axis]
            left = chosen if before is None else chosen & before
            if not left:
                return None
            found[axis] = left
        return found

    def _owner(self, ask: Ask, cell: Cell, strict: int, among: int) -> int:
        if cell.kind == SPREAD:
            return self._lowest(ask, cell, strict, among)
        if cell.kind == ANTI:
            return self._clear(self._members, cell, among & strict & self._known[cell.index])
        counted = bits(self._members[cell.index])
        if counted & strict & among:
            return counted & strict & among
        if cell.group not in ask.cls.members or counted & strict:
            return 0
        found = strict & among & self._known[cell.index]
        return self._begun(cell, found, strict & self._known[cell.index]) if found else 0

    def _begun(self, cell: Cell, here: int, anywhere: int) -> int:
        """Where the first of some pods that want to be together goes: a domain of the machine and, drawn again, any."""
        return 1 << self._chosen(cell, places(here), {}) | 1 << self._chosen(cell, places(anywhere), {})

    def _lowest(self, ask: Ask, cell: Cell, strict: int, among: int) -> int:
        """The domain with fewest pods among those that the skew allows."""
        counts = self._members[cell.index]
        universe = self._known[cell.index] | self._unsold[cell.place]
        universe |= bits(counts)  # where a pod is, there is a domain
        seen = [counts.get(at, 0) for at in places(universe & strict)]
        least = min(seen) if seen and len(seen) >= cell.group.min_domains else 0
        top = least + cell.skew - (cell.group in ask.cls.members)
        allowed = [at for at in places(universe & among) if counts.get(at, 0) <= top]
        if not allowed:
            return 0
        return 1 << self._chosen(cell, allowed, counts)

    def _chosen(self, cell: Cell, domains: Iterable[int], counts: Mapping[int, int]) -> int:
        """The domain with fewest pods; where several have as few, the reference leaves it to chance each time."""
        self._draws += self._turn
        every = len(self.named[cell.place])
        open_to = list(domains)
        chosen = min(open_to, key=lambda at: (counts.get(at, 0), (at + self._draws) % every))
        if not self.left_to_chance:
            fewest = counts.get(chosen, 0)
            self.left_to_chance = any(at != chosen and counts.get(at, 0) == fewest for at in open_to)
        return chosen

    def _unfeared(self, cell: Cell, among: int) -> int:
        """Where nobody is who must not have the pod near: of domains in which only machines are, nothing is known."""
        return self._clear(self._owners, cell, among & self._offered[cell.index])

    @staticmethod
    def _clear(tally: dict[int, dict[int, int]], cell: Cell, among: int) -> int:
        return among & ~bits(tally[cell.index])

    def record(self, ask: Ask, place: Place, domains: list[int | None], seen: Iterable[Cell]) -> None:
        """A pod is placed; `seen` are the groups that count it there."""
        for cell in seen:
            self._note(self._members[cell.index], cell, place, domains)
        for cell in (*ask.ties.promised_hosts, *ask.ties.promised_domains):
            if cell.kind == ANTI:
                self._note(self._owners[cell.index], cell, place, domains)

    def _note(self, tally: dict[int, int], cell: Cell, place: Place, domains: list[int | None]) -> None:
        if cell.host:
            tally[place] = tally.get(place, 0) + 1
            return
        among = domains[self.axis_at[cell.group.key]]
        if among is None or (cell.kind != ANTI and among & (among - 1)):
            return
        for at in places(among):
            tally[at] = tally.get(at, 0) + 1


def _offered(problem: Problem, named: list[list[set[str]]]) -> dict[int, int]:
    """The domains of pools that each group knows of, where pools name these on every axis.

    A spread that honours taints knows those alone whose taints its pods tolerate, whether or not anything is for sale
    there; an affinity those that the first pod tolerates that asks for it, before it gives anything up.
    """
    first: dict[Group, PodClass] = {}
    for one in problem.classes:
        for group in (*one.levels[0].hard, *one.levels[0].soft):
            first.setdefault(group, one)
    found: dict[int, int] = {}
    for group, cell in problem.cells.items():
        if not cell.host:
            borne = [_bears(group, first.get(group), pool) for pool in problem.pools]
            values = set[str]().union(*itertools.compress(named[cell.place], borne))
            found[cell.index] = _places_of(problem.axes[cell.place], values)
    return found


def _bears(group: Group, first: PodClass | None, pool: Pool) -> bool:
    if group.kind == SPREAD:
        tolerations = honoured(group)
        return tolerations is None or bears(tolerations, pool.taints, prefer=True)
    return first is None or bears(first.shape.tolerations, pool.taints, prefer=False)


def _named(pool: Pool, key: str) -> set[str]:
    """The domains that a pool speaks of: of every type, whether or not it could buy it, and those that it lists.

    The name of the pool itself is none of them.
    """
    if key == NODEPOOL:
        return set()
    if key in pool.labels:
        return {pool.labels[key]}
    rules = [each for each in pool_clauses(pool) if each[0] == key]
    values = {value for kind in pool.types for value in _values(kind, key)}
    values.update(value for _, operator, listed in rules if operator == "In" for value in listed)
    return {value for value in values if all(holds(each, value) for each in rules)}


def _values(kind: InstanceType, key: str) -> Iterable[str]:
    """What a label may be on machines of a type."""
    if key == INSTANCE_TYPE:
        return (kind.name,)
    if key == ZONE:
        return {each.zone for each in kind.offerings if each.available}
    if key == CAPACITY_TYPE:
        return {each.capacity_type for each in kind.offerings if each.available}
    return kind.labels.get(key, ())


def _places_of(axis: Axis, values: set[str]) -> int:
    return bits(at for at, value in enumerate(axis.values) if value in values)


def _counted(counts: list[int]) -> dict[int, int]:
    return {at: count for at, count in enumerate(counts) if count}


def bits(where: Iterable[int]) -> int:
    found = 0
    for at in where:
        found |= 1 << at
    return found


def places(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
