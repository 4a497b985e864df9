"""Price index: offerings that differ only in size and price, for finding the cheapest one that holds a node's pods.

The offerings are sorted by price. The running maximum of their capacity never falls, so a binary search in each
dimension finds the first offering that can be large enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import ge

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Ints
from dovetail.planner.problem.frontier import OfferingFrontier


class PriceIndex:
    """Some offerings of a frontier, cheapest first."""

    __slots__ = ("_capacity", "_columns", "_highest", "_rising", "_rooms")

    def __init__(self, frontier: OfferingFrontier, chosen: Bools) -> None:
        self._capacity = frontier.capacity[:, chosen]
        self._rising = np.maximum.accumulate(self._capacity, axis=1)
        self._columns: list[int] = chosen.nonzero()[0].tolist()
        self._rooms: list[list[int]] = self._capacity.T.tolist()
        self._highest: list[list[int]] = self._rising.tolist()

    def first(self, used: Sequence[int]) -> int | None:
        """The cheapest offering that holds the resources `used`, or None."""
        return next(self.holding(used), None)

    def holding(self, used: Sequence[int]) -> Iterator[int]:
        """The offerings that hold the resources `used`, the cheapest first."""
        start = max(map(bisect_left, self._highest, used))
        for node in range(start, len(self._columns)):
            if all(map(ge, self._rooms[node], used)):
                yield self._columns[node]

    def firsts(self, used: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Ints:
        """The cheapest offering for many nodes at once, one node in each column of `used`; -1 where there is none."""
        steps = [np.searchsorted(rising, amounts) for rising, amounts in zip(self._rising, used, strict=True)]
        start = np.max(steps, axis=0)
        inside = start < len(self._columns)
        start[~inside] = 0
        where: Ints = np.where(inside, np.array(self._columns, dtype=np.int64)[start], -1)
        for node in np.flatnonzero(inside & (self._capacity[:, start] < used).any(axis=0)).tolist():
            best = self.first(used[:, node].tolist())
            where[node] = -1 if best is None else best
        return where
