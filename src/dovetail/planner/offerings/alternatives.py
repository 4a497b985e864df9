"""Masks that decide what a node may still become: the same pool, open labels and reservation, within limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.offerings.catalog import CatalogEntry, OfferingCatalog, lowest, of_bits
from dovetail.planner.offerings.open_labels import RESERVATION

#: The labels that a NodeClaim requires independently of each other; those with fewest values first.
_CLAIM_KEYS = (CAPACITY_TYPE, ZONE, INSTANCE_TYPE)


def kind_mask(catalog: OfferingCatalog, entry: CatalogEntry) -> int:
    """The offerings a node may change to while it stays the node it is.

    A reserved one stays with its reservation; where its pool asks for variety, it may become what is not reserved.
    """
    mask = catalog.of_pool[entry.pool] & catalog.available
    for key, value in entry.open_labels:
        mask &= catalog.by_label(key).get(value, 0)
    reservation = entry.offering.reservation_id
    if reservation is None:
        return mask & ~catalog.reserved
    same = catalog.by_label(RESERVATION).get(reservation, 0)
    choosy = any(requirement.min_values for requirement in catalog.pools[entry.pool].requirements)
    return mask & (same | ~catalog.reserved) if choosy else mask & same


def beyond(catalog: OfferingCatalog, mask: int, entry: CatalogEntry) -> int:
    """Offerings that a NodeClaim admits beyond a mask: its types, zones and capacity types combine freely."""
    rows = kind_mask(catalog, entry) & ~mask
    for key in _CLAIM_KEYS:
        if rows:
            rows &= reduce(or_, (where for where in catalog.by_label(key).values() if where & mask), 0)
    return rows


def sayable(catalog: OfferingCatalog, mask: int, entry: CatalogEntry, enough: Callable[[int], bool]) -> int:
    """The largest part of a mask that a NodeClaim can express exactly: pods may refuse some combinations of values.

    Values are removed that admit most unwanted offerings per lost one; those of the cheapest offering stay. If what is
    left would not be `enough`, the mask is returned unchanged.
    """
    best, said = catalog.rows[lowest(mask)], mask
    while admitted := beyond(catalog, said, entry):
        ways = [
            where
            for key in _CLAIM_KEYS
            for value, where in catalog.by_label(key).items()
            if where & admitted and value != catalog.label(best, key) and enough(said & ~where)
        ]
        if not ways:
            return mask
        said &= ~max(ways, key=lambda where: (where & admitted).bit_count() / (where & said).bit_count())
    return said


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
    """How much nodes of a mask have of a resource in all, each amount once, the least first."""
    return [amount for amount, where in reversed(_by_capacity(catalog, name)) if where & mask]


def largest_capacity(catalog: OfferingCatalog, mask: int, name: str) -> int:
    """What the largest node of a mask that is not empty has of a resource in all."""
    return next(amount for amount, where in _by_capacity(catalog, name) if where & mask)


def _by_capacity(catalog: OfferingCatalog, name: str) -> list[tuple[int, int]]:
    """The offerings by how much of a resource they have, the largest first."""

    def found() -> list[tuple[int, int]]:
        by_amount: dict[int, list[int]] = {}
        for entry in catalog.rows:
            by_amount.setdefault(entry.type.capacity.get(name, 0), []).append(entry.index)
        return [(amount, of_bits(by_amount[amount])) for amount in sorted(by_amount, reverse=True)]

    return catalog.recall(("capacities", name), found)
