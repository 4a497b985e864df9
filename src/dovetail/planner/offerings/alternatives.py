"""Alternatives: the offerings that a planned node may change to, with the same pool, open labels and reservation."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

import numpy as np

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.catalog import CatalogEntry, OfferingCatalog, lowest, packed_mask
from dovetail.planner.offerings.open_labels import RESERVATION

#: The labels that a NodeClaim requires independently of each other; those with fewest values first.
_CLAIM_KEYS = (CAPACITY_TYPE, ZONE, INSTANCE_TYPE)


def alternatives_mask(catalog: OfferingCatalog, entry: CatalogEntry) -> int:
    """The available offerings with the same pool, open labels and reservation as an offering.

    Where the pool has minValues, a reserved node may also use offerings without a reservation.
    """
    mask = catalog.of_pool[entry.pool] & catalog.available
    for key, value in entry.open_labels:
        mask &= catalog.by_label(key).get(value, 0)
    reservation = entry.offering.reservation_id
    if reservation is None:
        return mask & ~catalog.reserved
    same = catalog.by_label(RESERVATION).get(reservation, 0)
    has_min_values = any(requirement.min_values for requirement in catalog.pools[entry.pool].requirements)
    return mask & (same | ~catalog.reserved) if has_min_values else mask & same


def admitted_beyond(catalog: OfferingCatalog, mask: int, entry: CatalogEntry) -> int:
    """The offerings outside of a mask that a NodeClaim for the mask admits: its types, zones and capacity types are
    independent requirements, so it admits every combination of them."""
    rows = alternatives_mask(catalog, entry) & ~mask
    for key in _CLAIM_KEYS:
        if rows:
            rows &= reduce(or_, (where for where in catalog.by_label(key).values() if where & mask), 0)
    return rows


def expressible(catalog: OfferingCatalog, mask: int, entry: CatalogEntry, enough: Callable[[int], bool]) -> int:
    """The largest part of a mask that the requirements of a NodeClaim can express exactly.

    Values are removed that admit most unwanted offerings per lost one; those of the cheapest offering stay. If the
    rest would not be `enough`, the mask is returned unchanged.
    """
    best, kept = catalog.rows[lowest(mask)], mask
    while admitted := admitted_beyond(catalog, kept, entry):
        ways = [
            where
            for key in _CLAIM_KEYS
            for value, where in catalog.by_label(key).items()
            if where & admitted and value != catalog.label(best, key) and enough(kept & ~where)
        ]
        if not ways:
            return mask
        kept &= ~max(ways, key=lambda where: (where & admitted).bit_count() / (where & kept).bit_count())
    return kept


def capacity_at_most(catalog: OfferingCatalog, name: str, most: int) -> int:
    table: dict[tuple[str, int], int] = catalog.__dict__.setdefault("_at_most", {})
    cached = table.get((name, most))
    if cached is None:
        cached = 0
        for amount, where in _by_capacity(catalog, name):
            cached |= where if amount <= most else 0
        table[name, most] = cached
    return cached


def capacities(catalog: OfferingCatalog, mask: int, name: str) -> list[int]:
    """The distinct capacities of a resource among the offerings of a mask, the smallest first."""
    return [amount for amount, where in reversed(_by_capacity(catalog, name)) if where & mask]


def largest_capacity(catalog: OfferingCatalog, mask: int, name: str) -> int:
    """The largest capacity of a resource among the offerings of a mask that is not empty."""
    return next(amount for amount, where in _by_capacity(catalog, name) if where & mask)


def _by_capacity(catalog: OfferingCatalog, name: str) -> list[tuple[int, int]]:
    """The offerings by their capacity of a resource, the largest first."""

    def by_capacity() -> list[tuple[int, int]]:
        amounts = catalog.capacity(name)
        return [(int(amount), packed_mask(amounts == amount)) for amount in np.unique(amounts)[::-1]]

    return catalog.recall(("capacities", name), by_capacity)
