"""The roster: all machines of a snapshot as arrays, kept from one snapshot to the next.

Only machines that are other objects than last time are looked at again. Each has a slot of its own for as long as it
stays; planning order is a permutation of the slots, so that machines may come and go without moving the others. What a
problem takes from here it copies, so that a later snapshot cannot change an earlier plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.planner.columns import Bools, Ints
from dovetail.planner.fleet import Daemon, NodeFacts, facts_of
from dovetail.planner.groups import ANTI, Group
from dovetail.planner.memory import Memory
from dovetail.planner.shape import Shape
from dovetail.planner.snapshot import NodeState, Snapshot

Pair = tuple[str, str]
_HUGE = 1 << 52


#: What is in a slot that nobody has.
_NOWHERE = NodeState(name="", labels={}, allocatable={})
_NOTHING = NodeFacts(_NOWHERE, Memory())


class Roster:
    """Rows in planning order: initialised machines first, then by name. Machines that go are not on it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._source: tuple[NodeState, ...] = ()
        self._daemons: tuple[object, ...] = ()
        self._reset()

    def _reset(self) -> None:
        self.nodes: list[NodeState] = []
        self.facts: list[NodeFacts] = []
        self._slots: dict[str, int] = {}
        self._spare: list[int] = []
        self._held: list[NodeState] = []
        self._known: list[NodeFacts] = []
        self._twins = False
        self._line: list[int] = []
        self._order: Ints = np.zeros(0, dtype=np.int64)
        self._free: dict[str, Ints] = {}
        self._codes: dict[str, tuple[dict[str | None, int], Ints]] = {}
        self._shapes: dict[Shape, dict[int, int]] = {}
        self._parting: set[int] = set()
        """The slots of machines with pods on their way out."""
        self._by_pair: dict[Pair, dict[Shape, None]] = {}

    def sync(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon], daemon_key: tuple[object, ...]) -> None:
        """Bring the rows up to the snapshot."""
        if daemon_key != self._daemons:
            self._reset()
            self._daemons, self._source = daemon_key, ()
        if not self._same_staff(source, daemons):
            self._restaff(source, daemons)
        self.nodes = [self._held[slot] for slot in self._line]
        self.facts = [self._known[slot] for slot in self._line]
        self._source = source

    def _same_staff(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon]) -> bool:
        """Whether everybody is still in their place; then those that changed are looked at again, and no others."""
        if len(source) != len(self._source) or self._twins:
            return False
        changed = [(new, old) for new, old in zip(source, self._source, strict=True) if new is not old]
        if any((a.name, a.initialized, a.deleting) != (b.name, b.initialized, b.deleting) for a, b in changed):
            return False
        for new, _ in changed:
            slot = self._slots.get(new.name)
            if slot is not None:
                self._replace(slot, new, daemons)
        return True

    def _restaff(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon]) -> None:
        """Machines came or went, or changed places."""
        staying: dict[str, NodeState] = {}
        self._twins = False
        for node in source:
            if not node.deleting:
                twin = node.name in staying
                staying[f"{node.name}\0{len(staying)}" if twin else node.name] = node
                self._twins = self._twins or twin
        for key in [key for key in self._slots if key not in staying]:
            self._leave(self._slots.pop(key))
        for key, node in staying.items():
            slot = self._slots.get(key)
            if slot is None:
                self._slots[key] = self._join(node, daemons)
            elif self._held[slot] is not node:
                self._replace(slot, node, daemons)
        self._codes = {key: each for key, each in self._codes.items() if len(each[0]) <= 2 * len(self._held)}
        self._line = sorted(self._slots.values(), key=self._rank)
        self._order = np.array(self._line, dtype=np.int64)

    def _rank(self, slot: int) -> tuple[bool, str]:
        return (not self._held[slot].initialized, self._held[slot].name)

    def _join(self, node: NodeState, daemons: Sequence[Daemon]) -> int:
        if not self._spare:
            self._extend(max(64, len(self._held)))
        slot = self._spare.pop()
        self._replace(slot, node, daemons)
        return slot

    def _extend(self, more: int) -> None:
        size = len(self._held)
        self._spare += range(size + more - 1, size - 1, -1)
        self._held += [_NOWHERE] * more
        self._known += [_NOTHING] * more
        blank = np.zeros(more, dtype=np.int64)
        self._free = {name: np.concatenate([free, blank]) for name, free in self._free.items()}
        self._codes = {key: (known, np.concatenate([codes, blank])) for key, (known, codes) in self._codes.items()}

    def _leave(self, slot: int) -> None:
        for shape in self._known[slot].shapes:
            del self._shapes[shape][slot]
        self._held[slot], self._known[slot] = _NOWHERE, _NOTHING
        self._parting.discard(slot)
        self._spare.append(slot)

    def _replace(self, slot: int, node: NodeState, daemons: Sequence[Daemon]) -> None:
        before, fact = self._known[slot], facts_of(node, self._memory)
        fact.settle(node, daemons)
        self._held[slot], self._known[slot] = node, fact
        for shape in before.shapes.keys() - fact.shapes.keys():
            del self._shapes[shape][slot]
        for shape, count in fact.shapes.items():
            if before.shapes.get(shape) != count:
                self._where(shape)[slot] = count
        (self._parting.add if fact.leaving else self._parting.discard)(slot)
        for name, free in self._free.items():
            free[slot] = self._room(slot, name)
        for key, (known, codes) in self._codes.items():
            codes[slot] = known.setdefault(fact.labels.get(key), len(known))

    def _where(self, shape: Shape) -> dict[int, int]:
        """How many pods of a shape there are in each slot."""
        rows = self._shapes.get(shape)
        if rows is None:
            rows = self._shapes[shape] = {}
            for pair in shape.labels.items():
                self._by_pair.setdefault(pair, {})[shape] = None
        return rows

    def _room(self, slot: int, name: str) -> int:
        node, fact = self._held[slot], self._known[slot]
        room = node.allocatable.get(name, 0) - fact.used.get(name, 0) - fact.unserved[name]
        return max(-_HUGE, min(room, _HUGE))

    def free(self, name: str) -> Ints:
        """What is left of a resource on every row."""
        known = self._free.get(name)
        if known is None:
            known = np.array([self._room(slot, name) for slot in range(len(self._held))], dtype=np.int64)
            self._free[name] = known
        return known[self._order]

    def codes(self, key: str) -> tuple[dict[str | None, int], Ints]:
        """The values of a label, each with a number (in order), and the number of every row's value."""
        found = self._codes.get(key)
        if found is None:
            known: dict[str | None, int] = {}
            numbers = [known.setdefault(fact.labels.get(key), len(known)) for fact in self._known]
            found = self._codes[key] = (known, np.array(numbers, dtype=np.int64))
        return found[0], found[1][self._order]

    def where(self, test: Callable[[dict[str, str]], bool], keys: Sequence[str]) -> Bools:
        """The rows whose labels pass a test that looks at these keys alone."""
        alike: Ints = np.zeros(len(self._line), dtype=np.int64)
        for key in keys:
            known, numbers = self.codes(key)
            _, alike = np.unique(alike * len(known) + numbers, return_inverse=True)
        _, first = np.unique(alike, return_index=True)
        labels = (self.facts[row].labels for row in first.tolist())
        answers = [test({key: each[key] for key in keys if key in each}) for each in labels]
        return np.array(answers, dtype=np.bool_)[alike]

    def members(self, group: Group) -> Ints:
        """How many pods a group counts on every row."""
        here = np.zeros(len(self._held), dtype=np.int64)
        for shape in self._candidates(group):
            slots = self._shapes[shape]
            if slots and group.counts(shape.namespace, shape.labels):
                here[list(slots)] += list(slots.values())
        for slot in self._parting if group.kind == ANTI else ():
            here[slot] += sum(group.counts(shape.namespace, shape.labels) for shape in self._known[slot].leaving)
        return here[self._order]

    def _candidates(self, group: Group) -> list[Shape]:
        """The shapes worth asking: those with a label the selector names, where it names one."""
        for key, operator, values in group.selector:
            if operator == "In":
                return [shape for value in values for shape in self._by_pair.get((key, value), ())]
        return list(self._shapes)

    def fearful(self) -> list[tuple[Shape, dict[int, int]]]:
        """The shapes of running pods that will not have others near, and on which rows they are."""
        found = {shape: dict(slots) for shape, slots in self._shapes.items() if slots and _fears(shape)}
        for slot in self._parting:
            for shape in self._known[slot].leaving:
                if _fears(shape):
                    slots = found.setdefault(shape, {})
                    slots[slot] = slots.get(slot, 0) + 1
        row = {slot: at for at, slot in enumerate(self._line)} if found else {}
        return [(shape, {row[slot]: count for slot, count in slots.items()}) for shape, slots in found.items()]


def _fears(shape: Shape) -> bool:
    return any(not near.weight for near in shape.anti)


def roster_of(snapshot: Snapshot) -> Roster:
    """The roster of the snapshots that share a memory; one without machines leaves it as it is."""
    if not snapshot.nodes:
        return Roster(snapshot.memory)
    table = snapshot.memory.table("roster")
    found: Roster | None = table.get("roster")
    if found is None:
        found = table["roster"] = Roster(snapshot.memory)
    return found
