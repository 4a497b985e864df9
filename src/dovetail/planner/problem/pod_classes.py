"""Pod classes: pending pods that are equal for scheduling, with a count.

A shape's labels matter only through the topology groups that select them, and its volumes only through their
requirements on a node. So shapes that differ only in ordinals, hashes or claim names are one class.
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

#: Requests are cut to this amount: no node has as much of any resource.
TOO_MUCH = 1 << 52
#: Cached pods with different labels.
_MAX_CACHED_PODS = 10_000


class Kind:
    """The constraints of pods without their resource requests, shared by all classes with equal ones."""

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
    """Pods that are equal for the planner; `requests` are those of each pod, `error` forbids placing them."""

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
        """The groups that count its pods."""
        return self.kind.members


class _Alike(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one class have in common, apart from their requests and errors."""

    kind: Kind
    priority: int


class _LevelTable:
    """A shape, its relaxation levels, and its storage requirements."""

    __slots__ = ("alike", "levels", "shape", "storage")

    def __init__(self, shape: Shape, levels: tuple[RelaxationLevel, ...], storage: Storage = NOTHING) -> None:
        self.shape = shape
        self.levels = levels
        self.storage = storage
        self.alike: tuple[object, Any] = (None, None)
        """The last cached result and the `_Kinds` that computed it."""


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
    """The classes of pending pods, the topology groups that apply to them, and how shared volumes are counted.

    The groups are their own and the anti-affinities of running pods (`feared`). Volumes may be shared with `running`
    pods. `huddled` are affinities that can only hold on a single node.
    """
    levels_of, lots = (
        _constraints_by_level(list(by_shape), snapshot, namespaces, dislikes, huddled),
        list(by_shape.values()),
    )
    shared = NO_PODS
    if any(map(_claims, by_shape)):
        levels_of, lots = _separate_waiting_pods(levels_of, lots, snapshot)
        shared = _sharing(levels_of, list(map(len, lots)), snapshot, running)
    if shared.bits:
        levels_of = [_with_shared_volumes(level, shared) for level in levels_of]
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
    """What distinguishes pods by their volumes, apart from the nodes that the volumes allow."""
    return (tuple(sorted(driver for driver, _ in storage.attached)), storage.shared, storage.error)


def _separate_waiting_pods(
    levels_of: list[_LevelTable], lots: list[list[str]], snapshot: Snapshot
) -> tuple[list[_LevelTable], list[list[str]]]:
    """The same, with pods in shapes of their own that wait for a ReadWriteOncePod claim."""
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
    """How volumes are counted that several pods use; an existing node counts as one pod for its volumes."""
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


def _with_shared_volumes(levels_of: _LevelTable, shared: Sharing) -> _LevelTable:
    storage = shared.relieved(levels_of.storage)
    return levels_of if storage is levels_of.storage else _LevelTable(levels_of.shape, levels_of.levels, storage)


class _Kinds:
    """Finds the kind of pods, the groups that count them, and what else makes them one class."""

    def __init__(self, groups: frozenset[Group], priorities: Mapping[str, int]) -> None:
        self._named, self._general = _by_label(groups)
        self._priorities = priorities
        self._token = object()
        self._known: dict[object, Kind] = {}
        self._alike: dict[object, _Alike] = {}
        self._counted: dict[str, frozenset[Group]] = {}
        self._same: dict[frozenset[Group], frozenset[Group]] = {}

    def of(self, levels_of: Sequence[_LevelTable]) -> list[_Alike]:
        """For each shape what its pods have in common with others of their class, cached."""
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
        """Whether most cached entries are about deleted pods."""
        return len(self._counted) > _MAX_CACHED_PODS or len(self._alike) > _MAX_CACHED_PODS


def _by_label(groups: Iterable[Group]) -> tuple[dict[tuple[str, str], list[Group]], list[Group]]:
    """Groups by a label that all of their members have, and the groups without such a label."""
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
    """The priority of the pod itself, of its PriorityClass, or (under the empty name) of the default class."""
    return priorities.get(shape.priority_class, 0) if shape.priority is None else shape.priority


def _kinds_of(groups: frozenset[Group], snapshot: Snapshot) -> _Kinds:
    """The kinds for these groups, cached: pods of successive snapshots have much the same constraints."""
    table = snapshot.memory.table("kinds")
    key = (groups, tuple(snapshot.priorities.items()))
    kinds: _Kinds | None = table.get(key)
    if kinds is None or kinds.outgrown:
        table.clear()
        kinds = table[key] = _Kinds(groups, snapshot.priorities)
    return kinds


def pods_by_shape(snapshot: Snapshot) -> dict[Shape, list[str]]:
    """The pending pods by shape, in their order."""
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
    """The relaxation levels of shapes, cached if they depend on the shape alone; equal levels are one object."""
    made_for = (snapshot.preferences, dislikes, bool(snapshot.default_spread))
    made_for = snapshot.memory.table("levels by selector").setdefault(made_for, made_for)
    tables: list[_LevelTable] = [
        cached[1]
        if (cached := shape.relaxation_levels)[0] is made_for
        else _levels_of(shape, snapshot, namespaces, made_for)
        for shape in shapes
    ]
    if huddled:
        tables = [_with_levels(table, on_one_node(table.levels, huddled), snapshot.memory) for table in tables]
    return [_with_storage(table, snapshot) if table.shape.claims else table for table in tables]


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


def _with_levels(levels_of: _LevelTable, levels: tuple[RelaxationLevel, ...], memory: Memory) -> _LevelTable:
    """The same shape with other relaxation levels."""
    return _LevelTable(levels_of.shape, memory.table("levels").setdefault(levels, levels), levels_of.storage)


def _with_storage(levels_of: _LevelTable, snapshot: Snapshot) -> _LevelTable:
    """The same with the storage of the shape; nodes that already have its volume come first."""
    storage = storage_of(levels_of.shape.claims, snapshot)
    level_table = _LevelTable(levels_of.shape, levels_of.levels, storage)
    return (
        _with_levels(level_table, homed(levels_of.levels, storage.home), snapshot.memory)
        if storage.home
        else level_table
    )


class _Waiting(msgspec.Struct, frozen=True, gc=False):
    """A pending pod as cached from one snapshot to the next."""

    pod: Pod
    shape: Shape
    name: str
    order: str


_order = attrgetter("order")


def _waiting(snapshot: Snapshot) -> list[_Waiting]:
    """The pending pods in their order; those that were pending before are cached.

    They are cached as long as their snapshot is referenced. Releasing a thousand pods takes as long as planning a few
    hundred, and the next plan should not wait for that.
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
    """The sort key of a pod: age, then UID, then name with the ordinal as a number.

    It decides which pods of a class stay unplaced. It is one string, because strings are sorted fastest.
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
