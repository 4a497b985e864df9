"""The offering frontier: the offerings that are not dominated by a cheaper one.

Offerings of one NodePool in the same domains that every pod class accepts or refuses alike differ only in price and
size. One that costs no less and holds no more than another is left out, unless its NodePool has minValues that need
it. All offerings are considered again when a node is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any, TypeVar

import numpy as np

from dovetail.planner.offerings.catalog import Bools, Floats, Ints, OfferingCatalog
from dovetail.planner.problem.topology_counters import TopologyKey

#: Cached results of one frontier.
_MAX_CACHED = 512
T = TypeVar("T")

#: The price of an offering without a price where prices are compared, in $/h.
_UNKNOWN_PRICE = 1e9


class OfferingFrontier:
    """Parallel arrays over the offerings kept, cheapest first. `full` is each one's index among all offerings."""

    def __init__(
        self,
        catalog: OfferingCatalog,
        dims: Sequence[str],
        masks: Sequence[int],
        topology_keys: Sequence[TopologyKey],
        limited: Sequence[str],
        larger_offerings: Ints | None = None,
    ) -> None:
        kept = _kept(catalog, dims, masks, topology_keys, limited, larger_offerings)
        self.full: Ints = kept
        self.size = len(kept)
        self.prices: Floats = catalog.prices[kept]
        self.capacity = np.ascontiguousarray(
            np.array([catalog.amounts(name)[kept] for name in dims], dtype=np.int64).reshape(len(dims), len(kept))
        )
        self.room = [np.where(row > 0, row, np.inf) for row in self.capacity]
        """The capacity as a divisor, without zeros."""
        self.finite: Floats = np.where(np.isfinite(self.prices), self.prices, _UNKNOWN_PRICE)
        self.pools: Ints = np.array([catalog.rows[int(index)].pool for index in kept], dtype=np.int64)
        self.domains = [topology_key.offerings[kept] for topology_key in topology_keys]
        self.limited = {
            name: np.array([catalog.rows[int(index)].type.capacity.get(name, 0) for index in kept], dtype=np.int64)
            for name in limited
        }
        self.limited["nodes"] = np.ones(self.size, dtype=np.int64)
        self.reservations: list[str | None] = [catalog.rows[int(index)].offering.reservation_id for index in kept]
        self.zones: list[str] = [catalog.rows[int(index)].offering.zone for index in kept]
        kinds: dict[object, int] = {}
        self.kinds: Ints = np.array(
            [kinds.setdefault(_kind(catalog, int(index)), len(kinds)) for index in kept], dtype=np.int64
        )
        self._make_lists()
        self.shown = {mask: as_bools(catalog, self, mask) for mask in dict.fromkeys(masks)}
        """The offerings of each mask of a node filter."""
        self._remembered: dict[Hashable, tuple[Any, object]] = {}

    def _make_lists(self) -> None:
        """Make lists for access to single offerings: capacity, domains, NodePool and kind."""
        self.sizes: list[list[int]] = self.capacity.T.tolist()
        self.places: list[tuple[int, ...]] = list(zip(*(domain.tolist() for domain in self.domains), strict=True))
        self.places = self.places or [()] * self.size
        self.pool_at: list[int] = self.pools.tolist()
        self.kind_at: list[int] = self.kinds.tolist()

    def recall(self, key: Hashable, of: object, make: Callable[[], T]) -> T:
        """The cached result of `make` for a key. `of` is kept alive: its id may be in the key."""
        cached = self._remembered.get(key)
        if cached is None:
            if len(self._remembered) >= _MAX_CACHED:
                self._remembered.clear()
            cached = self._remembered[key] = (make(), of)
        value: T = cached[0]
        return value

    def types(self) -> Ints:
        """A number for each offering; offerings that differ only in their domains have the same."""
        rows = (*self.capacity, self.finite, self.kinds)
        return self.recall("types", None, lambda: np.unique(np.vstack(rows), axis=1, return_inverse=True)[1].ravel())

    def charges(self, name: str) -> dict[int, list[int]]:
        """The amounts of a limited resource of each NodePool's offerings, in order."""

        def amounts_by_pool() -> dict[int, list[int]]:
            return {pool: np.unique(self.limited[name][self.pools == pool]).tolist() for pool in set(self.pool_at)}

        return self.recall(("charges", name), None, amounts_by_pool)

    def reserved(self, name: str) -> list[int]:
        """The offerings of a reservation."""
        every = self.reservations
        return self.recall(
            ("reserved", name), None, lambda: [index for index, reservation in enumerate(every) if reservation == name]
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_remembered": {}}

    def listing(self, rows: Ints, prices: Floats, charges: dict[str, Ints]) -> OfferingFrontier:
        """The same frontier with some of its rows, at other prices and with other charges against the limits."""
        twin = copy(self)
        twin.full, twin.size, twin.prices, twin.limited = self.full[rows], len(rows), prices, charges
        twin.capacity = np.ascontiguousarray(self.capacity[:, rows])
        twin.room = [room[rows] for room in self.room]
        twin.finite = np.where(np.isfinite(prices), prices, _UNKNOWN_PRICE)
        twin.pools, twin.kinds = self.pools[rows], self.kinds[rows]
        twin.domains = [lying[rows] for lying in self.domains]
        twin._make_lists()
        twin.reservations = [self.reservations[row] for row in rows.tolist()]
        twin.zones = [self.zones[row] for row in rows.tolist()]
        twin.shown = {mask: chosen[rows] for mask, chosen in self.shown.items()}
        twin._remembered = {}
        return twin


def _kind(catalog: OfferingCatalog, node: int) -> object:
    """What resizing a node keeps: its NodePool, its open labels, its reservation."""
    entry = catalog.rows[node]
    return (entry.pool, entry.open_labels, entry.offering.reservation_id)


def _kept(
    catalog: OfferingCatalog,
    dims: Sequence[str],
    masks: Sequence[int],
    topology_keys: Sequence[TopologyKey],
    limited: Sequence[str],
    larger_offerings: Ints | None,
) -> Ints:
    candidates = np.flatnonzero(catalog.bools(catalog.available))
    if not len(candidates):
        return candidates.astype(np.int64)
    seen: list[Ints] = [np.array([hash_id(catalog, int(candidate)) for candidate in candidates], dtype=np.int64)]
    seen += [topology_key.offerings[candidates] for topology_key in topology_keys]
    distinct = list(dict.fromkeys(masks))
    if distinct:
        bits = np.array([catalog.bools(mask)[candidates] for mask in distinct])
        packed = np.packbits(bits, axis=0)
        seen += [row.astype(np.int64) for row in packed]
    signature = np.array(seen)
    _, family = np.unique(signature, axis=1, return_inverse=True)
    held = np.array([catalog.amounts(name)[candidates] for name in dims], dtype=np.int64)
    sizes = held.reshape(len(dims), len(candidates))
    less = [
        np.array([catalog.rows[int(candidate)].type.capacity.get(name, 0) for candidate in candidates])
        for name in limited
    ]
    value = np.concatenate([sizes, -np.array(less, dtype=np.int64).reshape(len(less), len(candidates))])
    if larger_offerings is not None:
        value = np.concatenate([value, larger_offerings[candidates][None]])
    keep: list[int] = []
    for member in np.unique(family):
        keep += undominated(np.flatnonzero(family.ravel() == member), value)
    return np.asarray(candidates[sorted(keep)], dtype=np.int64)


def hash_id(catalog: OfferingCatalog, node: int) -> int:
    """A small number for the NodePool, open labels and reservation of an offering."""
    table = catalog.__dict__.setdefault("_families", {})
    return int(table.setdefault(_kind(catalog, node), len(table)))


def undominated(members: Ints, value: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[int]:
    """Of offerings in order of price, those that no cheaper one equals or exceeds in every dimension."""
    sizes = value[:, members]
    rising = np.maximum.accumulate(sizes, axis=1)
    largest = np.logical_or.reduce(np.diff(rising, axis=1, prepend=rising[:, :1] - 1), axis=0)
    kept: list[int] = []
    held = np.empty(sizes.shape, dtype=np.int64)
    for place, index in enumerate(members.tolist()):
        count = len(kept)
        if largest[place] or not bool((held[:, :count] >= sizes[:, place : place + 1]).all(axis=0).any()):
            held[:, count] = sizes[:, place]
            kept.append(index)
    return kept


def as_bools(catalog: OfferingCatalog, frontier: OfferingFrontier, mask: int) -> Bools:
    return catalog.bools(mask)[frontier.full]
