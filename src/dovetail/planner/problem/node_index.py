"""The node index: all nodes of a snapshot as arrays, kept from one snapshot to the next.

Only nodes whose object has changed are read again. A node keeps its slot as long as it exists; the planning order is
a permutation of the slots, so that nodes can be added and removed without moving others. A problem copies what it
takes from here, so that a later snapshot cannot change an earlier plan.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import numpy as np

from dovetail.model.nodes import Taint
from dovetail.planner.cache import PlannerCache
from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.nodes import Daemon, NodeFacts, facts_of
from dovetail.planner.problem.pod_spec import PodConstraints
from dovetail.planner.problem.topology_groups import ANTI, TopologyGroup
from dovetail.planner.snapshot import NodeState, Snapshot

Pair = tuple[str, str]
#: A resource amount that is never exceeded.
_MAX_AMOUNT = 1 << 52
#: Prefix of the names of new nodes.
NEW = "m-"


#: The content of an unused slot.
_NOWHERE = NodeState(name="", labels={}, allocatable={})
_NOTHING = NodeFacts(_NOWHERE, PlannerCache())


class OrderedNodes:
    """The nodes of a snapshot in planning order, looked up one by one: a plan for few pods touches few nodes."""

    __slots__ = ("_places", "_source")

    def __init__(self, source: tuple[NodeState, ...], places: Ints) -> None:
        self._source = source
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: int) -> NodeState:
        return self._source[int(self._places[row])]

    def __iter__(self) -> Iterator[NodeState]:
        return map(self._source.__getitem__, self._places.tolist())

    def some(self, rows: Ints) -> OrderedNodes:
        """The nodes in some of the rows."""
        return OrderedNodes(self._source, self._places[rows])


class NodeIndex:
    """Rows in planning order: initialised nodes first, then by name. Nodes that are being deleted have no row."""

    def __init__(self, memory: PlannerCache) -> None:
        self._memory = memory
        self._source: tuple[NodeState, ...] = ()
        self._daemons: tuple[object, ...] = ()
        self._reset()

    def _reset(self) -> None:
        self.population = 0
        """The number of pods on all nodes of the snapshot, including nodes that are being deleted."""
        self.alike: tuple[str, ...] = ()
        """Names of existing nodes with the prefix of new nodes."""
        self.pool_usage: defaultdict[str | None, Counter[str]] = defaultdict(Counter)
        """The total capacity of each NodePool's nodes, with their number as `nodes`."""
        self._slots: dict[str, int] = {}
        self._spare: list[int] = []
        self._states: list[NodeState] = []
        self._facts: list[NodeFacts] = []
        self._twins = False
        self._line: list[int] = []
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        """The row of each slot."""
        self._places: Ints = np.zeros(0, dtype=np.int64)
        """The index in the snapshot of each row's node."""
        self._free: dict[str, Ints] = {}
        self._codes: dict[str, tuple[dict[str | None, int], Ints]] = {}
        self._taints: dict[tuple[Taint, ...], int] = {(): 0}
        self._tainted: Ints = np.zeros(0, dtype=np.int64)
        self._terminating: set[int] = set()
        """The slots of nodes with terminating pods."""
        self._ported: set[int] = set()
        """The slots of nodes with ports or volumes in use."""
        self._shapes: dict[PodConstraints, dict[int, int]] = {}
        self._with_anti_affinity: dict[PodConstraints, dict[int, int]] = {}
        """The shapes of pods with required anti-affinity."""
        self._by_pair: dict[Pair, dict[PodConstraints, None]] = {}

    def sync(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon], daemon_key: tuple[object, ...]) -> None:
        """Update the rows to a snapshot."""
        if daemon_key != self._daemons:
            self._reset()
            self._daemons, self._source = daemon_key, ()
        if not self._same_nodes(source, daemons):
            self._reassign_slots(source, daemons)
        self._source = source

    @property
    def all_nodes(self) -> OrderedNodes:
        """The nodes by row."""
        return OrderedNodes(self._source, self._places)

    def belongs_to(self, source: tuple[NodeState, ...]) -> bool:
        """Whether the rows belong to a snapshot; another one may have been compiled since."""
        return self._source is source

    def _same_nodes(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon]) -> bool:
        """Whether the nodes are the same in the same order; then only changed ones are read again."""
        if len(source) != len(self._source) or self._twins:
            return False
        changed = [(new, old) for new, old in zip(source, self._source, strict=True) if new is not old]
        if any((a.name, a.initialized, a.deleting) != (b.name, b.initialized, b.deleting) for a, b in changed):
            return False
        for new, old in changed:
            self.population += len(new.pods) - len(old.pods)
            slot = self._slots.get(new.name)
            if slot is not None:
                self._replace(slot, new, daemons)
        return True

    def _reassign_slots(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon]) -> None:
        """Assign slots and rows again after nodes were added, removed or reordered."""
        staying: dict[str, tuple[NodeState, int]] = {}
        self._twins = False
        for place, node in enumerate(source):
            if not node.deleting:
                twin = node.name in staying
                staying[f"{node.name}\0{len(staying)}" if twin else node.name] = node, place
                self._twins = self._twins or twin
        for key in [key for key in self._slots if key not in staying]:
            self._remove_node(self._slots.pop(key))
        places: dict[int, int] = {}
        for key, (node, place) in staying.items():
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = self._add_node(node, daemons)
            elif self._states[slot] is not node:
                self._replace(slot, node, daemons)
            places[slot] = place
        self._codes = {key: code for key, code in self._codes.items() if len(code[0]) <= 2 * len(self._states)}
        if len(self._taints) > 2 * len(self._states):
            self._taints = {(): 0}
            self._tainted[:] = [self._taints.setdefault(node.taints, len(self._taints)) for node in self._states]
        self._line = sorted(self._slots.values(), key=self._rank)
        self._order = np.array(self._line, dtype=np.int64)
        self._rows = np.full(len(self._states), -1, dtype=np.int64)
        self._rows[self._order] = np.arange(len(self._line))
        self._places = np.array([places[slot] for slot in self._line], dtype=np.int64)
        self.population = sum([len(node.pods) for node in source])
        self.alike = tuple(node.name for node in source if node.name.startswith(NEW[0]))

    def _rank(self, slot: int) -> tuple[bool, str]:
        return (not self._states[slot].initialized, self._states[slot].name)

    def _add_node(self, node: NodeState, daemons: Sequence[Daemon]) -> int:
        if not self._spare:
            self._extend(max(64, len(self._states)))
        slot = self._spare.pop()
        self._replace(slot, node, daemons)
        return slot

    def _extend(self, more: int) -> None:
        size = len(self._states)
        self._spare += range(size + more - 1, size - 1, -1)
        self._states += [_NOWHERE] * more
        self._facts += [_NOTHING] * more
        blank = np.zeros(more, dtype=np.int64)
        self._free = {name: np.concatenate([free, blank]) for name, free in self._free.items()}
        self._codes = {key: (code, np.concatenate([codes, blank])) for key, (code, codes) in self._codes.items()}
        self._tainted = np.concatenate([self._tainted, blank])

    def _remove_node(self, slot: int) -> None:
        for shape in self._facts[slot].shapes:
            self._gone(shape, slot)
        self._count_usage(self._states[slot], -1)
        self._states[slot], self._facts[slot] = _NOWHERE, _NOTHING
        self._terminating.discard(slot)
        self._ported.discard(slot)
        self._tainted[slot] = 0
        self._spare.append(slot)

    def _replace(self, slot: int, node: NodeState, daemons: Sequence[Daemon]) -> None:
        old, before, fact = self._states[slot], self._facts[slot], facts_of(node, self._memory)
        fact.count_missing_daemons(node, daemons)
        self._states[slot], self._facts[slot] = node, fact
        for shape in before.shapes.keys() - fact.shapes.keys():
            self._gone(shape, slot)
        for shape, count in fact.shapes.items():
            if before.shapes.get(shape) != count:
                self._where(shape)[slot] = count
        (self._terminating.add if fact.leaving else self._terminating.discard)(slot)
        (self._ported.add if fact.ports or fact.claims else self._ported.discard)(slot)
        for name, free in self._free.items():
            free[slot] = self._room(slot, name)
        if old is _NOWHERE or node.capacity is not old.capacity or node.pool != old.pool:
            self._count_usage(old, -1)
            self._count_usage(node, 1)
        if node.taints is not old.taints:
            self._tainted[slot] = self._taints.setdefault(node.taints, len(self._taints))
        if fact.labels is not before.labels:
            for key, (code, codes) in self._codes.items():
                codes[slot] = code.setdefault(fact.labels.get(key), len(code))

    def _count_usage(self, node: NodeState, sign: int) -> None:
        """Add a node to the usage of its NodePool, or subtract it."""
        if node is not _NOWHERE:
            had = self.pool_usage[node.pool]
            had["nodes"] += sign
            for name, amount in node.capacity.items():
                had[name] += sign * amount

    def _where(self, shape: PodConstraints) -> dict[int, int]:
        """The number of pods of a shape in each slot."""
        slots = self._shapes.get(shape)
        if slots is None:
            slots = self._shapes[shape] = {}
            if _has_anti_affinity(shape):
                self._with_anti_affinity[shape] = slots
            for pair in shape.labels.items():
                self._by_pair.setdefault(pair, {})[shape] = None
        return slots

    def _gone(self, shape: PodConstraints, slot: int) -> None:
        """Record that no pod of a shape is left in a slot."""
        slots = self._shapes[shape]
        del slots[slot]
        if slots:
            return
        del self._shapes[shape]
        self._with_anti_affinity.pop(shape, None)
        for pair in shape.labels.items():
            del self._by_pair[pair][shape]
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def _room(self, slot: int, name: str) -> int:
        node, fact = self._states[slot], self._facts[slot]
        room = node.allocatable.get(name, 0) - fact.used.get(name, 0) - fact.missing_daemons[name]
        return max(-_MAX_AMOUNT, min(room, _MAX_AMOUNT))

    def free(self, name: str) -> Ints:
        """The free amount of a resource on every row."""
        cached = self._free.get(name)
        if cached is None:
            cached = np.array([self._room(slot, name) for slot in range(len(self._states))], dtype=np.int64)
            self._free[name] = cached
        return cached[self._order]

    def codes(self, key: str) -> tuple[dict[str | None, int], Ints]:
        """The values of a label, each with a number (in order), and the number of every row's value."""
        code = self._codes.get(key)
        if code is None:
            codes_by_value: dict[str | None, int] = {}
            numbers = [codes_by_value.setdefault(fact.labels.get(key), len(codes_by_value)) for fact in self._facts]
            code = self._codes[key] = (codes_by_value, np.array(numbers, dtype=np.int64))
        return code[0], code[1][self._order]

    def taints(self) -> tuple[list[tuple[Taint, ...]], Ints]:
        """The distinct sets of taints, and the index of every row's set."""
        return list(self._taints), self._tainted[self._order]

    def where(self, test: Callable[[dict[str, str]], bool], keys: Sequence[str]) -> Bools:
        """The rows whose labels pass a test that reads only these keys."""
        if not keys:
            return np.full(len(self._line), test({}), dtype=np.bool_)
        codes_by_value, alike = self.codes(keys[0])
        if len(keys) == 1:
            answers = [test({} if value is None else {keys[0]: value}) for value in codes_by_value]
            return np.array(answers, dtype=np.bool_)[alike]
        for key in keys[1:]:
            codes_by_value, numbers = self.codes(key)
            _, alike = np.unique(alike * len(codes_by_value) + numbers, return_inverse=True)
        _, first = np.unique(alike, return_index=True)
        labels = (self._facts[self._line[row]].labels for row in first.tolist())
        answers = [test({key: label[key] for key in keys if key in label}) for label in labels]
        return np.array(answers, dtype=np.bool_)[alike]

    def using(self) -> list[tuple[int, NodeFacts]]:
        """The rows on which host ports or volumes are in use, with their facts."""
        return sorted([(int(self._rows[slot]), self._facts[slot]) for slot in self._ported], key=itemgetter(0))

    def members(self, group: TopologyGroup) -> Ints:
        """The number of pods that a group counts on every row."""
        here = np.zeros(len(self._states), dtype=np.int64)
        for shape in self._candidates(group):
            slots = self._shapes[shape]
            if slots and group.counts(shape.namespace, shape.labels):
                here[list(slots)] += list(slots.values())
        for slot in self._terminating if group.kind == ANTI else ():
            here[slot] += sum(group.counts(shape.namespace, shape.labels) for shape in self._facts[slot].leaving)
        return here[self._order]

    def _candidates(self, group: TopologyGroup) -> list[PodConstraints]:
        """The shapes that a group may select: those with a label that its selector names, if it names one."""
        for key, operator, values in group.selector:
            if operator == "In":
                return [shape for value in values for shape in self._by_pair.get((key, value), ())]
        return list(self._shapes)

    def shapes_with_anti_affinity(self) -> list[tuple[PodConstraints, dict[int, int]]]:
        """The shapes of running pods with required anti-affinity, and the rows that they are on."""
        slots_by_shape = {shape: dict(slots) for shape, slots in self._with_anti_affinity.items()}
        for slot in self._terminating:
            for shape in self._facts[slot].leaving:
                if _has_anti_affinity(shape):
                    slots = slots_by_shape.setdefault(shape, {})
                    slots[slot] = slots.get(slot, 0) + 1
        rows = self._rows.tolist() if slots_by_shape else []
        return [
            (shape, {rows[slot]: count for slot, count in slots.items()}) for shape, slots in slots_by_shape.items()
        ]


def present(numbers: Ints) -> list[int]:
    """The numbers that occur, in order; negative ones are ignored."""
    present: list[int] = np.bincount(numbers[numbers >= 0]).nonzero()[0].tolist()
    return present


def _has_anti_affinity(shape: PodConstraints) -> bool:
    """Whether pods of a shape have required anti-affinity."""
    return any(not near.weight for near in shape.anti)


def node_index_of(snapshot: Snapshot) -> NodeIndex:
    """The node index of the snapshots that share a memory; a snapshot without nodes does not update it."""
    if not snapshot.nodes:
        return NodeIndex(snapshot.memory)
    table = snapshot.memory.table("node-index")
    node_index: NodeIndex | None = table.get("node-index")
    if node_index is None:
        node_index = table["node-index"] = NodeIndex(snapshot.memory)
    return node_index
