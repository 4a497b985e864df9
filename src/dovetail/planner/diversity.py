"""minValues: a machine must be buyable as enough different things.

Whatever fits a column fits every column at least as large, so a machine may stand on a column if those larger ones,
as far as its pods accept them and limits allow, have enough different values. That is a little stricter than needed
and never wrong. A row of the menu then promises a size, is charged for the largest machine it may become, and costs
what the cheapest does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.columns import Bools, Columns, Ints, lowest
from dovetail.planner.launch_masks import capacity_at_most, kind_mask
from dovetail.planner.menu import Menu
from dovetail.planner.plan import Choice
from dovetail.planner.snapshot import Pool

if TYPE_CHECKING:
    from dovetail.planner.asks import Ask
    from dovetail.planner.problem import Problem

_NEVER = 1 << 60
#: The sizes that a machine may be charged for: the least that has enough variety, and some more for choosy pods.
_CHARGES = 3
#: Columns with this many times the machines that variety asks for need not be told apart by how many they have.
_PLENTY = 3

#: So many columns looked at are about the work of one question to the board.
_A_QUESTION = 8


class Diversity:
    """Answers for one problem, remembered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns: Columns = problem.columns
        self._rooms: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}
        self._known: dict[tuple[int, int, frozenset[str]], bool] = {}

    def filtered(self, ok: Bools, asks: Iterable[Ask]) -> Bools:
        """Of some columns of the menu, those on which a machine with these pods is diverse enough."""
        mask, keys = self._common(asks)
        found, before = ok.copy(), len(self._known)
        for at in np.flatnonzero(ok).tolist():
            found[at] = self._suits(at, mask, keys)
        self.problem.work += (len(self._known) - before) // _A_QUESTION
        return found

    def enough(self, at: int, asks: Iterable[Ask]) -> bool:
        """Whether a machine with these pods is diverse enough on a column of the menu."""
        return self._suits(at, *self._common(asks))

    def _common(self, asks: Iterable[Ask]) -> tuple[int, frozenset[str]]:
        """The columns that all of these accept, and the labels that pin them."""
        mask, keys = self.columns.everything, set()
        for ask in asks:
            mask &= ask.mask
            keys.update(ask.keys)
        return mask, frozenset(keys)

    def _suits(self, at: int, mask: int, keys: frozenset[str]) -> bool:
        known = self._known.get((at, mask, keys))
        if known is None:
            known = self._known[at, mask, keys] = self._suits_at(at, mask, keys)
        return known

    def _suits_at(self, at: int, mask: int, keys: Iterable[str]) -> bool:
        column = self.columns.rows[int(self.problem.menu.full[at])]
        needs = self.problem.min_values.get(column.pool)
        if not needs:
            return True
        mask &= self._room(at)
        for key in keys:
            mask &= self.columns.by_label(key).get(self.columns.label(column, key), 0)
        known = self._enough.get((mask, column.pool))
        if known is None:
            known = self._enough[mask, column.pool] = self.varied(mask, needs)
        return known

    def _room(self, at: int) -> int:
        """What a machine on a column of the menu may become: all that is at least as large, within its charge."""
        known = self._rooms.get(at)
        if known is None:
            menu = self.problem.menu
            known = at_least(self.columns, self.problem.dims, int(menu.full[at]))
            for name in self._limited(int(menu.pools[at])):
                known &= capacity_at_most(self.columns, name, int(menu.limited[name][at]))
            self._rooms[at] = known
        return known

    def _limited(self, pool: int) -> list[str]:
        return [name for name in self.problem.binding if name != "nodes" and name in self.problem.limits[pool]]

    def varied(self, mask: int, needs: Iterable[tuple[str, int]]) -> bool:
        """Whether the columns of a mask have as many different values of every label as are asked for."""
        for key, least in needs:
            for value, where in self.columns.by_label(key).items():
                if least <= 0:
                    break
                least -= value is not None and bool(where & mask)
            if least > 0:
                return False
        return True

    # -- the menu -----------------------------------------------------------------------------------------------

    def listed(self, menu: Menu) -> Menu:
        """The menu with a row for each charge of a column, at the price of the cheapest machine that it may be."""
        limited = [name for name in menu.limited if name != "nodes"]
        found: list[tuple[float, int, dict[str, int]]] = []
        for at in range(menu.size):
            larger = at_least(self.columns, self.problem.dims, int(menu.full[at]))
            for charge in self._charges(menu, at, larger, limited):
                found.append((self._price(menu, at, larger, charge), at, charge))
        found.sort(key=lambda each: each[:2])
        charges = {name: np.array([each[2][name] for each in found], dtype=np.int64) for name in limited}
        charges["nodes"] = np.ones(len(found), dtype=np.int64)
        rows = np.array([row for _, row, _ in found], dtype=np.int64)
        return menu.listing(rows, np.array([price for price, *_ in found], dtype=np.float64), charges)

    def _charges(self, menu: Menu, at: int, larger: int, limited: Sequence[str]) -> Iterator[dict[str, int]]:
        """What a machine on a column may be charged for each limit, the least first."""
        own = {name: int(menu.limited[name][at]) for name in limited}
        needs, names = self.problem.min_values.get(int(menu.pools[at])), self._limited(int(menu.pools[at]))
        if not needs or not names:
            yield own
            return
        steps = {name: self._sizes(name, larger, needs) for name in names}
        for step in range(max(len(each) for each in steps.values())):
            yield own | {name: each[min(step, len(each) - 1)] for name, each in steps.items()}

    def _sizes(self, name: str, larger: int, needs: list[tuple[str, int]]) -> list[int]:
        sizes = sorted({each.type.capacity.get(name, 0) for each in self.columns.listed(larger)})
        enough = (at for at, size in enumerate(sizes)
                  if self.varied(larger & capacity_at_most(self.columns, name, size), needs))  # fmt: skip
        first = next(enough, None)
        return [_NEVER] if first is None else sizes[first : first + _CHARGES]

    def _price(self, menu: Menu, at: int, larger: int, charge: Mapping[str, int]) -> float:
        """What the cheapest machine costs that everybody accepts who accepts the column, where the column lies."""
        index = int(menu.full[at])
        column = self.columns.rows[index]
        if column.pool not in self.problem.min_values:
            return float(menu.prices[at])
        mask = larger
        for accepted in menu.shown:
            if accepted >> index & 1:
                mask &= accepted
        for axis in self.problem.axes:
            mask &= self.columns.by_label(axis.key).get(self.columns.label(column, axis.key), 0)
        for name in self._limited(column.pool):
            mask &= capacity_at_most(self.columns, name, charge[name])
        return float(self.columns.prices[lowest(mask | 1 << index)])


def at_least(columns: Columns, dims: Iterable[str], index: int) -> int:
    """What a machine on a column may become without losing room."""
    found = kind_mask(columns, columns.rows[index])
    for name in dims:
        found &= columns.holding(name, int(columns.amounts(name)[index]))
    return found


def breadth(columns: Columns, dims: Sequence[str], choosy: Mapping[int, Iterable[tuple[str, int]]]) -> Ints:
    """How many columns are at least as large as each, up to plenty; nothing where a pool does not ask for variety."""
    found: Ints = np.zeros(columns.size, dtype=np.int64)
    for pool, needs in choosy.items():
        mine = columns.listed(columns.of_pool[pool] & columns.available)
        offers = -(-len(mine) // max(1, len({each.type.name for each in mine})))
        plenty = _PLENTY * offers * max(least for _, least in needs)
        for column in mine:
            found[column.index] = min(plenty, at_least(columns, dims, column.index).bit_count())
    return found


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
