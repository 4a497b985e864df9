"""Inter-pod affinity on a node matrix: which rows it allows and their scores, for all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dovetail.lab.scheduler.node_matrix import Bools, Ints, NodeMatrix
from dovetail.model.fit import NodeInfo
from dovetail.model.fit.podinfo import SelectorFacts, Shape
from dovetail.model.fit.terms import AffinityIndex, AffinityTerm

_MAX = 100
_HARD_WEIGHT = 1


class InterPodAffinity:
    """Affinity between the running pods and pods of one shape, in both directions."""

    def __init__(self, matrix: NodeMatrix, shape: Shape) -> None:
        self.matrix = matrix
        self.shape = shape
        self.index = AffinityIndex(matrix.cluster.namespaces)
        about = matrix.cluster.namespaces.get(shape.namespace, {})
        self.selecting_shapes = [
            (other, matrix.tally(("vocal", other), _of_shape(other)))
            for other in matrix.vocal
            if any(term.selects(shape.namespace, shape.labels, about) for term in _terms(other))
        ]
        self._selects: Callable[[AffinityTerm], bool] = lambda term: term.selects(shape.namespace, shape.labels, about)

    def _counted(self, name: object, selected: Callable[[SelectorFacts], bool]) -> Ints:
        """For every row the pods of the kinds that are selected."""
        selected_kinds: dict[SelectorFacts, bool] = {}

        def of(info: NodeInfo) -> int:
            total = 0
            for kind, count in info.kinds.items():
                if kind not in selected_kinds:
                    selected_kinds[kind] = selected(kind)
                if selected_kinds[kind]:
                    total += count
            return total

        return self.matrix.tally(("kinds", self.shape, name, self.matrix.cluster.namespace_generation), of)

    def _around(self, key: str, counts: Ints) -> tuple[Ints, Ints]:
        """For every row how many are counted in its domain of a label, and its domain (-1: none)."""
        column, numbers = self.matrix.domains(key)
        inside = self.matrix.alive & (column >= 0)
        sums = np.bincount(column[inside], weights=counts[inside], minlength=len(numbers) + 1).astype(np.int64)
        return np.where(column >= 0, sums[np.maximum(column, 0)], 0), column

    def allowed(self) -> Bools:
        """Where the required terms, the pod's own and those of others, hold."""
        allowed: Bools = self.matrix.alive.copy()
        if self.shape.affinity:
            allowed &= self._near()
        for index, term in enumerate(self.shape.anti_affinity):
            counts = self._counted(("anti", index), self._by(term))
            allowed &= self._around(term.topology_key, counts)[0] == 0
        for other, counts in self.selecting_shapes:
            for term in other.anti_affinity:
                if self._selects(term):
                    allowed &= self._around(term.topology_key, counts)[0] == 0
        return allowed

    def _by(self, *terms: AffinityTerm) -> Callable[[SelectorFacts], bool]:
        return lambda kind: all(self.index.selects(term, kind.namespace, kind.labels) for term in terms)

    def _near(self) -> Bools:
        terms = self.shape.affinity
        counts = self._counted("near", self._by(*terms))
        near: Bools = self.matrix.alive.copy()
        labelled: Bools = self.matrix.alive.copy()
        no_match = True
        for term in terms:
            around, column = self._around(term.topology_key, counts)
            labelled &= column >= 0
            near &= around > 0
            no_match = no_match and not (around[self.matrix.alive] > 0).any()
        own = all(self.index.selects(term, self.shape.namespace, self.shape.labels) for term in terms)
        return labelled if no_match and own else labelled & near

    def scores(self, rows: Ints) -> Ints | None:
        """Highest where preferred affinity, the pod's own and that of running pods, is met; None if there is none."""
        raw = np.zeros(len(self.matrix.alive), dtype=np.int64)
        is_required = False
        for name, terms, sign in (
            ("likes", self.shape.preferred_affinity, 1),
            ("dislikes", self.shape.preferred_anti_affinity, -1),
        ):
            for index, weighted in enumerate(terms):
                around, _ = self._around(
                    weighted.term.topology_key, self._counted((name, index), self._by(weighted.term))
                )
                is_required = is_required or bool(around[self.matrix.alive].any())
                raw = raw + sign * weighted.weight * around
        for other, counts in self.selecting_shapes:
            weights: Sequence[tuple[int, AffinityTerm]] = (
                *((_HARD_WEIGHT, term) for term in other.affinity),
                *((weighted.weight, weighted.term) for weighted in other.preferred_affinity),
                *((-weighted.weight, weighted.term) for weighted in other.preferred_anti_affinity),
            )
            for weight, term in weights:
                if self._selects(term):
                    around, _ = self._around(term.topology_key, counts)
                    is_required = is_required or bool(around[self.matrix.alive].any())
                    raw = raw + weight * around
        return _normalised(raw[rows]) if is_required else None


def _normalised(raw: Ints) -> Ints:
    low, high = int(raw.min()), int(raw.max())
    if low == high:
        return np.zeros(len(raw), dtype=np.int64)
    return (_MAX * ((raw - low) / (high - low))).astype(np.int64)


def _terms(shape: Shape) -> tuple[AffinityTerm, ...]:
    preferred = (*shape.preferred_affinity, *shape.preferred_anti_affinity)
    return (*shape.affinity, *shape.anti_affinity, *(weighted.term for weighted in preferred))


def _of_shape(shape: Shape) -> Callable[[NodeInfo], int]:
    return lambda info: sum(1 for weighted in info.vocal.values() if weighted.shape is shape)
