"""minValues: a node must be buyable as enough different things.

A node may stand on an offering if all that hold what is on it, as far as its pods accept them and limits allow, have
enough different values. Whatever fits an offering fits every offering at least as large, so where those have enough,
it may
be filled to the brim. A row of the frontier requires a size, is charged for the largest node it may become, and costs
what the cheapest does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.alternatives import capacities, capacity_at_most, kind_mask
from dovetail.planner.offerings.catalog import Bools, Ints, OfferingCatalog, lowest
from dovetail.planner.plan import Choice
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.pod_classes import Kind
from dovetail.planner.problem.relaxation import RelaxationLevel
from dovetail.planner.problem.topology_groups import AFFINITY, Group
from dovetail.planner.snapshot import Pool

if TYPE_CHECKING:
    from dovetail.planner.problem.compile import Problem
    from dovetail.planner.problem.request import PlacementRequest

#: Of sizes that have enough variety, as many are tried, for pods that accept few.
_CHARGES = 2
#: Offerings with this many times the nodes that variety asks for need not be distinguished by how many they have.
_PLENTY = 3


class Diversity:
    """Answers for one problem, remembered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.catalog: OfferingCatalog = problem.catalog
        self._rooms: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}
        self._brims: dict[tuple[int, tuple[str, ...]], Bools] = {}
        self._alike: dict[tuple[str, ...], tuple[Ints, list[int]]] = {}

    def brimming(self, request: PlacementRequest) -> Bools:
        """The offerings of the frontier that may be filled to the brim with pods of a request."""
        mask, keys = self._common([request])
        cached = self._brims.get((mask, keys))
        if cached is None:
            every = range(self.problem.frontier.size)
            suits = (self._suits(index, mask & self._larger(index), keys) for index in every)
            cached = self._brims[mask, keys] = np.fromiter(suits, dtype=np.bool_, count=len(every))
        return cached

    def holding(self, ok: Bools, placement_requests: Iterable[PlacementRequest], load: Sequence[int]) -> Bools:
        """Of some offerings of the frontier, those on which a node with these pods and this load meets minValues."""
        mask, keys = self._common(placement_requests)
        mask &= self._taking(load)
        alike, first = self._families(keys)
        suits = np.zeros(len(first), dtype=np.bool_)
        for family in np.unique(alike[ok]).tolist():
            suits[family] = self._suits(first[family], mask, keys)
        return ok & suits[alike]

    def among(
        self, offerings: Iterable[int], placement_requests: Iterable[PlacementRequest], load: Sequence[int]
    ) -> Iterator[int]:
        """The same, one after the other, for those who need only the first."""
        mask, keys = self._common(placement_requests)
        mask &= self._taking(load)
        return (offering for offering in offerings if self._suits(offering, mask, keys))

    def _families(self, keys: tuple[str, ...]) -> tuple[Ints, list[int]]:
        """For each row of the frontier the family of those that may become the same and are pinned alike; one of
        each.
        """
        cached = self._alike.get(keys)
        if cached is None:
            seen: dict[object, int] = {}
            first: list[int] = []
            places = []
            for index in range(self.problem.frontier.size):
                entry = self.catalog.rows[int(self.problem.frontier.full[index])]
                mark = (entry.pool, self._room(index), *(self.catalog.label(entry, key) for key in keys))
                if mark not in seen:
                    seen[mark] = len(first)
                    first.append(index)
                places.append(seen[mark])
            cached = self._alike[keys] = (np.array(places, dtype=np.int64), first)
        return cached

    def most(
        self,
        node: int,
        placement_requests: Iterable[PlacementRequest],
        load: Sequence[int],
        request: PlacementRequest,
        count: int,
    ) -> int:
        """How many more of a request, up to `count`, leave a node with these pods diverse enough."""
        mask, keys = self._common(placement_requests)
        if self._suits(node, mask & self._larger(node), keys):
            return count
        least, most = 0, count
        while least < most:
            middle = (least + most + 1) // 2
            taken = [amount + more * middle for amount, more in zip(load, request.amounts.tolist(), strict=True)]
            if self._suits(node, mask & self._taking(taken), keys):
                least = middle
            else:
                most = middle - 1
        return least

    def _common(self, placement_requests: Iterable[PlacementRequest]) -> tuple[int, tuple[str, ...]]:
        """The offerings that all of these accept, and the labels that pin them."""
        mask, keys = self.catalog.everything, set()
        for request in placement_requests:
            mask &= request.mask
            keys.update(request.keys)
        return mask, tuple(sorted(keys))

    def _taking(self, load: Sequence[int]) -> int:
        """The offerings that hold a load."""
        everything = self.catalog.everything
        for name, amount in zip(self.problem.dims, load, strict=True):
            if amount:
                everything &= self.catalog.holding(name, amount)
        return everything

    def _suits(self, node: int, mask: int, keys: Iterable[str]) -> bool:
        entry = self.catalog.rows[int(self.problem.frontier.full[node])]
        needs = self.problem.min_values.get(entry.pool)
        if not needs:
            return True
        mask &= self._room(node)
        for key in keys:
            mask &= self.catalog.by_label(key).get(self.catalog.label(entry, key), 0)
        cached = self._enough.get((mask, entry.pool))
        if cached is None:
            cached = self._enough[mask, entry.pool] = various(self.catalog, mask, needs)
        return cached

    def _room(self, node: int) -> int:
        """What a node on an offering of the frontier may become within its charge."""
        cached = self._rooms.get(node)
        if cached is None:
            frontier = self.problem.frontier
            cached = kind_mask(self.catalog, self.catalog.rows[int(frontier.full[node])])
            for name in self._limited(int(frontier.pools[node])):
                cached &= capacity_at_most(self.catalog, name, int(frontier.limited[name][node]))
            self._rooms[node] = cached
        return cached

    def _larger(self, node: int) -> int:
        cached = self._sizes.get(node)
        if cached is None:
            index = int(self.problem.frontier.full[node])
            cached = self._sizes[node] = at_least(self.catalog, self.problem.dims, index)
        return cached

    def _limited(self, pool: int) -> list[str]:
        return [name for name in self.problem.binding if name != "nodes" and name in self.problem.limits[pool]]

    # -- the frontier -----------------------------------------------------------------------------------------------

    def listed(self, frontier: OfferingFrontier) -> OfferingFrontier:
        """The frontier with a row for each charge of an offering, at the price of the cheapest node that it may be."""
        limited = [name for name in frontier.limited if name != "nodes"]
        listed_rows: list[tuple[float, int, dict[str, int]]] = []
        for index in range(frontier.size):
            larger = at_least(self.catalog, self.problem.dims, int(frontier.full[index]))
            for charge in self._charges(frontier, index, larger, limited):
                listed_rows.append((self._price(frontier, index, larger, charge), index, charge))
        listed_rows.sort(key=lambda row: row[:2])
        charges = {name: np.array([row[2][name] for row in listed_rows], dtype=np.int64) for name in limited}
        charges["nodes"] = np.ones(len(listed_rows), dtype=np.int64)
        rows = np.array([row for _, row, _ in listed_rows], dtype=np.int64)
        return frontier.listing(rows, np.array([price for price, *_ in listed_rows], dtype=np.float64), charges)

    def _charges(
        self, frontier: OfferingFrontier, node: int, larger: int, limited: Sequence[str]
    ) -> Iterator[dict[str, int]]:
        """What a node on an offering may be charged for each limit, the least first."""
        own = {name: int(frontier.limited[name][node]) for name in limited}
        needs, names = self.problem.min_values.get(int(frontier.pools[node])), self._limited(int(frontier.pools[node]))
        if not needs or not names:
            yield own
            return
        steps = {name: self._steps(name, larger, needs) for name in names}
        for step in range(max(len(step) for step in steps.values())):
            yield own | {name: value[min(step, len(value) - 1)] for name, value in steps.items()}

    def _steps(self, name: str, larger: int, needs: list[tuple[str, int]]) -> list[int]:
        """The least for which there is such a node, and the sizes among which there are enough as large."""
        sizes = capacities(self.catalog, larger, name)
        enough = (
            index
            for index, size in enumerate(sizes)
            if various(self.catalog, larger & capacity_at_most(self.catalog, name, size), needs)
        )
        first = next(enough, 0)
        return sorted({sizes[0], *sizes[first : first + _CHARGES]})

    def _price(self, frontier: OfferingFrontier, node: int, larger: int, charge: Mapping[str, int]) -> float:
        """What the cheapest node costs that every pod accepts who accepts the offering, where the offering lies."""
        index = int(frontier.full[node])
        entry = self.catalog.rows[index]
        if entry.pool not in self.problem.min_values:
            return float(frontier.prices[node])
        mask = larger
        for accepted in frontier.shown:
            if accepted >> index & 1:
                mask &= accepted
        for topology_key in self.problem.topology_keys:
            mask &= self.catalog.by_label(topology_key.key).get(self.catalog.label(entry, topology_key.key), 0)
        for name in self._limited(entry.pool):
            mask &= capacity_at_most(self.catalog, name, charge[name])
        return float(self.catalog.prices[lowest(mask | 1 << index)])


def various(catalog: OfferingCatalog, mask: int, needs: Iterable[tuple[str, int]]) -> bool:
    """Whether the offerings of a mask have as many different values of every label as are asked for."""
    for key, least in needs:
        for value, where in catalog.by_label(key).items():
            if least <= 0:
                break
            least -= value is not None and bool(where & mask)
        if least > 0:
            return False
    return True


def varying(catalog: OfferingCatalog, choosy: Mapping[int, Iterable[tuple[str, int]]]) -> set[str]:
    """The labels that vary on nodes of choosy pools: what they ask for, and where they have reservations the kind of
    capacity, because a reserved node varies by those that are not reserved."""
    keys = {key for needs in choosy.values() for key, _ in needs}
    reserved = any(catalog.of_pool[pool] & catalog.reserved for pool in choosy)
    return keys | {CAPACITY_TYPE} if reserved else keys


def huddled(
    kinds: Iterable[Kind],
    catalog: OfferingCatalog,
    accepted: Callable[[Kind, RelaxationLevel], int],
    choosy: Mapping[int, Sequence[tuple[str, int]]],
) -> frozenset[Group]:
    """Affinities of pods to their own kind over a label which, once settled, leaves no node enough variety.

    To be near each other by such a label they must be on one node: then it need not be settled.
    """

    def varies(kind: Kind, key: str) -> bool:
        mask = accepted(kind, kind.levels[-1])
        return any(
            where & mask & mine and various(catalog, where & mask & mine, choosy.get(pool, ()))
            for pool, mine in enumerate(catalog.of_pool)
            for where in catalog.by_label(key).values()
        )

    return frozenset(
        group
        for kind in kinds
        for group in kind.members.intersection(kind.levels[0].hard)
        if group.kind == AFFINITY and group.key != HOSTNAME and not varies(kind, group.key)
    )


def at_least(catalog: OfferingCatalog, dims: Iterable[str], index: int) -> int:
    """What a node on an offering may become without losing room."""
    columns = kind_mask(catalog, catalog.rows[index])
    for name in dims:
        columns &= catalog.holding(name, int(catalog.amounts(name)[index]))
    return columns


def breadth(catalog: OfferingCatalog, dims: Sequence[str], choosy: Mapping[int, Iterable[tuple[str, int]]]) -> Ints:
    """How many offerings are at least as large as each, up to plenty; nothing where a pool does not ask for variety."""
    breadth: Ints = np.zeros(catalog.size, dtype=np.int64)
    for pool, needs in choosy.items():
        mine = catalog.listed(catalog.of_pool[pool] & catalog.available)
        offers = -(-len(mine) // max(1, len({entry.type.name for entry in mine})))
        plenty = _PLENTY * offers * max(least for _, least in needs)
        for entry in mine:
            breadth[entry.index] = min(plenty, at_least(catalog, dims, entry.index).bit_count())
    return breadth


def varied(pool: Pool, choices: Iterable[Choice]) -> bool:
    """Whether offerings are as different as a pool's minValues ask."""
    held = list(choices)
    labels = {kind.name: kind.labels for kind in pool.types}
    named = {
        INSTANCE_TYPE: {choice.instance_type for choice in held},
        ZONE: {choice.zone for choice in held},
        CAPACITY_TYPE: {choice.capacity_type for choice in held},
    }
    for requirement in pool.requirements:
        values = named.get(requirement.key) or {
            v for choice in held for v in labels[choice.instance_type].get(requirement.key, ())
        }
        if len(values) < (requirement.min_values or 0):
            return False
    return True
