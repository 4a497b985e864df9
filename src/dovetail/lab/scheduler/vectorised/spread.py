"""Topology spread score on a node matrix: the soft constraints of one shape on many rows at once.

Which rows count for which domain, and how much, depends on the nodes alone. It is worked out once and holds while
neither the nodes nor the rows that are asked about change; only pods are counted anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dovetail.lab.scheduler.node_matrix import Bools, Ints, NodeMatrix
from dovetail.model.fit.terms import Spread
from dovetail.model.labels import HOSTNAME

_MAX = 100
_least, _most = np.minimum.reduce, np.maximum.reduce
#: The rows whose pods a constraint counts.
Included = Callable[[Spread], Bools]


class _Domains(NamedTuple):
    """The rows that are counted and the numbers of their domains; those of the rows that are asked about."""

    rows: Ints
    numbers: Ints
    size: int
    of_rows: Ints


class _Term(NamedTuple):
    """One constraint. Where every node is a domain of its own, there are no `domains` to add up.

    `again`: it counts the same pods as the one before it.
    """

    constraint: Spread
    again: bool
    domains: _Domains | None
    weight: float
    extra: float
    unlabelled: Bools | None


class SoftSpread:
    """Constraints of one shape and the rows they were asked about."""

    def __init__(
        self, matrix: NodeMatrix, constraints: tuple[Spread, ...], rows: Ints, included: Included, *, strict: bool
    ) -> None:
        """`strict`: only nodes that have all of the labels count, as for constraints of the pod's own."""
        self._matrix = matrix
        self._constraints = constraints
        self._rows = rows
        self._moment = _moment(matrix)
        columns = [matrix.domains(constraint.topology_key)[0] for constraint in constraints]
        everywhere: Bools = np.logical_and.reduce([column >= 0 for column in columns]) if strict else matrix.alive
        self._counts: Bools | None = everywhere[rows] if strict else None
        taking = rows[self._counts] if self._counts is not None else rows
        self._terms: list[_Term] = []
        for rule, column in zip(constraints, columns, strict=True):
            again = bool(self._terms) and self._terms[-1].constraint.selector is rule.selector
            counted = np.flatnonzero(everywhere & included(rule))
            self._terms.append(_term(rule, again, column, rows, taking, counted))

    def holds(self, constraints: tuple[Spread, ...], rows: Ints) -> bool:
        """Whether this is still what there is to know about the very same rows."""
        return self._rows is rows and self._constraints is constraints and self._moment == _moment(self._matrix)

    def scores(self, namespace: str) -> Ints:
        """The fewest likes get most."""
        raw = np.zeros(len(self._rows))
        for constraint, again, domains, weight, extra, unlabelled in self._terms:
            if not again:
                counts = self._matrix.counts(namespace, constraint)
            if domains is None:
                count = counts[self._rows] * weight + extra
            else:
                sums = np.bincount(domains.numbers, counts[domains.rows], domains.size)
                count = sums[domains.of_rows] * weight + extra
            if unlabelled is not None:
                count[unlabelled] = 0.0
            raw += count
        return _normalised((raw + 0.5).astype(np.int64), self._counts)


def _moment(matrix: NodeMatrix) -> tuple[int, int, int]:
    return matrix.restarts, len(matrix.static_log), len(matrix.alive)


def _term(constraint: Spread, again: bool, column: Ints, rows: Ints, taking: Ints, counted: Ints) -> _Term:
    of_rows = column[rows] + 1  # 0 is for those without the label
    size, domains = len(taking), None
    if constraint.topology_key != HOSTNAME:
        size = int(np.count_nonzero(np.bincount(column[taking] + 1)))
        domains = _Domains(counted, column[counted] + 1, int(column.max(initial=-1)) + 2, of_rows)
    unlabelled = None if of_rows.all() else of_rows == 0
    return _Term(constraint, again, domains, math.log(size + 2), float(constraint.max_skew - 1), unlabelled)


def _normalised(whole: Ints, counts: Bools | None) -> Ints:
    """The fewest get most; rows that do not count get nothing (None: all count)."""
    inside = whole if counts is None else whole[counts]
    low, high = (int(_least(inside)), int(_most(inside))) if len(inside) else (0, 0)
    scaled = _MAX * (high + low - whole) // high if high else np.full(len(whole), _MAX, dtype=np.int64)
    return scaled if counts is None else np.where(counts, scaled, 0)
