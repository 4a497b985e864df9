"""Stairs: columns that differ in size and price alone, for finding the cheapest that holds what is on a machine.

In order of price the largest size so far only rises, so a search by halves in each dimension comes to the first column
worth looking at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import ge

import numpy as np

from dovetail.planner.columns import Bools
from dovetail.planner.menu import Menu


class Stairs:
    """Some columns of a menu, cheapest first."""

    __slots__ = ("_columns", "_highest", "_rooms")

    def __init__(self, menu: Menu, chosen: Bools) -> None:
        capacity = menu.capacity[:, chosen]
        self._columns: list[int] = chosen.nonzero()[0].tolist()
        self._rooms: list[list[int]] = capacity.T.tolist()
        self._highest: list[list[int]] = np.maximum.accumulate(capacity, axis=1).tolist()

    def first(self, used: Sequence[int]) -> int | None:
        """The cheapest column with room for what is used."""
        start = max(map(bisect_left, self._highest, used))
        for at in range(start, len(self._columns)):
            if all(map(ge, self._rooms[at], used)):
                return self._columns[at]
        return None
