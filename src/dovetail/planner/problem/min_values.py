"""minValues: a NodeClaim must keep a minimum number of different values of some labels, such as instance types.

A node may use an offering if the offerings that hold its pods, that they accept and that limits allow, have enough
different values. Pods that fit an offering fit every larger one; so if the larger offerings have enough values, the
node may be filled completely. A row of the frontier is then a minimum size: it is charged to limits as the largest
offering of the NodeClaim, and costs as much as the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.alternatives import alternatives_mask, capacities, capacity_at_most
from dovetail.planner.offerings.catalog import Bools, Ints, OfferingCatalog, lowest
from dovetail.planner.plan import OfferingOption
from dovetail.planner.problem.frontier import OfferingFrontier
from dovetail.planner.problem.pod_classes import ConstraintClass
from dovetail.planner.problem.relaxation import RelaxationLevel
from dovetail.planner.problem.topology_counters import TopologyKey
from dovetail.planner.problem.topology_groups import AFFINITY, TopologyGroup
from dovetail.planner.snapshot import Pool

if TYPE_CHECKING:
    from dovetail.planner.problem.request import PlacementRequest

#: The number of sizes with enough values that are offered for each limit, for pods that accept few offerings.
_MAX_SIZES_PER_LIMIT = 2
#: Offerings with more than this multiple of minValues larger ones are not distinguished by their number.
_MAX_COUNTED_MULTIPLE = 3


class MinValuesProblem(Protocol):
    """What minValues checks read of a problem that is being compiled."""

    catalog: OfferingCatalog
    frontier: OfferingFrontier
    dims: list[str]
    min_values: dict[int, list[tuple[str, int]]]
    binding: list[str]
    limits: list[dict[str, int]]
    topology_keys: list[TopologyKey]


class Diversity:
    """minValues checks of one problem, cached."""

    def __init__(self, problem: MinValuesProblem) -> None:
        self.problem = problem
        self.catalog: OfferingCatalog = problem.catalog
        self._rooms: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        self._enough: dict[tuple[int, int], bool] = {}
        self._fillable: dict[tuple[int, tuple[str, ...]], Bools] = {}
        self._alike: dict[tuple[str, ...], tuple[Ints, list[int]]] = {}

    def fillable(self, request: PlacementRequest) -> Bools:
        """The offerings of the frontier that may be filled completely with pods of a request."""
        mask, keys = self._common([request])
        cached = self._fillable.get((mask, keys))
        if cached is None:
            every = range(self.problem.frontier.size)
            suits = (self._suits(index, mask & self._larger(index), keys) for index in every)
            cached = self._fillable[mask, keys] = np.fromiter(suits, dtype=np.bool_, count=len(every))
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
        """The same as an iterator, for callers that need only the first."""
        mask, keys = self._common(placement_requests)
        mask &= self._taking(load)
        return (offering for offering in offerings if self._suits(offering, mask, keys))

    def _families(self, keys: tuple[str, ...]) -> tuple[Ints, list[int]]:
        """A number for each row of the frontier, equal for equal alternatives and domains; and one row of each."""
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
        """The number of further pods of a request, at most `count`, with which a node still meets minValues."""
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
        """The offerings that all requests accept, and the labels that they fix."""
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
            cached = self._enough[mask, entry.pool] = mask_meets_min_values(self.catalog, mask, needs)
        return cached

    def _room(self, node: int) -> int:
        """The offerings that a node of a frontier row may use within its charge."""
        cached = self._rooms.get(node)
        if cached is None:
            frontier = self.problem.frontier
            cached = alternatives_mask(self.catalog, self.catalog.rows[int(frontier.full[node])])
            for name in self._limited(int(frontier.pools[node])):
                cached &= capacity_at_most(self.catalog, name, int(frontier.limited[name][node]))
            self._rooms[node] = cached
        return cached

    def _larger(self, node: int) -> int:
        cached = self._sizes.get(node)
        if cached is None:
            index = int(self.problem.frontier.full[node])
            cached = self._sizes[node] = at_least_as_large(self.catalog, self.problem.dims, index)
        return cached

    def _limited(self, pool: int) -> list[str]:
        return [name for name in self.problem.binding if name != "nodes" and name in self.problem.limits[pool]]

    # -- the frontier -----------------------------------------------------------------------------------------------

    def listed(self, frontier: OfferingFrontier) -> OfferingFrontier:
        """The frontier with a row for each charge of an offering, at the price of the cheapest offering in it."""
        limited = [name for name in frontier.limited if name != "nodes"]
        listed_rows: list[tuple[float, int, dict[str, int]]] = []
        for index in range(frontier.size):
            larger = at_least_as_large(self.catalog, self.problem.dims, int(frontier.full[index]))
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
        """Yields the charges of a node to each limit, the least first."""
        own = {name: int(frontier.limited[name][node]) for name in limited}
        needs, names = self.problem.min_values.get(int(frontier.pools[node])), self._limited(int(frontier.pools[node]))
        if not needs or not names:
            yield own
            return
        steps = {name: self._steps(name, larger, needs) for name in names}
        for step in range(max(len(step) for step in steps.values())):
            yield own | {name: value[min(step, len(value) - 1)] for name, value in steps.items()}

    def _steps(self, name: str, larger: int, needs: list[tuple[str, int]]) -> list[int]:
        """The smallest amount of a resource, and the amounts at which enough values are as large."""
        sizes = capacities(self.catalog, larger, name)
        enough = (
            index
            for index, size in enumerate(sizes)
            if mask_meets_min_values(self.catalog, larger & capacity_at_most(self.catalog, name, size), needs)
        )
        first = next(enough, 0)
        return sorted({sizes[0], *sizes[first : first + _MAX_SIZES_PER_LIMIT]})

    def _price(self, frontier: OfferingFrontier, node: int, larger: int, charge: Mapping[str, int]) -> float:
        """The price of the cheapest offering, in the same domains, that all pods accept which accept this one."""
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


def mask_meets_min_values(catalog: OfferingCatalog, mask: int, needs: Iterable[tuple[str, int]]) -> bool:
    """Whether the offerings of a mask have the required number of different values of every label."""
    for key, least in needs:
        for value, where in catalog.by_label(key).items():
            if least <= 0:
                break
            least -= value is not None and bool(where & mask)
        if least > 0:
            return False
    return True


def min_values_keys(
    catalog: OfferingCatalog,
    pools_with_min_values: Mapping[int, Sequence[tuple[str, int]]],
    topology_keys: Iterable[str],
) -> set[str]:
    """The labels of minValues, those that no node can have fixed, and, with reservations, the capacity type.

    A reserved node meets minValues by offerings that are not reserved.
    """
    keys = {key for needs in pools_with_min_values.values() for key, _ in needs}
    keys |= {key for key in topology_keys if not _may_be_fixed(catalog, key, pools_with_min_values)}
    reserved = any(catalog.of_pool[pool] & catalog.reserved for pool in pools_with_min_values)
    return keys | {CAPACITY_TYPE} if reserved else keys


def _may_be_fixed(
    catalog: OfferingCatalog, key: str, pools_with_min_values: Mapping[int, Sequence[tuple[str, int]]]
) -> bool:
    """Whether some NodePool meets its minValues with one value of a label: there are few types of one size."""
    return any(
        where & in_pool and mask_meets_min_values(catalog, where & in_pool, pools_with_min_values.get(pool, ()))
        for pool, in_pool in enumerate(catalog.of_pool)
        for where in catalog.by_label(key).values()
    )


def single_node_affinities(
    kinds: Iterable[ConstraintClass],
    catalog: OfferingCatalog,
    accepted: Callable[[ConstraintClass, RelaxationLevel], int],
    pools_with_min_values: Mapping[int, Sequence[tuple[str, int]]],
) -> frozenset[TopologyGroup]:
    """Self-affinities over a label that, once fixed, leaves no node enough values for minValues.

    Pods of such an affinity must share one node: then the label need not be fixed.
    """

    def varies(kind: ConstraintClass, key: str) -> bool:
        mask = accepted(kind, kind.levels[-1])
        return any(
            where & mask & mine
            and mask_meets_min_values(catalog, where & mask & mine, pools_with_min_values.get(pool, ()))
            for pool, mine in enumerate(catalog.of_pool)
            for where in catalog.by_label(key).values()
        )

    return frozenset(
        group
        for kind in kinds
        for group in kind.members.intersection(kind.levels[0].hard)
        if group.kind == AFFINITY and group.key != HOSTNAME and not varies(kind, group.key)
    )


def at_least_as_large(catalog: OfferingCatalog, dims: Iterable[str], index: int) -> int:
    """The offerings with at least the capacity of an offering."""
    columns = alternatives_mask(catalog, catalog.rows[index])
    for name in dims:
        columns &= catalog.holding(name, int(catalog.amounts(name)[index]))
    return columns


def larger_offerings(
    catalog: OfferingCatalog, dims: Sequence[str], pools_with_min_values: Mapping[int, Iterable[tuple[str, int]]]
) -> Ints:
    """The number of offerings at least as large as each, up to a bound; 0 for NodePools without minValues."""
    larger_offerings: Ints = np.zeros(catalog.size, dtype=np.int64)
    for pool, needs in pools_with_min_values.items():
        mine = catalog.listed(catalog.of_pool[pool] & catalog.available)
        offers = -(-len(mine) // max(1, len({entry.type.name for entry in mine})))
        plenty = _MAX_COUNTED_MULTIPLE * offers * max(least for _, least in needs)
        for entry in mine:
            larger_offerings[entry.index] = min(plenty, at_least_as_large(catalog, dims, entry.index).bit_count())
    return larger_offerings


def meets_min_values(pool: Pool, choices: Iterable[OfferingOption]) -> bool:
    """Whether offerings meet the minValues of a NodePool."""
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
