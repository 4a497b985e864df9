"""Classes: pending pods that are alike for every purpose of scheduling, with a count.

A shape's labels matter only through the groups that select them, and its volumes only through what they ask
of a node. So shapes that differ in nothing else (ordinals, hashes, claim names) are one class.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import Any
from weakref import ref

import msgspec

from dovetail.model.pods import Pod
from dovetail.model.pvc_problems import Trouble
from dovetail.planner.cache import Memory
from dovetail.planner.problem.pod_spec import Shape, Spread, last_shapes_of
from dovetail.planner.problem.relaxation import RelaxationLevel, homed, on_one_node, relaxation_levels
from dovetail.planner.problem.shared_volumes import NO_PODS, Sharing, sharing
from dovetail.planner.problem.topology_groups import Group
from dovetail.planner.problem.volumes import NOTHING, Storage, Volume, scarce, storage_of, turns
from dovetail.planner.requirements import of_selector
from dovetail.planner.snapshot import Preferences, Snapshot

#: No pod owns this much of anything; a request beyond it cannot be counted, and need not be.
TOO_MUCH = 1 << 52
#: Pods with more different labels than this are not remembered all at once.
_MOST_KNOWN = 10_000


class Kind:
    """What pods ask apart from what they take: all classes that are alike in it share it, and what follows from it."""

    __slots__ = ("alternatives", "levels", "members", "tolerated", "tolerations")

    def __init__(
        self, shape: Shape, storage: Storage, levels: tuple[RelaxationLevel, ...], members: frozenset[Group]
    ) -> None:
        self.levels = levels
        self.members = members
        self.tolerations = shape.tolerations
        self.tolerated = shape.tolerated
        self.alternatives = storage.alternatives


class PodClass(msgspec.Struct, eq=False):
    """Pods that are one to the planner; `requests` are what each of them takes, `error` what is wrong with them."""

    index: int
    shape: Shape
    storage: Storage
    kind: Kind
    priority: int
    pods: list[str]
    count: int
    requests: Mapping[str, int]
    error: str

    @property
    def levels(self) -> tuple[RelaxationLevel, ...]:
        """The relaxation levels."""
        return self.kind.levels

    @property
    def members(self) -> frozenset[Group]:
        """The groups that count them."""
        return self.kind.members


class _Alike(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one class have in common, beside what they take and what is wrong with them."""

    kind: Kind
    priority: int


class _LevelTable:
    """A shape, its relaxation levels, and where its volumes let it run."""

    __slots__ = ("alike", "levels", "shape", "storage")

    def __init__(self, shape: Shape, levels: tuple[RelaxationLevel, ...], storage: Storage = NOTHING) -> None:
        self.shape = shape
        self.levels = levels
        self.storage = storage
        self.alike: tuple[object, Any] = (None, None)
        """What was found of it last, and by whom; see `_Kinds`."""


_levels = attrgetter("levels")
_claims = attrgetter("claims")


def classes_of(
    by_shape: Mapping[Shape, list[str]],
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    dislikes: bool,
    feared: list[Group],
    huddled: frozenset[Group],
    running: Callable[[], Iterable[Set[Volume]]],
) -> tuple[list[PodClass], list[Group], Sharing]:
    """The classes of pending pods, every group that matters to them (their own, and those they must fear), and how
    the volumes are counted that they share with each other, or with pods that are `running`.

    `huddled` are affinities that only one node for all can keep.
    """
    levels_of, lots = (
        _constraints_by_level(list(by_shape), snapshot, namespaces, dislikes, huddled),
        list(by_shape.values()),
    )
    shared = NO_PODS
    if any(map(_claims, by_shape)):
        levels_of, lots = _in_turn(levels_of, lots, snapshot)
        shared = _sharing(levels_of, list(map(len, lots)), snapshot, running)
    if shared.bits:
        levels_of = [_relieved(level, shared) for level in levels_of]
    constraints = list(map(_levels, levels_of))
    distinct = dict(zip(map(id, constraints), constraints, strict=True))
    owned = [group for levels in distinct.values() for group in (*levels[0].hard, *levels[0].soft)]
    groups = list(dict.fromkeys([*owned, *feared]))
    merged: dict[_Alike, PodClass] = {}
    alike = _kinds_of(frozenset(groups), snapshot).of(levels_of)
    for table, same, pods in zip(levels_of, alike, lots, strict=True):
        merged_class = merged.get(same)
        if merged_class is None:
            shape, storage = table.shape, table.storage
            merged[same] = PodClass(
                len(merged),
                shape,
                storage,
                same.kind,
                same.priority,
                pods,
                len(pods),
                shape.requests,
                shape.error or storage.error,
            )
        else:
            merged_class.pods += pods
            merged_class.count += len(pods)
    return list(merged.values()), groups, shared


def _traits(storage: Storage) -> tuple[object, ...]:
    """What makes pods different by their volumes, beside where those let them run."""
    return (tuple(sorted(driver for driver, _ in storage.attached)), storage.shared, storage.error)


def _in_turn(
    levels_of: list[_LevelTable], lots: list[list[str]], snapshot: Snapshot
) -> tuple[list[_LevelTable], list[list[str]]]:
    """The same, with those apart who wait for a volume that is for one pod at a time."""
    usable = [level.shape for level in levels_of if not level.shape.error and not level.storage.error]
    claims = scarce({key for shape in usable for key, _ in shape.claims}, snapshot)
    if not claims:
        return levels_of, lots
    line = [pod_class for pod_class in _waiting(snapshot) if any(key in claims for key, _ in pod_class.shape.claims)]
    line.sort(
        key=lambda pod_class: (not pod_class.pod.spec.node_name, -_priority(pod_class.shape, snapshot.priorities))
    )
    able = set(usable)
    waiting = turns(
        [(pod_class.name, pod_class.pod) for pod_class in line if pod_class.shape in able], claims, snapshot
    )
    parted: dict[tuple[int, Trouble | None], list[str]] = {}
    for index, names in enumerate(lots):
        for name in names:
            parted.setdefault((index, waiting.get(name)), []).append(name)
    levels = [
        levels_of[index]
        if why is None
        else _LevelTable(levels_of[index].shape, levels_of[index].levels, Storage(error=why.text, code=why.code))
        for index, why in parted
    ]
    return levels, list(parted.values())


def _sharing(
    levels_of: Sequence[_LevelTable],
    pods: Sequence[int],
    snapshot: Snapshot,
    running: Callable[[], Iterable[Set[Volume]]],
) -> Sharing:
    """How volumes are counted that several pods use: an existing node counts as a pod for what it holds."""
    uses: Counter[Volume] = Counter()
    for table, count in zip(levels_of, pods, strict=True):
        for volume in table.storage.attached:
            uses[volume] += count
    if not uses:
        return NO_PODS
    uses.update(uses.keys() & set[Volume]().union(*running()))
    if max(uses.values()) < 2:
        return NO_PODS
    offered = {driver for pool in snapshot.pools for kind in pool.types for driver in kind.attach_limits}
    return sharing(uses, offered.union(*(node.attach_limits for node in snapshot.nodes)))


def _relieved(levels_of: _LevelTable, shared: Sharing) -> _LevelTable:
    storage = shared.relieved(levels_of.storage)
    return levels_of if storage is levels_of.storage else _LevelTable(levels_of.shape, levels_of.levels, storage)


class _Kinds:
    """Finds what makes pods one class: their kind, the groups that count them, of all that there are, and the rest."""

    def __init__(self, groups: frozenset[Group], priorities: Mapping[str, int]) -> None:
        self._named, self._general = _by_label(groups)
        self._priorities = priorities
        self._token = object()
        self._known: dict[object, Kind] = {}
        self._alike: dict[object, _Alike] = {}
        self._counted: dict[str, frozenset[Group]] = {}
        self._same: dict[frozenset[Group], frozenset[Group]] = {}

    def of(self, levels_of: Sequence[_LevelTable]) -> list[_Alike]:
        """For each of them what its pods have in common with others of their class; what was found before holds."""
        token = self._token
        return [last[1] if (last := level.alike)[0] is token else self._find(level) for level in levels_of]

    def _find(self, levels_of: _LevelTable) -> _Alike:
        shape, storage, kind = levels_of.shape, levels_of.storage, self._kind(levels_of)
        named = _priority(shape, self._priorities)
        key = (kind, shape.takes, _traits(storage) if storage is not NOTHING else (), shape.error, named)
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = _Alike(kind, named)
        levels_of.alike = (self._token, alike)
        return alike

    def _kind(self, levels_of: _LevelTable) -> Kind:
        shape, levels, storage = levels_of.shape, levels_of.levels, levels_of.storage
        members = self._counted.get(shape.who)
        if members is None:
            members = self._counted[shape.who] = self._members(shape)
        key = (id(levels), id(members), shape.tolerated, storage.alternatives)
        kind = self._known.get(key)
        if kind is None:
            kind = self._known[key] = Kind(shape, storage, levels, members)
        return kind

    def _members(self, shape: Shape) -> frozenset[Group]:
        asked = chain(self._general, *(self._named.get(pair, ()) for pair in shape.labels.items()))
        groups = frozenset(group for group in asked if group.counts(shape.namespace, shape.labels))
        return self._same.setdefault(groups, groups)

    @property
    def outgrown(self) -> bool:
        """Whether most of it speaks of pods that are gone by now."""
        return len(self._counted) > _MOST_KNOWN or len(self._alike) > _MOST_KNOWN


def _by_label(groups: Iterable[Group]) -> tuple[dict[tuple[str, str], list[Group]], list[Group]]:
    """Groups by a label that all of their members have, and those that name none."""
    named: dict[tuple[str, str], list[Group]] = {}
    general: list[Group] = []
    for group in groups:
        pod_class = next(((key, values) for key, operator, values in group.selector if operator == "In"), None)
        if pod_class is None:
            general.append(group)
        else:
            for value in pod_class[1]:
                named.setdefault((pod_class[0], value), []).append(group)
    return named, general


def _priority(shape: Shape, priorities: Mapping[str, int]) -> int:
    """That of the pod itself, of the class it names, or (under the empty name) of the default class."""
    return priorities.get(shape.priority_class, 0) if shape.priority is None else shape.priority


def _kinds_of(groups: frozenset[Group], snapshot: Snapshot) -> _Kinds:
    """The kinds where there are these groups: snapshot after snapshot it is much the same that pods ask."""
    table = snapshot.memory.table("kinds")
    key = (groups, tuple(snapshot.priorities.items()))
    kinds: _Kinds | None = table.get(key)
    if kinds is None or kinds.outgrown:
        table.clear()
        kinds = table[key] = _Kinds(groups, snapshot.priorities)
    return kinds


def pods_by_shape(snapshot: Snapshot) -> dict[Shape, list[str]]:
    """The pending pods by what they ask, in their order."""
    pods: defaultdict[Shape, list[str]] = defaultdict(list)
    for pod_class in _waiting(snapshot):
        pods[pod_class.shape].append(pod_class.name)
    return pods


def _constraints_by_level(
    shapes: Sequence[Shape],
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    dislikes: bool,
    huddled: frozenset[Group],
) -> list[_LevelTable]:
    """The relaxation levels of shapes, each remembered where it depends on the shape alone; equal relaxation levels
    are one object.
    """
    made_for = (snapshot.preferences, dislikes, bool(snapshot.default_spread))
    made_for = snapshot.memory.table("levels by selector").setdefault(made_for, made_for)
    tables: list[_LevelTable] = [
        cached[1]
        if (cached := shape.relaxation_levels)[0] is made_for
        else _levels_of(shape, snapshot, namespaces, made_for)
        for shape in shapes
    ]
    if huddled:
        tables = [_climbing(table, on_one_node(table.levels, huddled), snapshot.memory) for table in tables]
    return [_stored(table, snapshot) if table.shape.claims else table for table in tables]


def _levels_of(
    shape: Shape,
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    made_for: tuple[Preferences, bool, bool],
) -> _LevelTable:
    preferences, dislikes, spread = made_for
    spreads = shape.spreads or (_default_spreads(shape, snapshot) if spread else ())
    made = relaxation_levels(shape, spreads, preferences, namespaces, dislikes)
    level_table = _LevelTable(shape, snapshot.memory.table("levels").setdefault(made, made))
    selective = any(near.namespace_selector for near in (*shape.affinity, *shape.anti))
    if not selective and (shape.spreads or not spread):
        shape.relaxation_levels = (made_for, level_table)
    return level_table


def _climbing(levels_of: _LevelTable, levels: tuple[RelaxationLevel, ...], memory: Memory) -> _LevelTable:
    """The same on another relaxation levels."""
    return _LevelTable(levels_of.shape, memory.table("levels").setdefault(levels, levels), levels_of.storage)


def _stored(levels_of: _LevelTable, snapshot: Snapshot) -> _LevelTable:
    """The same for pods with volumes: those go home first that have one."""
    storage = storage_of(levels_of.shape.claims, snapshot)
    level_table = _LevelTable(levels_of.shape, levels_of.levels, storage)
    return (
        _climbing(level_table, homed(levels_of.levels, storage.home), snapshot.memory) if storage.home else level_table
    )


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A pending pod as it is remembered from one snapshot to the next."""

    pod: Pod
    shape: Shape
    name: str
    order: str


_order = attrgetter("order")


def _waiting(snapshot: Snapshot) -> list[_Waiting]:
    """The pending pods in their order; of those that were pending before nothing is worked out again.

    They are remembered for as long as a pod holds their snapshot. To let go of a thousand pods takes as long as to
    plan a few hundred: a pod that comes next should not wait for that.
    """
    memory = snapshot.memory
    last: dict[str, Any] = memory.table("pending")
    before: dict[int, _Waiting] = last.get("known", {})
    keys = list(map(id, snapshot.pending))
    if keys != list(before):
        new = [pod for key, pod in zip(keys, snapshot.pending, strict=True) if key not in before]
        made = {
            id(pod): _Waiting(pod, shape, pod_key(pod), _pod_order(pod))
            for pod, shape in zip(new, last_shapes_of(new, memory), strict=True)
        }
        waiting = {key: before.get(key) or made[key] for key in keys} if before else made
        last.update(known=waiting, line=sorted(waiting.values(), key=_order))
    last["whose"] = ref(snapshot, lambda _: last.clear())
    line: list[_Waiting] = last.get("line", [])
    return line


def pod_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


def _pod_order(pod: Pod) -> str:
    """Older pods first, then by UID, then by name with the ordinal as a number: it decides who of a kind goes short.

    One text, because those are put in order fastest: its parts are compared one after the other.
    """
    meta = pod.metadata
    made = meta.creation_timestamp.isoformat() if meta.creation_timestamp is not None else ""
    if meta.uid:
        return "\0".join((made, meta.uid, meta.namespace, meta.name))
    stem, _, ordinal = meta.name.rpartition("-")
    number = ordinal.zfill(9) if ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 10 else ""
    return "\0".join((made, "", meta.namespace, stem, number, meta.name))


def _default_spreads(shape: Shape, snapshot: Snapshot) -> tuple[Spread, ...]:
    selector = snapshot.selectors.get(shape.controller)
    if selector is None:
        return ()
    term = of_selector(selector, shape.labels)
    return tuple(
        Spread(
            topology_spread.topology_key,
            topology_spread.max_skew,
            topology_spread.when_unsatisfiable != "ScheduleAnyway",
            term,
            topology_spread.min_domains or 0,
            True,
            False,
        )
        for topology_spread in snapshot.default_spread
    )
