"""The roster: all machines of a snapshot as arrays, kept from one snapshot to the next.

Only machines that are other objects than last time are looked at again. What a problem takes from here it copies, so
that a later snapshot cannot change an earlier plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.planner.columns import Bools, Ints
from dovetail.planner.fleet import Daemon, NodeFacts, facts_of
from dovetail.planner.groups import Group
from dovetail.planner.memory import Memory
from dovetail.planner.shape import Shape
from dovetail.planner.snapshot import NodeState

Pair = tuple[str, str]
_HUGE = 1 << 52


class Roster:
    """Rows in planning order: initialised machines first, then by name. Machines that go are not on it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._source: tuple[NodeState, ...] = ()
        self._row: dict[int, int] = {}
        self._daemons: tuple[object, ...] = ()
        self._reset()

    def _reset(self) -> None:
        self.nodes: list[NodeState] = []
        self.facts: list[NodeFacts] = []
        self._free: dict[str, Ints] = {}
        self._values: dict[str, list[str | None]] = {}
        self._codes: dict[str, tuple[dict[str | None, int], Ints]] = {}
        self._shapes: dict[Shape, dict[int, int]] = {}
        self._by_pair: dict[Pair, dict[Shape, None]] = {}

    def sync(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon], daemon_key: tuple[object, ...]) -> None:
        """Bring the rows up to the snapshot."""
        changed = self._changed(source) if daemon_key == self._daemons else None
        if changed is None:
            self._rebuild(source, daemons, daemon_key)
            return
        for at in changed:
            row = self._row.get(at)
            if row is not None:
                self._replace(row, source[at], daemons)
        self._source = source

    def _changed(self, source: tuple[NodeState, ...]) -> list[int] | None:
        """Places whose machine is another object; None if the order of rows would change as well."""
        if len(source) != len(self._source):
            return None
        places = [at for at, (a, b) in enumerate(zip(source, self._source, strict=True)) if a is not b]
        for at in places:
            new, old = source[at], self._source[at]
            if (new.name, new.initialized, new.deleting) != (old.name, old.initialized, old.deleting):
                return None
        return places

    def _rebuild(self, source: tuple[NodeState, ...], daemons: Sequence[Daemon], key: tuple[object, ...]) -> None:
        self._reset()
        self._daemons, self._source = key, source
        staying = [at for at, node in enumerate(source) if not node.deleting]
        staying.sort(key=lambda at: (not source[at].initialized, source[at].name))
        self._row = {at: row for row, at in enumerate(staying)}
        self.nodes = [source[at] for at in staying]
        self.facts = [facts_of(node, self._memory) for node in self.nodes]
        for row, fact in enumerate(self.facts):
            fact.settle(self.nodes[row], daemons)
            for shape, count in fact.shapes.items():
                self._where(shape)[row] = count

    def _replace(self, row: int, node: NodeState, daemons: Sequence[Daemon]) -> None:
        before, fact = self.facts[row], facts_of(node, self._memory)
        fact.settle(node, daemons)
        self.nodes[row], self.facts[row] = node, fact
        for shape in before.shapes.keys() - fact.shapes.keys():
            del self._shapes[shape][row]
        for shape, count in fact.shapes.items():
            if before.shapes.get(shape) != count:
                self._where(shape)[row] = count
        for name, free in self._free.items():
            free[row] = self._room(row, name)
        for key, values in self._values.items():
            values[row] = fact.labels.get(key)
        for key, (known, codes) in self._codes.items():
            codes[row] = known.setdefault(fact.labels.get(key), len(known))

    def _where(self, shape: Shape) -> dict[int, int]:
        """How many pods of a shape there are on each row."""
        rows = self._shapes.get(shape)
        if rows is None:
            rows = self._shapes[shape] = {}
            for pair in shape.labels.items():
                self._by_pair.setdefault(pair, {})[shape] = None
        return rows

    def _room(self, row: int, name: str) -> int:
        node, fact = self.nodes[row], self.facts[row]
        room = node.allocatable.get(name, 0) - fact.used.get(name, 0) - fact.unserved[name]
        return max(-_HUGE, min(room, _HUGE))

    def free(self, name: str) -> Ints:
        """What is left of a resource on every row."""
        known = self._free.get(name)
        if known is None:
            known = np.array([self._room(row, name) for row in range(len(self.nodes))], dtype=np.int64)
            self._free[name] = known
        return known.copy()

    def values(self, key: str) -> list[str | None]:
        """The value of a label on every row."""
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = [fact.labels.get(key) for fact in self.facts]
        return known

    def codes(self, key: str) -> tuple[dict[str | None, int], Ints]:
        """The values of a label, each with a number (in order), and the number of every row's value."""
        found = self._codes.get(key)
        if found is None:
            known: dict[str | None, int] = {}
            numbers = [known.setdefault(value, len(known)) for value in self.values(key)]
            found = self._codes[key] = (known, np.array(numbers, dtype=np.int64))
        return found

    def where(self, test: Callable[[dict[str, str]], bool], keys: Sequence[str]) -> Bools:
        """The rows whose labels pass a test that looks at these keys alone."""
        if not keys:
            return np.full(len(self.nodes), test({}), dtype=np.bool_)
        answers: dict[tuple[str | None, ...], bool] = {}
        found = np.empty(len(self.nodes), dtype=np.bool_)
        for row, values in enumerate(zip(*(self.values(key) for key in keys), strict=True)):
            answer = answers.get(values)
            if answer is None:
                labels = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
                answer = answers[values] = test(labels)
            found[row] = answer
        return found

    def members(self, group: Group) -> Ints:
        """How many pods a group counts on every row."""
        here = np.zeros(len(self.nodes), dtype=np.int64)
        for shape in self._candidates(group):
            rows = self._shapes[shape]
            if rows and group.counts(shape.namespace, shape.labels):
                here[list(rows)] += list(rows.values())
        return here

    def _candidates(self, group: Group) -> list[Shape]:
        """The shapes worth asking: those with a label the selector names, where it names one."""
        for key, operator, values in group.selector:
            if operator == "In":
                return [shape for value in values for shape in self._by_pair.get((key, value), ())]
        return list(self._shapes)

    def fearful(self) -> list[tuple[Shape, dict[int, int]]]:
        """The shapes of running pods that will not have others near, and where they are."""
        return [
            (shape, rows)
            for shape, rows in self._shapes.items()
            if rows and any(not near.weight for near in shape.anti)
        ]


def roster_of(memory: Memory) -> Roster:
    table = memory.table("roster")
    found: Roster | None = table.get("roster")
    if found is None:
        found = table["roster"] = Roster(memory)
    return found

