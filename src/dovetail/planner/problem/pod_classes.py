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
from dovetail.model.pvc_problems import PvcProblem
from dovetail.planner.cache import PlannerCache
from dovetail.planner.problem.pod_spec import PodConstraints, SpreadConstraint, last_shapes_of
from dovetail.planner.problem.relaxation import (
    RelaxationLevel,
    levels_without_preferences,
    on_one_node,
    relaxation_levels,
    with_home_node,
)
from dovetail.planner.problem.shared_volumes import NO_SHARED_VOLUMES, SharedVolumes, sharing
from dovetail.planner.problem.topology_groups import TopologyGroup
from dovetail.planner.problem.volumes import (
    NO_VOLUMES,
    Volume,
    VolumeConstraints,
    exclusive_claims,
    pods_waiting_for_claims,
    storage_of,
)
from dovetail.planner.requirements import of_selector
from dovetail.planner.snapshot import Preferences, Snapshot

#: Requests are cut to this amount: no node has as much of any resource.
TOO_MUCH = 1 << 52
#: Cached pods with different labels.
_MAX_CACHED_PODS = 10_000


class ConstraintClass:
    """The constraints of pods without their resource requests, shared by all classes with equal ones."""

    __slots__ = ("alternatives", "levels", "members", "tolerated", "tolerations")

    def __init__(
        self,
        shape: PodConstraints,
        storage: VolumeConstraints,
        levels: tuple[RelaxationLevel, ...],
        members: frozenset[TopologyGroup],
    ) -> None:
        self.levels = levels
        self.members = members
        self.tolerations = shape.tolerations
        self.tolerated = shape.tolerated
        self.alternatives = storage.alternatives


class PodClass(msgspec.Struct, eq=False):
    """Pods that are equal for the planner; `requests` are those of each pod, `error` forbids placing them."""

    index: int
    shape: PodConstraints
    storage: VolumeConstraints
    kind: ConstraintClass
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
    def levels_without_preferences(self) -> tuple[int, ...]:
        """The indices of the levels that have no preference left."""
        return levels_without_preferences(self.kind.levels)

    @property
    def members(self) -> frozenset[TopologyGroup]:
        """The groups that count its pods."""
        return self.kind.members


class _ClassKey(msgspec.Struct, frozen=True, eq=False):
    """What the pods of one class have in common, apart from their requests and errors."""

    kind: ConstraintClass
    priority: int


class _ShapeLevels:
    """A shape, its relaxation levels, and its storage requirements."""

    __slots__ = ("alike", "levels", "shape", "storage")

    def __init__(
        self, shape: PodConstraints, levels: tuple[RelaxationLevel, ...], storage: VolumeConstraints = NO_VOLUMES
    ) -> None:
        self.shape = shape
        self.levels = levels
        self.storage = storage
        self.alike: tuple[object, Any] = (None, None)
        """The last cached result and the `_ConstraintClasses` that computed it."""


_levels = attrgetter("levels")
_claims = attrgetter("claims")


def classes_of(
    by_shape: Mapping[PodConstraints, list[str]],
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    has_avoided_taints: bool,
    running_anti_affinities: list[TopologyGroup],
    single_node_affinities: frozenset[TopologyGroup],
    running: Callable[[], Iterable[Set[Volume]]],
) -> tuple[list[PodClass], list[TopologyGroup], SharedVolumes]:
    """The classes of pending pods, the topology groups that apply to them, and how shared volumes are counted.

    The groups are their own and the anti-affinities of running pods (`running_anti_affinities`). Volumes may be shared
    with `running` pods. `single_node_affinities` are affinities that can only hold on a single node.
    """
    levels_of, pods_by_table = (
        _constraints_by_level(list(by_shape), snapshot, namespaces, has_avoided_taints, single_node_affinities),
        list(by_shape.values()),
    )
    shared = NO_SHARED_VOLUMES
    if any(map(_claims, by_shape)):
        levels_of, pods_by_table = _separate_waiting_pods(levels_of, pods_by_table, snapshot)
        shared = _sharing(levels_of, list(map(len, pods_by_table)), snapshot, running)
    if shared.bits:
        levels_of = [_with_shared_volumes(level, shared) for level in levels_of]
    constraints = list(map(_levels, levels_of))
    distinct = dict(zip(map(id, constraints), constraints, strict=True))
    owned = [group for levels in distinct.values() for group in (*levels[0].hard, *levels[0].soft)]
    groups = list(dict.fromkeys([*owned, *running_anti_affinities]))
    merged: dict[_ClassKey, PodClass] = {}
    alike = _constraint_classes_of(frozenset(groups), snapshot).of(levels_of)
    for table, same, pods in zip(levels_of, alike, pods_by_table, strict=True):
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


def _traits(storage: VolumeConstraints) -> tuple[object, ...]:
    """What distinguishes pods by their volumes, apart from the nodes that the volumes allow."""
    return (tuple(sorted(driver for driver, _ in storage.attached)), storage.shared, storage.error)


def _separate_waiting_pods(
    levels_of: list[_ShapeLevels], pods_by_table: list[list[str]], snapshot: Snapshot
) -> tuple[list[_ShapeLevels], list[list[str]]]:
    """The same, with pods in shapes of their own that wait for a ReadWriteOncePod claim."""
    usable = [level.shape for level in levels_of if not level.shape.error and not level.storage.error]
    claims = exclusive_claims({key for shape in usable for key, _ in shape.claims}, snapshot)
    if not claims:
        return levels_of, pods_by_table
    line = [
        pod_class for pod_class in _pending_pods(snapshot) if any(key in claims for key, _ in pod_class.shape.claims)
    ]
    line.sort(
        key=lambda pod_class: (not pod_class.pod.spec.node_name, -_priority(pod_class.shape, snapshot.priorities))
    )
    able = set(usable)
    waiting = pods_waiting_for_claims(
        [(pod_class.name, pod_class.pod) for pod_class in line if pod_class.shape in able], claims, snapshot
    )
    by_blocked_claim: dict[tuple[int, PvcProblem | None], list[str]] = {}
    for index, names in enumerate(pods_by_table):
        for name in names:
            by_blocked_claim.setdefault((index, waiting.get(name)), []).append(name)
    levels = [
        levels_of[index]
        if why is None
        else _ShapeLevels(
            levels_of[index].shape, levels_of[index].levels, VolumeConstraints(error=why.text, code=why.code)
        )
        for index, why in by_blocked_claim
    ]
    return levels, list(by_blocked_claim.values())


def _sharing(
    levels_of: Sequence[_ShapeLevels],
    pods: Sequence[int],
    snapshot: Snapshot,
    running: Callable[[], Iterable[Set[Volume]]],
) -> SharedVolumes:
    """How volumes are counted that several pods use; an existing node counts as one pod for its volumes."""
    uses: Counter[Volume] = Counter()
    for table, count in zip(levels_of, pods, strict=True):
        for volume in table.storage.attached:
            uses[volume] += count
    if not uses:
        return NO_SHARED_VOLUMES
    uses.update(uses.keys() & set[Volume]().union(*running()))
    if max(uses.values()) < 2:
        return NO_SHARED_VOLUMES
    offered = {driver for pool in snapshot.pools for kind in pool.types for driver in kind.attach_limits}
    return sharing(uses, offered.union(*(node.attach_limits for node in snapshot.nodes)))


def _with_shared_volumes(levels_of: _ShapeLevels, shared: SharedVolumes) -> _ShapeLevels:
    storage = shared.with_shared_separated(levels_of.storage)
    return levels_of if storage is levels_of.storage else _ShapeLevels(levels_of.shape, levels_of.levels, storage)


class _ConstraintClasses:
    """Finds the kind of pods, the groups that count them, and what else makes them one class."""

    def __init__(self, groups: frozenset[TopologyGroup], priorities: Mapping[str, int]) -> None:
        self._named, self._general = _by_label(groups)
        self._priorities = priorities
        self._token = object()
        self._cached: dict[object, ConstraintClass] = {}
        self._alike: dict[object, _ClassKey] = {}
        self._counted: dict[str, frozenset[TopologyGroup]] = {}
        self._same: dict[frozenset[TopologyGroup], frozenset[TopologyGroup]] = {}

    def of(self, levels_of: Sequence[_ShapeLevels]) -> list[_ClassKey]:
        """For each shape what its pods have in common with others of their class, cached."""
        token = self._token
        return [last[1] if (last := level.alike)[0] is token else self._find(level) for level in levels_of]

    def _find(self, levels_of: _ShapeLevels) -> _ClassKey:
        shape, storage, kind = levels_of.shape, levels_of.storage, self._kind(levels_of)
        named = _priority(shape, self._priorities)
        key = (kind, shape.requests_key, _traits(storage) if storage is not NO_VOLUMES else (), shape.error, named)
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = _ClassKey(kind, named)
        levels_of.alike = (self._token, alike)
        return alike

    def _kind(self, levels_of: _ShapeLevels) -> ConstraintClass:
        shape, levels, storage = levels_of.shape, levels_of.levels, levels_of.storage
        members = self._counted.get(shape.selector_key)
        if members is None:
            members = self._counted[shape.selector_key] = self._members(shape)
        key = (id(levels), id(members), shape.tolerated, storage.alternatives)
        kind = self._cached.get(key)
        if kind is None:
            kind = self._cached[key] = ConstraintClass(shape, storage, levels, members)
        return kind

    def _members(self, shape: PodConstraints) -> frozenset[TopologyGroup]:
        candidates = chain(self._general, *(self._named.get(pair, ()) for pair in shape.labels.items()))
        groups = frozenset(group for group in candidates if group.counts(shape.namespace, shape.labels))
        return self._same.setdefault(groups, groups)

    @property
    def outgrown(self) -> bool:
        """Whether most cached entries are about deleted pods."""
        return len(self._counted) > _MAX_CACHED_PODS or len(self._alike) > _MAX_CACHED_PODS


def _by_label(
    groups: Iterable[TopologyGroup],
) -> tuple[dict[tuple[str, str], list[TopologyGroup]], list[TopologyGroup]]:
    """Groups by a label that all of their members have, and the groups without such a label."""
    named: dict[tuple[str, str], list[TopologyGroup]] = {}
    general: list[TopologyGroup] = []
    for group in groups:
        pod_class = next(((key, values) for key, operator, values in group.selector if operator == "In"), None)
        if pod_class is None:
            general.append(group)
        else:
            for value in pod_class[1]:
                named.setdefault((pod_class[0], value), []).append(group)
    return named, general


def _priority(shape: PodConstraints, priorities: Mapping[str, int]) -> int:
    """The priority of the pod itself, of its PriorityClass, or (under the empty name) of the default class."""
    return priorities.get(shape.priority_class, 0) if shape.priority is None else shape.priority


def _constraint_classes_of(groups: frozenset[TopologyGroup], snapshot: Snapshot) -> _ConstraintClasses:
    """The kinds for these groups, cached: pods of successive snapshots have much the same constraints."""
    table = snapshot.memory.table("kinds")
    key = (groups, tuple(snapshot.priorities.items()))
    kinds: _ConstraintClasses | None = table.get(key)
    if kinds is None or kinds.outgrown:
        table.clear()
        kinds = table[key] = _ConstraintClasses(groups, snapshot.priorities)
    return kinds


def pods_by_shape(snapshot: Snapshot) -> dict[PodConstraints, list[str]]:
    """The pending pods by shape, in their order."""
    pods: defaultdict[PodConstraints, list[str]] = defaultdict(list)
    for pod_class in _pending_pods(snapshot):
        pods[pod_class.shape].append(pod_class.name)
    return pods


def _constraints_by_level(
    shapes: Sequence[PodConstraints],
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    has_avoided_taints: bool,
    single_node_affinities: frozenset[TopologyGroup],
) -> list[_ShapeLevels]:
    """The relaxation levels of shapes, cached if they depend on the shape alone; equal levels are one object."""
    made_for = (snapshot.preferences, has_avoided_taints, bool(snapshot.default_spread))
    made_for = snapshot.memory.table("levels by selector").setdefault(made_for, made_for)
    tables: list[_ShapeLevels] = [
        cached[1]
        if (cached := shape.relaxation_levels)[0] is made_for
        else _levels_of(shape, snapshot, namespaces, made_for)
        for shape in shapes
    ]
    if single_node_affinities:
        tables = [
            _with_levels(table, on_one_node(table.levels, single_node_affinities), snapshot.memory) for table in tables
        ]
    return [_with_storage(table, snapshot) if table.shape.claims else table for table in tables]


def _levels_of(
    shape: PodConstraints,
    snapshot: Snapshot,
    namespaces: Mapping[str, Mapping[str, str]],
    made_for: tuple[Preferences, bool, bool],
) -> _ShapeLevels:
    preferences, has_avoided_taints, spread = made_for
    spreads = shape.spreads or (_default_spreads(shape, snapshot) if spread else ())
    made = relaxation_levels(shape, spreads, preferences, namespaces, has_avoided_taints)
    level_table = _ShapeLevels(shape, snapshot.memory.table("levels").setdefault(made, made))
    selective = any(near.namespace_selector for near in (*shape.affinity, *shape.anti))
    if not selective and (shape.spreads or not spread):
        shape.relaxation_levels = (made_for, level_table)
    return level_table


def _with_levels(levels_of: _ShapeLevels, levels: tuple[RelaxationLevel, ...], memory: PlannerCache) -> _ShapeLevels:
    """The same shape with other relaxation levels."""
    return _ShapeLevels(levels_of.shape, memory.table("levels").setdefault(levels, levels), levels_of.storage)


def _with_storage(levels_of: _ShapeLevels, snapshot: Snapshot) -> _ShapeLevels:
    """The same with the storage of the shape; nodes that already have its volume come first."""
    storage = storage_of(levels_of.shape.claims, snapshot)
    level_table = _ShapeLevels(levels_of.shape, levels_of.levels, storage)
    return (
        _with_levels(level_table, with_home_node(levels_of.levels, storage.home), snapshot.memory)
        if storage.home
        else level_table
    )


class _PendingPod(msgspec.Struct, frozen=True, gc=False):
    """A pending pod as cached from one snapshot to the next."""

    pod: Pod
    shape: PodConstraints
    name: str
    order: str


_order = attrgetter("order")


def _pending_pods(snapshot: Snapshot) -> list[_PendingPod]:
    """The pending pods in their order; those that were pending before are cached.

    They are cached as long as their snapshot is referenced. Releasing a thousand pods takes as long as planning a few
    hundred, and the next plan should not wait for that.
    """
    memory = snapshot.memory
    last: dict[str, Any] = memory.table("pending")
    before: dict[int, _PendingPod] = last.get("known", {})
    keys = list(map(id, snapshot.pending))
    if keys != list(before):
        new = [pod for key, pod in zip(keys, snapshot.pending, strict=True) if key not in before]
        made = {
            id(pod): _PendingPod(pod, shape, pod_key(pod), _pod_order(pod))
            for pod, shape in zip(new, last_shapes_of(new, memory), strict=True)
        }
        waiting = {key: before.get(key) or made[key] for key in keys} if before else made
        last.update(known=waiting, line=sorted(waiting.values(), key=_order))
    last["whose"] = ref(snapshot, lambda _: last.clear())
    line: list[_PendingPod] = last.get("line", [])
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


def _default_spreads(shape: PodConstraints, snapshot: Snapshot) -> tuple[SpreadConstraint, ...]:
    selector = snapshot.selectors.get(shape.controller)
    if selector is None:
        return ()
    term = of_selector(selector, shape.labels)
    return tuple(
        SpreadConstraint(
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
