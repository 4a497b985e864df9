"""minValues: a machine must be buyable as enough different things.

A machine may stand on a column if all that hold what is on it, as far as its pods accept them and limits allow, have
enough different values. Whatever fits a column fits every column at least as large, so where those have enough, it may
be filled to the brim. A row of the menu promises a size, is charged for the largest machine it may become, and costs
what the cheapest does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.alternatives import capacities, capacity_at_most, kind_mask
from dovetail.planner.offerings.catalog import Bools, Columns, Ints, lowest
from dovetail.planner.plan import Choice
from dovetail.planner.problem.frontier import Menu
from dovetail.planner.problem.pod_classes import Kind
from dovetail.planner.problem.relaxation import Level
from dovetail.planner.problem.topology_groups import AFFINITY, Group
from dovetail.planner.snapshot import Pool

if TYPE_CHECKING:
    from dovetail.planner.problem.compile import Problem
    from dovetail.planner.problem.request import Ask

#: Of sizes that have enough variety, as many are tried, for pods that accept few.
_CHARGES = 2
#: Columns with this many times the machines that variety asks for need not be told apart by how many they have.
_PLENTY = 3


class Diversity:
    """Answers for one problem, remembered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.columns: Columns = problem.columns
        self._rooms: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}
        self._brims: dict[tuple[int, tuple[str, ...]], Bools] = {}
        self._alike: dict[tuple[str, ...], tuple[Ints, list[int]]] = {}

    def brimming(self, ask: Ask) -> Bools:
        """The columns of the menu that may be filled to the brim with pods of an ask."""
        mask, keys = self._common([ask])
        known = self._brims.get((mask, keys))
        if known is None:
            self.problem.work += 1
            every = range(self.problem.menu.size)
            suits = (self._suits(at, mask & self._larger(at), keys) for at in every)
            known = self._brims[mask, keys] = np.fromiter(suits, dtype=np.bool_, count=len(every))
        return known

    def holding(self, ok: Bools, asks: Iterable[Ask], load: Sequence[int]) -> Bools:
        """Of some columns of the menu, those on which a machine with these pods, who take a load, is diverse enough."""
        mask, keys = self._common(asks)
        mask &= self._taking(load)
        alike, first = self._families(keys)
        suits = np.zeros(len(first), dtype=np.bool_)
        for family in np.unique(alike[ok]).tolist():
            suits[family] = self._suits(first[family], mask, keys)
        return ok & suits[alike]

    def among(self, columns: Iterable[int], asks: Iterable[Ask], load: Sequence[int]) -> Iterator[int]:
        """The same, one after the other, for those who need only the first."""
        mask, keys = self._common(asks)
        mask &= self._taking(load)
        return (column for column in columns if self._suits(column, mask, keys))

    def _families(self, keys: tuple[str, ...]) -> tuple[Ints, list[int]]:
        """For each row of the menu the family of those that may become the same and are pinned alike; one of each."""
        known = self._alike.get(keys)
        if known is None:
            seen: dict[object, int] = {}
            first: list[int] = []
            places = []
            for at in range(self.problem.menu.size):
                column = self.columns.rows[int(self.problem.menu.full[at])]
                mark = (column.pool, self._room(at), *(self.columns.label(column, key) for key in keys))
                if mark not in seen:
                    seen[mark] = len(first)
                    first.append(at)
                places.append(seen[mark])
            known = self._alike[keys] = (np.array(places, dtype=np.int64), first)
        return known

    def most(self, at: int, asks: Iterable[Ask], load: Sequence[int], ask: Ask, count: int) -> int:
        """How many more of an ask, up to `count`, leave a machine with these pods diverse enough."""
        mask, keys = self._common(asks)
        if self._suits(at, mask & self._larger(at), keys):
            return count
        least, most = 0, count
        while least < most:
            middle = (least + most + 1) // 2
            taken = [amount + more * middle for amount, more in zip(load, ask.request.tolist(), strict=True)]
            if self._suits(at, mask & self._taking(taken), keys):
                least = middle
            else:
                most = middle - 1
        return least

    def _common(self, asks: Iterable[Ask]) -> tuple[int, tuple[str, ...]]:
        """The columns that all of these accept, and the labels that pin them."""
        mask, keys = self.columns.everything, set()
        for ask in asks:
            mask &= ask.mask
            keys.update(ask.keys)
        return mask, tuple(sorted(keys))

    def _taking(self, load: Sequence[int]) -> int:
        """The columns that hold a load."""
        found = self.columns.everything
        for name, amount in zip(self.problem.dims, load, strict=True):
            if amount:
                found &= self.columns.holding(name, amount)
        return found

    def _suits(self, at: int, mask: int, keys: Iterable[str]) -> bool:
        column = self.columns.rows[int(self.problem.menu.full[at])]
        needs = self.problem.min_values.get(column.pool)
        if not needs:
            return True
        mask &= self._room(at)
        for key in keys:
            mask &= self.columns.by_label(key).get(self.columns.label(column, key), 0)
        known = self._enough.get((mask, column.pool))
        if known is None:
            known = self._enough[mask, column.pool] = various(self.columns, mask, needs)
        return known

    def _room(self, at: int) -> int:
        """What a machine on a column of the menu may become within its charge."""
        known = self._rooms.get(at)
        if known is None:
            menu = self.problem.menu
            known = kind_mask(self.columns, self.columns.rows[int(menu.full[at])])
            for name in self._limited(int(menu.pools[at])):
                known &= capacity_at_most(self.columns, name, int(menu.limited[name][at]))
            self._rooms[at] = known
        return known

    def _larger(self, at: int) -> int:
        known = self._sizes.get(at)
        if known is None:
            index = int(self.problem.menu.full[at])
            known = self._sizes[at] = at_least(self.columns, self.problem.dims, index)
        return known

    def _limited(self, pool: int) -> list[str]:
        return [name for name in self.problem.binding if name != "nodes" and name in self.problem.limits[pool]]

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
        steps = {name: self._steps(name, larger, needs) for name in names}
        for step in range(max(len(each) for each in steps.values())):
            yield own | {name: each[min(step, len(each) - 1)] for name, each in steps.items()}

    def _steps(self, name: str, larger: int, needs: list[tuple[str, int]]) -> list[int]:
        """The least for which there is such a machine, and the sizes among which there are enough as large."""
        sizes = capacities(self.columns, larger, name)
        enough = (
            at
            for at, size in enumerate(sizes)
            if various(self.columns, larger & capacity_at_most(self.columns, name, size), needs)
        )
        first = next(enough, 0)
        return sorted({sizes[0], *sizes[first : first + _CHARGES]})

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


def various(columns: Columns, mask: int, needs: Iterable[tuple[str, int]]) -> bool:
    """Whether the columns of a mask have as many different values of every label as are asked for."""
    for key, least in needs:
        for value, where in columns.by_label(key).items():
            if least <= 0:
                break
            least -= value is not None and bool(where & mask)
        if least > 0:
            return False
    return True


def varying(columns: Columns, choosy: Mapping[int, Iterable[tuple[str, int]]]) -> set[str]:
    """The labels that vary on machines of choosy pools: what they ask for, and where they have reservations the kind of
    capacity, because a reserved machine varies by those that are not reserved."""
    found = {key for needs in choosy.values() for key, _ in needs}
    reserved = any(columns.of_pool[pool] & columns.reserved for pool in choosy)
    return found | {CAPACITY_TYPE} if reserved else found


def huddled(
    kinds: Iterable[Kind],
    columns: Columns,
    accepted: Callable[[Kind, Level], int],
    choosy: Mapping[int, Sequence[tuple[str, int]]],
) -> frozenset[Group]:
    """Affinities of pods to their own kind over a label which, once settled, leaves no machine enough variety.

    To be near each other by such a label they must be on one machine: then it need not be settled.
    """

    def varies(kind: Kind, key: str) -> bool:
        mask = accepted(kind, kind.levels[-1])
        return any(
            where & mask & mine and various(columns, where & mask & mine, choosy.get(pool, ()))
            for pool, mine in enumerate(columns.of_pool)
            for where in columns.by_label(key).values()
        )

    return frozenset(
        group
        for kind in kinds
        for group in kind.members.intersection(kind.levels[0].hard)
        if group.kind == AFFINITY and group.key != HOSTNAME and not varies(kind, group.key)
    )


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
