"""Classes: pending pods that are alike for every purpose of scheduling, with a count.

A shape's labels matter only through the groups that select them, and its volumes only through what they ask
of a machine. So shapes that differ in nothing else (ordinals, hashes, claim names) are one class.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from dovetail.model.pods import Pod
from dovetail.planner.clauses import of_selector
from dovetail.planner.groups import Group
from dovetail.planner.ladder import Level, fenced, homed, ladder, on_one_machine
from dovetail.planner.memory import Memory
from dovetail.planner.shape import Shape, Spread, last_shape_of
from dovetail.planner.sharing import NOBODY, Sharing, sharing
from dovetail.planner.snapshot import Preferences, Snapshot
from dovetail.planner.storage import NOTHING, Storage, Volume, storage_of

#: Nobody owns this much of anything; a request beyond it cannot be counted, and need not be.
TOO_MUCH = 1 << 52
#: Pods with more different labels than this are not remembered all at once.
_MOST_KNOWN = 10_000
_NO_FENCES: frozenset[Group] = frozenset()


class Kind:
    """What pods ask apart from what they take: all classes that are alike in it share it, and what follows from it."""

    __slots__ = ("alternatives", "levels", "members", "tolerated", "tolerations")

    def __init__(self, shape: Shape, storage: Storage, levels: tuple[Level, ...], members: frozenset[Group]) -> None:
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
    def levels(self) -> tuple[Level, ...]:
        """The ladder."""
        return self.kind.levels

    @property
    def members(self) -> frozenset[Group]:
        """The groups that count them."""
        return self.kind.members


class _Rungs(msgspec.Struct, frozen=True, gc=False):
    """A shape, where its volumes let it run, its ladder, groups that count it by more than labels, and its pods."""

    shape: Shape
    storage: Storage
    levels: tuple[Level, ...]
    fences: frozenset[Group]
    pods: list[str]


def classes_of(
    snapshot: Snapshot, namespaces: Mapping[str, Mapping[str, str]], dislikes: bool, feared: list[Group],
    huddled: frozenset[Group], running: Callable[[], Set[Volume]],
) -> tuple[list[PodClass], list[Group], Sharing]:  # fmt: skip
    """The classes of the pending pods, every group that matters to them (their own, and those they must fear), and how
    the volumes are counted that they share with each other, or with pods that are `running`.

    `huddled` are affinities that only one machine for all can keep.
    """
    rungs = _by_shape(snapshot, namespaces, dislikes, huddled)
    shared = _sharing(rungs, snapshot, running)
    if shared.drivers:
        rungs = [_relieved(each, shared, snapshot.memory) for each in rungs]
    ladders = {id(each.levels): each.levels[0] for each in rungs}
    owned = [group for level in ladders.values() for group in (*level.hard, *level.soft)]
    groups = list(dict.fromkeys([*owned, *feared]))
    merged: dict[object, PodClass] = {}
    kinds = _kinds_of(tuple(groups), snapshot.memory)
    for each in rungs:
        shape, storage, pods = each.shape, each.storage, each.pods
        kind = kinds.of(shape, storage, each.levels, each.fences)
        priority = _priority(shape, snapshot) if shape.priority is None else shape.priority
        key = (kind, shape.takes, _traits(storage) if storage is not NOTHING else (), shape.error, priority)
        found = merged.get(key)
        if found is None:
            error = shape.error or storage.error
            merged[key] = PodClass(
                len(merged), shape, storage, kind, priority, pods, len(pods), shape.requests, error
            )
        else:
            found.pods += pods
            found.count += len(pods)
    return list(merged.values()), groups, shared


def _traits(storage: Storage) -> tuple[object, ...]:
    """What makes pods different by their volumes, beside where those let them run."""
    return (tuple(sorted(driver for driver, _ in storage.attached)), storage.shared, storage.error)


def _sharing(rungs: list[_Rungs], snapshot: Snapshot, running: Callable[[], Set[Volume]]) -> Sharing:
    """How volumes are counted that several pods use: a machine that is there counts as a pod for what it holds."""
    uses: Counter[Volume] = Counter()
    for each in rungs:
        for volume in each.storage.attached:
            uses[volume] += len(each.pods)
    if not uses:
        return NOBODY
    uses.update(running() & uses.keys())
    if max(uses.values()) < 2:
        return NOBODY
    limits: dict[str, int] = {}
    for driver, most in (pair for pool in snapshot.pools for kind in pool.types for pair in kind.attach_limits.items()):
        if most > 0:
            limits[driver] = min(most, limits.get(driver, most))
    mixed = {driver for each in rungs for driver, count in Counter(pair[0] for pair in each.storage.attached).items()
             if count > 1 and any(uses[volume] > 1 for volume in each.storage.attached)}  # fmt: skip
    return sharing(uses, limits, mixed)


def _relieved(rungs: _Rungs, shared: Sharing, memory: Memory) -> _Rungs:
    """What pods ask where some of their volumes are attached for several of them."""
    own, others = shared.fenced(rungs.storage)
    made = fenced(rungs.levels, own)
    levels = memory.table("levels").setdefault(made, made)
    return replace(rungs, storage=shared.relieved(rungs.storage), levels=levels, fences=others)


class _Kinds:
    """Finds the kind of pods, and the groups that count them, of all the groups that there are."""

    def __init__(self, groups: tuple[Group, ...]) -> None:
        self._groups = groups
        self._token = object()
        self._known: dict[object, Kind] = {}
        self._counted: dict[str, frozenset[Group]] = {}
        self._same: dict[frozenset[Group], frozenset[Group]] = {}

    def of(self, shape: Shape, storage: Storage, levels: tuple[Level, ...], fences: frozenset[Group]) -> Kind:
        """The kind; a shape remembers its last one, which holds if all that it came from is the same."""
        token: object = shape.kind[0]
        last: Kind = shape.kind[1]
        if token is self._token and last.levels is levels and last.alternatives is storage.alternatives:
            return last
        members = self._counted.get(shape.who)
        if members is None:
            members = self._counted[shape.who] = self._members(shape)
        if fences:
            members = self._same.setdefault(members | fences, members | fences)
        key = (id(levels), id(members), shape.tolerated, storage.alternatives)
        kind = self._known.get(key)
        if kind is None:
            kind = self._known[key] = Kind(shape, storage, levels, members)
        shape.kind = (self._token, kind)
        return kind

    def _members(self, shape: Shape) -> frozenset[Group]:
        found = frozenset(group for group in self._groups if group.counts(shape.namespace, shape.labels))
        return self._same.setdefault(found, found)

    @property
    def outgrown(self) -> bool:
        """Whether most of it speaks of pods that are gone by now."""
        return len(self._counted) > _MOST_KNOWN


def _kinds_of(groups: tuple[Group, ...], memory: Memory) -> _Kinds:
    """The kinds where there are these groups: snapshot after snapshot it is much the same that pods ask."""
    table = memory.table("kinds")
    found: _Kinds | None = table.get(groups)
    if found is None or found.outgrown:
        table.clear()
        found = table[groups] = _Kinds(groups)
    return found


def _by_shape(
    snapshot: Snapshot, namespaces: Mapping[str, Mapping[str, str]], dislikes: bool, huddled: frozenset[Group]
) -> list[_Rungs]:
    by_shape: defaultdict[Shape, list[str]] = defaultdict(list)
    for one in sorted(_waiting(snapshot), key=_order):
        by_shape[one.shape].append(one.name)
    found = []
    made_for = (snapshot.preferences, dislikes)
    made_for = snapshot.memory.table("ladders").setdefault(made_for, made_for)
    for shape, names in by_shape.items():
        levels = _levels(shape, snapshot, namespaces, made_for)
        if huddled:
            made = on_one_machine(levels, huddled)
            levels = snapshot.memory.table("levels").setdefault(made, made)
        storage = storage_of(shape.claims, snapshot) if shape.claims else NOTHING
        if storage.home:
            made = homed(levels, storage.home)
            levels = snapshot.memory.table("levels").setdefault(made, made)
        found.append(_Rungs(shape, storage, levels, _NO_FENCES, names))
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
    before: dict[int, _Waiting] = memory.table("pending")
    now = {
        id(pod): before.get(id(pod)) or _Waiting(pod, last_shape_of(pod, memory), pod_key(pod), _pod_order(pod))
        for pod in snapshot.pending
    }
    memory.tables["pending"] = now
    return list(now.values())


def _levels(
    shape: Shape, snapshot: Snapshot, namespaces: Mapping[str, Mapping[str, str]], made_for: tuple[Preferences, bool]
) -> tuple[Level, ...]:
    """The shape's ladder, remembered where it depends on the shape alone; equal ladders are one object."""
    spreads = shape.spreads or (_default_spreads(shape, snapshot) if snapshot.default_spread else ())
    alone, known = spreads is shape.spreads, shape.ladder
    if alone and known[0] is made_for:
        remembered: tuple[Level, ...] = known[1]
        return remembered
    made = ladder(shape, spreads, made_for[0], namespaces, made_for[1])
    levels: tuple[Level, ...] = snapshot.memory.table("levels").setdefault(made, made)
    if alone and not any(near.namespace_selector for near in (*shape.affinity, *shape.anti)):
        shape.ladder = (made_for, levels)
    return levels


def pod_key(pod: Pod) -> str:
    return f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"


def _pod_order(pod: Pod) -> tuple[str, str, str, str, int, str]:
    """Older pods first, then by UID, then by name with the ordinal as a number: it decides who of a kind goes short."""
    meta = pod.metadata
    made = meta.creation_timestamp
    if meta.uid:
        return (made.isoformat() if made is not None else "", meta.uid, meta.namespace, "", 0, meta.name)
    stem, _, ordinal = meta.name.rpartition("-")
    number = int(ordinal) if ordinal.isascii() and ordinal.isdigit() and len(ordinal) < 10 else -1
    return (made.isoformat() if made is not None else "", meta.uid, meta.namespace, stem, number, meta.name)


def _default_spreads(shape: Shape, snapshot: Snapshot) -> tuple[Spread, ...]:
    selector = snapshot.selectors.get(shape.controller)
    if selector is None:
        return ()
    term = of_selector(selector, shape.labels)
    return tuple(
        Spread(each.topology_key, each.max_skew, each.when_unsatisfiable != "ScheduleAnyway", term,
               each.min_domains or 0, True, False)
        for each in snapshot.default_spread
    )  # fmt: skip


def _priority(shape: Shape, snapshot: Snapshot) -> int:
    """That of the class it names, or (under the empty name) the default class's."""
    return snapshot.priorities.get(shape.priority_class, 0)
