"""Affinity between pods on a board: where company allows a pod, and how much it is worth, for all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.lab.scheduler.node_matrix import Board, Bools, Ints
from dovetail.model.fit import NodeInfo
from dovetail.model.fit.podinfo import Kind, Shape
from dovetail.model.fit.terms import AffinityIndex, AffinityTerm

_MAX = 100
_HARD_WEIGHT = 1


class Company:
    """What the placed pods mean for pods of one shape, and the other way round."""

    def __init__(self, board: Board, shape: Shape) -> None:
        self.board = board
        self.shape = shape
        self.index = AffinityIndex(board.cluster.namespaces)
        about = board.cluster.namespaces.get(shape.namespace, {})
        self.heard = [
            (other, board.tally(("vocal", other), _of_shape(other)))
            for other in board.vocal
            if any(term.selects(shape.namespace, shape.labels, about) for term in _terms(other))
        ]
        self._selects: Callable[[AffinityTerm], bool] = lambda term: term.selects(shape.namespace, shape.labels, about)

    def _counted(self, name: object, selected: Callable[[Kind], bool]) -> Ints:
        """For every row the pods of the kinds that are selected."""
        known: dict[Kind, bool] = {}

        def of(info: NodeInfo) -> int:
            total = 0
            for kind, count in info.kinds.items():
                if kind not in known:
                    known[kind] = selected(kind)
                if known[kind]:
                    total += count
            return total

        return self.board.tally(("kinds", self.shape, name, self.board.cluster.namespace_generation), of)

    def _around(self, key: str, counts: Ints) -> tuple[Ints, Ints]:
        """For every row how many are counted in its domain of a label, and its domain (-1: none)."""
        column, numbers = self.board.domains(key)
        inside = self.board.alive & (column >= 0)
        sums = np.bincount(column[inside], weights=counts[inside], minlength=len(numbers) + 1).astype(np.int64)
        return np.where(column >= 0, sums[np.maximum(column, 0)], 0), column

    def allowed(self) -> Bools:
        """Where the required terms, the pod's own and those of others, hold."""
        allowed: Bools = self.board.alive.copy()
        if self.shape.affinity:
            allowed &= self._near()
        for at, term in enumerate(self.shape.anti_affinity):
            counts = self._counted(("anti", at), self._by(term))
            allowed &= self._around(term.topology_key, counts)[0] == 0
        for other, counts in self.heard:
            for term in other.anti_affinity:
                if self._selects(term):
                    allowed &= self._around(term.topology_key, counts)[0] == 0
        return allowed

    def _by(self, *terms: AffinityTerm) -> Callable[[Kind], bool]:
        return lambda kind: all(self.index.selects(term, kind.namespace, kind.labels) for term in terms)

    def _near(self) -> Bools:
        terms = self.shape.affinity
        counts = self._counted("near", self._by(*terms))
        near: Bools = self.board.alive.copy()
        known: Bools = self.board.alive.copy()
        nobody = True
        for term in terms:
            around, column = self._around(term.topology_key, counts)
            known &= column >= 0
            near &= around > 0
            nobody = nobody and not (around[self.board.alive] > 0).any()
        own = all(self.index.selects(term, self.shape.namespace, self.shape.labels) for term in terms)
        return known if nobody and own else known & near

    def scores(self, rows: Ints) -> Ints | None:
        """Nearest to whom the pod wants, and to who wants it; None if nobody wants anything."""
        raw = np.zeros(len(self.board.alive), dtype=np.int64)
        wanted = False
        for name, terms, sign in (
            ("likes", self.shape.preferred_affinity, 1),
            ("dislikes", self.shape.preferred_anti_affinity, -1),
        ):
            for at, each in enumerate(terms):
                around, _ = self._around(each.term.topology_key, self._counted((name, at), self._by(each.term)))
                wanted = wanted or bool(around[self.board.alive].any())
                raw = raw + sign * each.weight * around
        for other, counts in self.heard:
            weights: Sequence[tuple[int, AffinityTerm]] = (
                *((_HARD_WEIGHT, term) for term in other.affinity),
                *((each.weight, each.term) for each in other.preferred_affinity),
                *((-each.weight, each.term) for each in other.preferred_anti_affinity),
            )
            for weight, term in weights:
                if self._selects(term):
                    around, _ = self._around(term.topology_key, counts)
                    wanted = wanted or bool(around[self.board.alive].any())
                    raw = raw + weight * around
        return _normalised(raw[rows]) if wanted else None


def _normalised(raw: Ints) -> Ints:
    low, high = int(raw.min()), int(raw.max())
    if low == high:
        return np.zeros(len(raw), dtype=np.int64)
    return (_MAX * ((raw - low) / (high - low))).astype(np.int64)


def _terms(shape: Shape) -> tuple[AffinityTerm, ...]:
    weighted = (*shape.preferred_affinity, *shape.preferred_anti_affinity)
    return (*shape.affinity, *shape.anti_affinity, *(each.term for each in weighted))


def _of_shape(shape: Shape) -> Callable[[NodeInfo], int]:
    return lambda info: sum(1 for each in info.vocal.values() if each.shape is shape)
