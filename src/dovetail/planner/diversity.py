"""minValues: a machine must be buyable as enough different things.

Whatever fits a column fits every column at least as large, so a machine may stand on a column if those larger ones,
as far as its pods accept them, have enough different values. That is a little stricter than needed and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.columns import Bools, Column, Columns
from dovetail.planner.launch_masks import kind_mask

if TYPE_CHECKING:
    from dovetail.planner.problem import Ask, Problem


class Diversity:
    """Answers for one problem, remembered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns: Columns = problem.columns
        self._larger: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}

    def filtered(self, ok: Bools, asks: Iterable[Ask]) -> Bools:
        """Of some columns of the menu, those on which a machine with these pods is diverse enough."""
        held = list(asks)
        menu = self.problem.menu
        for at in np.flatnonzero(ok):
            if int(menu.pools[at]) in self.problem.min_values and not self.enough(int(at), held):
                ok[at] = False
        return ok

    def enough(self, at: int, asks: Iterable[Ask]) -> bool:
        column = self.columns.rows[int(self.problem.menu.full[at])]
        needs = self.problem.min_values.get(column.pool)
        if not needs:
            return True
        mask = self._at_least(at, column)
        keys: set[str] = set()
        for ask in asks:
            mask &= ask.mask
            keys.update(cell.group.key for cell in (*ask.domain_owned, *ask.domain_members))
        for key in keys:
            mask &= self.columns.by_label(key).get(self.columns.label(column, key), 0)
        known = self._enough.get((mask, column.pool))
        if known is None:
            known = all(self.values(mask, key) >= least for key, least in needs)
            self._enough[mask, column.pool] = known
        return known

    def values(self, mask: int, key: str) -> int:
        """How many different values of a label the columns of a mask have."""
        return sum(1 for value, where in self.columns.by_label(key).items() if value is not None and where & mask)

    def _at_least(self, at: int, column: Column) -> int:
        known = self._larger.get(at)
        if known is None:
            known = kind_mask(self.columns, column)
            for dim, name in enumerate(self.problem.dims):
                known &= self.columns.holding(name, int(self.problem.menu.capacity[dim, at]))
            self._larger[at] = known
        return known
