"""minValues: a machine must be buyable as enough different things.

Whatever fits a column fits every column at least as large, so a machine may stand on a column if those larger ones,
as far as its pods accept them, have enough different values. That is a little stricter than needed and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.columns import Bools, Column, Columns, Ints
from dovetail.planner.launch_masks import capacity_at_most, kind_mask
from dovetail.planner.plan import Choice
from dovetail.planner.snapshot import Pool

if TYPE_CHECKING:
    from dovetail.planner.asks import Ask
    from dovetail.planner.problem import Problem

_NEVER = 1 << 60


class Diversity:
    """Answers for one problem, remembered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns: Columns = problem.columns
        self._larger: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}
        self._suits: dict[tuple[int, frozenset[str]], Bools] = {}
        self._reached: dict[tuple[str, int], int] = {}

    def filtered(self, ok: Bools, asks: Iterable[Ask]) -> Bools:
        """Of some columns of the menu, those on which a machine with these pods is diverse enough."""
        return ok & self._suiting(asks)

    def enough(self, at: int, asks: Iterable[Ask]) -> bool:
        """Whether a machine with these pods is diverse enough on a column of the menu."""
        return bool(self._suiting(asks)[at])

    def _suiting(self, asks: Iterable[Ask]) -> Bools:
        """The columns of the menu on which a machine with these pods is diverse enough."""
        mask, keys = self.columns.everything, set()
        for ask in asks:
            mask &= ask.mask
            keys.update(ask.keys)
        common = (mask, frozenset(keys))
        known = self._suits.get(common)
        if known is None:
            self.problem.work += 1
            known = np.array([self._suits_at(at, *common) for at in range(self.problem.menu.size)], dtype=np.bool_)
            self._suits[common] = known
        return known

    def _suits_at(self, at: int, mask: int, keys: Iterable[str]) -> bool:
        column = self.columns.rows[int(self.problem.menu.full[at])]
        needs = self.problem.min_values.get(column.pool)
        if not needs:
            return True
        mask &= self._at_least(at, column)
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

    def reach(self, name: str) -> Ints:
        """What each column of the menu takes of a limit at least: of enough different machines, the largest counts."""
        menu = self.problem.menu
        found: Ints = menu.limited[name].copy()
        for at in range(menu.size):
            needs = self.problem.min_values.get(int(menu.pools[at]))
            if needs and name != "nodes":
                found[at] = self._reach(name, self._at_least(at, self.columns.rows[int(menu.full[at])]), needs)
        return found

    def _reach(self, name: str, mask: int, needs: list[tuple[str, int]]) -> int:
        known = self._reached.get((name, mask))
        if known is None:
            sizes = sorted({each.type.capacity.get(name, 0) for each in self.columns.listed(mask)})
            within = ((size, mask & capacity_at_most(self.columns, name, size)) for size in sizes)
            enough = (size for size, left in within if all(self.values(left, key) >= least for key, least in needs))
            known = self._reached[name, mask] = next(enough, _NEVER)
        return known

    def _at_least(self, at: int, column: Column) -> int:
        known = self._larger.get(at)
        if known is None:
            known = kind_mask(self.columns, column)
            for dim, name in enumerate(self.problem.dims):
                known &= self.columns.holding(name, int(self.problem.menu.capacity[dim, at]))
            self._larger[at] = known
        return known


def varied(pool: Pool, choices: Iterable[Choice]) -> bool:
    """Whether offerings are as different as a pool's minValues ask."""
    held = list(choices)
    labels = {kind.name: kind.labels for kind in pool.types}
    named = {
        INSTANCE_TYPE: {each.instance_type for each in held},
        ZONE: {each.zone for each in held},
        CAPACITY_TYPE: {each.capacity_type for each in held},
    }
    for each in pool.requirements:
        known = named.get(each.key) or {v for choice in held for v in labels[choice.instance_type].get(each.key, ())}
        if len(known) < (each.min_values or 0):
            return False
    return True
