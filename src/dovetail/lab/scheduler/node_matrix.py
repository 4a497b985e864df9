"""The cluster as arrays with one row a node, so that one numpy operation covers all nodes.

A matrix follows a `ClusterNodes` by the nodes that were touched. What is worked out for all pods of one shape, or for
one selector, is kept and brought up to date row by row, from a log of the rows that changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from dovetail.model.fit import ClusterNodes, NodeInfo
from dovetail.model.fit.podinfo import SelectorFacts, Shape
from dovetail.model.fit.terms import Spread

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MAX_LOG_ROWS = 50_000
_MAX_TALLIES = 5_000


class _RowValues:
    """A number for every row, worked out anew only for rows that changed."""

    def __init__(self, of: Callable[[NodeInfo], int]) -> None:
        self.of = of
        self.rows: Ints = np.zeros(0, dtype=np.int64)
        self.seen = -1


class NodeMatrix:
    """Rows are reused when nodes go. `infos[row]` is None where no node is."""

    def __init__(self, cluster: ClusterNodes) -> None:
        self.cluster = cluster
        self.infos: list[NodeInfo | None] = []
        self.rows: dict[str, int] = {}
        self._free: list[int] = []
        self._static: list[int] = []
        self._shapes: list[tuple[Shape, ...]] = []
        self.vocal: dict[Shape, int] = {}
        self.with_images = 0
        self._images: list[bool] = []
        self.alive: Bools = np.zeros(0, dtype=np.bool_)
        self.pods: Ints = np.zeros(0, dtype=np.int64)
        self.scored_cpu: Ints = np.zeros(0, dtype=np.int64)
        self.scored_memory: Ints = np.zeros(0, dtype=np.int64)
        self.total: dict[str, Ints] = {}
        self.used: dict[str, Ints] = {}
        self.log: list[int] = []
        self.static_log: list[int] = []
        self.restarts = 0
        self._ranks: Ints | None = None
        self._domains: dict[str, tuple[int, Ints, dict[str, int]]] = {}
        self._tallies: dict[Hashable, _RowValues] = {}
        self._names: dict[int, tuple[Spread, Hashable]] = {}
        cluster.touched.update(dict.fromkeys(cluster.nodes))

    def sync(self) -> None:
        """Take over what changed in the cluster."""
        if not self.cluster.touched:
            return
        for name in self.cluster.touched:
            info = self.cluster.nodes.get(name)
            row = self.rows.get(name)
            if info is None:
                if row is not None:
                    self._drop(name, row)
                continue
            if row is None or self.infos[row] is not info:
                row = self._add_row(name, info) if row is None else self._fill_row(row, info)
            self._fill(row, info)
        self.cluster.touched.clear()

    def _add_row(self, name: str, info: NodeInfo) -> int:
        row = self._free.pop() if self._free else len(self.infos)
        if row == len(self.infos):
            self.infos.append(None)
            self._static.append(-1)
            self._shapes.append(())
            self._images.append(False)
            self._grow()
        self.rows[name] = row
        self._ranks = None
        return self._fill_row(row, info)

    def _fill_row(self, row: int, info: NodeInfo) -> int:
        self.infos[row] = info
        self._static[row] = -1
        self.alive[row] = True
        return row

    def _grow(self) -> None:
        size = len(self.infos)
        if size <= len(self.alive):
            return
        more = max(64, len(self.alive))
        self.alive = np.concatenate([self.alive, np.zeros(more, dtype=np.bool_)])
        self.pods = self.longer(self.pods)
        self.scored_cpu = self.longer(self.scored_cpu)
        self.scored_memory = self.longer(self.scored_memory)
        self.total = {name: self.longer(column) for name, column in self.total.items()}
        self.used = {name: self.longer(column) for name, column in self.used.items()}

    def longer(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The column with a zero for every row it does not have yet."""
        missing = len(self.alive) - len(column)
        return np.concatenate([column, np.zeros(missing, dtype=column.dtype)]) if missing else column

    def _drop(self, name: str, row: int) -> None:
        del self.rows[name]
        self.infos[row] = None
        self.alive[row] = False
        self._free.append(row)
        self._count_affinity_shapes(row, ())
        self.with_images -= self._images[row]
        self._images[row] = False
        self._note(row, static=True)

    def _note(self, row: int, *, static: bool) -> None:
        self.log.append(row)
        if static:
            self.static_log.append(row)
        if len(self.log) > _MAX_LOG_ROWS or len(self.static_log) > _MAX_LOG_ROWS:
            self.log, self.static_log = [], []
            self._domains.clear()
            for tally in self._tallies.values():
                tally.seen = -1
            self.restarts += 1

    def _fill(self, row: int, info: NodeInfo) -> None:
        changed = info.static_generation != self._static[row]
        self.pods[row] = len(info.pods)
        self.scored_cpu[row] = info.scored_cpu
        self.scored_memory[row] = info.scored_memory
        for name, amount in info.requested.items():
            self._column(self.used, name)[row] = amount
        for name in self.used:
            if name not in info.requested:
                self.used[name][row] = 0
        if changed:
            self._static[row] = info.static_generation
            for name in {*self.total, *info.allocatable}:
                self._column(self.total, name)[row] = info.allocatable.get(name, 0)
            self.with_images += bool(info.images) - self._images[row]
            self._images[row] = bool(info.images)
        if info.vocal or self._shapes[row]:
            self._count_affinity_shapes(row, tuple(affine_pod.shape for affine_pod in info.vocal.values()))
        self._note(row, static=changed)

    def _column(self, columns: dict[str, Ints], name: str) -> Ints:
        column = columns.get(name)
        if column is None:
            column = columns[name] = np.zeros(len(self.alive), dtype=np.int64)
        return column

    def _count_affinity_shapes(self, row: int, shapes: tuple[Shape, ...]) -> None:
        for shape in self._shapes[row]:
            self.vocal[shape] -= 1
            if not self.vocal[shape]:
                del self.vocal[shape]
        for shape in shapes:
            self.vocal[shape] = self.vocal.get(shape, 0) + 1
        self._shapes[row] = shapes

    def ranks(self) -> Ints:
        """For every row the place of its node's name among all names."""
        if self._ranks is None:
            self._ranks = np.zeros(len(self.alive), dtype=np.int64)
            for rank, name in enumerate(sorted(self.rows)):
                self._ranks[self.rows[name]] = rank
        return self._ranks

    def domains(self, key: str) -> tuple[Ints, dict[str, int]]:
        """For every row the number of its value of a label, -1 where it has none; and the numbers by value."""
        seen, column, numbers = self._domains.get(key, (-1, np.full(0, -1, dtype=np.int64), {}))
        if seen == len(self.static_log) and len(column) == len(self.alive):
            return column, numbers
        stale = range(len(self.infos)) if seen < 0 else self.static_log[seen:]
        if len(column) < len(self.alive):
            column = np.concatenate([column, np.full(len(self.alive) - len(column), -1, dtype=np.int64)])
        for row in stale:
            info = self.infos[row]
            value = info.labels.get(key) if info is not None else None
            column[row] = -1 if value is None else numbers.setdefault(value, len(numbers))
        self._domains[key] = (len(self.static_log), column, numbers)
        return column, numbers

    def tally(self, name: Hashable, of: Callable[[NodeInfo], int]) -> Ints:
        """For every row the value of `of` for its node; the same name must mean the same function."""
        held = self._tallies.get(name)
        if held is None:
            if len(self._tallies) > _MAX_TALLIES:
                self._tallies.clear()
            held = self._tallies[name] = _RowValues(of)
        held.rows = self.longer(held.rows)
        stale = range(len(self.infos)) if held.seen < 0 else set(self.log[held.seen :])
        for row in stale:
            info = self.infos[row]
            held.rows[row] = 0 if info is None else held.of(info)
        held.seen = len(self.log)
        return held.rows

    def counts(self, namespace: str, constraint: Spread) -> Ints:
        """For every row the pods that a spread constraint counts."""
        name = self._name(namespace, constraint)
        if name in self._tallies:
            return self.tally(name, self._tallies[name].of)
        by_kind: dict[SelectorFacts, bool] = {}

        def of(info: NodeInfo) -> int:
            if constraint.counts_nothing:
                return 0
            total = 0
            for kind, count in info.kinds.items():
                counted = by_kind.get(kind)
                if counted is None:
                    same = not kind.terminating and kind.namespace == namespace
                    counted = by_kind[kind] = same and constraint.selects(kind.labels)
                if counted:
                    total += count
            return total

        return self.tally(name, of)

    def _name(self, namespace: str, constraint: Spread) -> Hashable:
        """What the tally of a constraint is called: the same for all that count the same pods."""
        held = self._names.get(id(constraint))
        if held is None:
            if len(self._names) > _MAX_TALLIES:
                self._names.clear()
            text = constraint.selector.text() if constraint.selector is not None else "-"
            held = self._names[id(constraint)] = (constraint, ("spread", namespace, text))
        return held[1]
