"""Classes: pending pods that are alike for every purpose of scheduling, with a count.

A shape's labels matter only through the groups that select them, and its volumes only through what they ask
of a machine. So shapes that differ in nothing else (ordinals, hashes, claim names) are one class.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

import msgspec

from dovetail.model.objects import Pod
from dovetail.planner.clauses import of_selector
from dovetail.planner.groups import Group, toleration_key
from dovetail.planner.ladder import Level, ladder
from dovetail.planner.shape import Shape, Spread, last_shape_of
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.storage import Storage, storage_of

#: Nobody owns this much of anything; a request beyond it cannot be counted, and need not be.
TOO_MUCH = 1 << 52


class PodClass:
    """Pods that are one to the planner. `members` are the groups that count them."""

    __slots__ = ("error", "index", "levels", "members", "pods", "priority", "requests", "shape", "storage")

    def __init__(self, shape: Shape, storage: Storage, levels: tuple[Level, ...], members: frozenset[Group]) -> None:
        self.index = -1
        self.shape = shape
        self.storage = storage
        self.levels = levels
        self.members = members
        self.pods: list[str] = []
        self.requests: Mapping[str, int] = shape.requests
        self.priority = 0
        self.error = shape.error or storage.error

    @property
    def count(self) -> int:
        return len(self.pods)


class _Rungs(msgspec.Struct):
    shape: Shape
    storage: Storage
    levels: tuple[Level, ...]
    pods: list[str]


def classes_of(
    snapshot: Snapshot, namespaces: Mapping[str, Mapping[str, str]], dislikes: bool, feared: list[Group]
) -> tuple[list[PodClass], list[Group]]:
    """The classes of the pending pods, and every group that matters to them: their own, and those they must fear."""
    rungs = _by_shape(snapshot, namespaces, dislikes)
    owned = [g for each in rungs for g in (*each.levels[0].hard, *each.levels[0].soft)]
    groups = list(dict.fromkeys([*owned, *feared]))
    merged: dict[object, PodClass] = {}
    same: dict[frozenset[Group], frozenset[Group]] = {}
    counted: dict[object, frozenset[Group]] = {}
    for each in rungs:
        shape = each.shape
        members = counted.get(shape.who) if groups else frozenset()
        if members is None:
            members = frozenset(g for g in groups if g.counts(shape.namespace, shape.labels))
            members = counted[shape.who] = same.setdefault(members, members)
        key = _merge_key(each, members, snapshot)
        found = merged.get(key)
        if found is None:
            found = merged[key] = PodClass(shape, each.storage, each.levels, members)
            found.priority = _priority(shape, snapshot)
        found.pods += each.pods
    classes = list(merged.values())
    for index, one in enumerate(classes):
        one.index = index
    return classes, groups


def _by_shape(
    snapshot: Snapshot, namespaces: Mapping[str, Mapping[str, str]], dislikes: bool
) -> list[_Rungs]:
    by_shape: dict[Shape, list[str]] = {}
    for one in sorted(_waiting(snapshot), key=_order):
        by_shape.setdefault(one.shape, []).append(one.name)
    found = []
    for shape, names in by_shape.items():
        storage = storage_of(shape.claims, snapshot)
        spreads = shape.spreads or _default_spreads(shape, snapshot)
        found.append(_Rungs(shape, storage, _levels(shape, spreads, snapshot, namespaces, dislikes), names))
    return found


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A pending pod as it is remembered from one snapshot to the next."""

    pod: Pod
    shape: Shape
    name: str
    order: tuple[str, str, str, str, int, str]


_order = attrgetter("order")


def _waiting(snapshot: Snapshot) -> list[_Waiting]:
    """The pending pods; of those that were pending before nothing is worked out again."""
    memory = snapshot.memory
    before = memory.table("pending")
    waiting: list[_Waiting] = []
    for pod in snapshot.pending:
        known = before.get(id(pod))
        if known is None:
            known = _Waiting(pod, last_shape_of(pod, memory), pod_key(pod), _pod_order(pod))
        waiting.append(known)
    memory.tables["pending"] = {id(each.pod): each for each in waiting}
    return waiting


def _levels(
    shape: Shape,
    spreads: tuple[Spread, ...],
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    dislikes: bool,
) -> tuple[Level, ...]:
    """The shape's ladder, remembered where it depends on the shape alone; equal ladders are one object."""
    table, key = snapshot.memory.table("ladders"), (shape, snapshot.preferences, dislikes)
    known: tuple[Level, ...] | None = table.get(key) if spreads is shape.spreads else None
    if known is None:
        levels = ladder(shape, spreads, snapshot.preferences, namespaces, dislikes)
        known = snapshot.memory.table("levels").setdefault(levels, levels)
        alone = spreads is shape.spreads and not any(n.namespace_selector for n in (*shape.affinity, *shape.anti))
        if alone:
            table[key] = known
    return known


def pod_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


def _pod_order(pod: Pod) -> tuple[str, str, str, str, int, str]:
    """Older pods first, then by UID, then by name with the ordinal as a number: it decides who of a kind goes short."""
    meta = pod.metadata
    made = meta.creation_timestamp
    stem, _, ordinal = meta.name.rpartition("-")
    number = int(ordinal) if ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 10 else -1
    return (made.isoformat() if made is not None else "", meta.uid, meta.namespace, stem, number, meta.name)


def _default_spreads(shape: Shape, snapshot: Snapshot) -> tuple[Spread, ...]:
    selector = snapshot.selectors.get(shape.controller) if snapshot.default_spread else None
    if selector is None:
        return ()
    term = of_selector(selector, shape.labels)
    return tuple(
        Spread(each.topology_key, each.max_skew, each.when_unsatisfiable != "ScheduleAnyway", term,
               each.min_domains or 0, True, False)
        for each in snapshot.default_spread
    )  # fmt: skip


def _priority(shape: Shape, snapshot: Snapshot) -> int:
    """The pod's own number, its class's, or (under the empty name) the default class's."""
    if shape.priority is not None:
        return shape.priority
    return snapshot.priorities.get(shape.priority_class, 0)


def _merge_key(each: _Rungs, members: frozenset[Group], snapshot: Snapshot) -> object:
    shape = each.shape
    drivers = tuple(sorted(driver for driver, _ in each.storage.attached)) if each.storage.attached else ()
    return (
        shape.amounts, id(each.levels), toleration_key(shape), shape.ports, members,
        each.storage.alternatives, drivers, each.storage.error, shape.error, _priority(shape, snapshot),
    )  # fmt: skip
