"""Masks that decide what a machine may still become: the same pool, flavour and reservation, within limits."""

from __future__ import annotations

from dovetail.planner.columns import Column, Columns, of_bits
from dovetail.planner.flavours import RESERVATION


def kind_mask(columns: Columns, column: Column) -> int:
    """The columns a machine may change to while it stays the machine it is.

    A reserved one stays with its reservation; where its pool asks for variety, it may become what is not reserved.
    """
    mask = columns.of_pool[column.pool] & columns.available
    for key, value in column.flavour:
        mask &= columns.by_label(key).get(value, 0)
    reservation = column.offering.reservation_id
    if reservation is None:
        return mask & ~columns.reserved
    same = columns.by_label(RESERVATION).get(reservation, 0)
    choosy = any(each.min_values for each in columns.pools[column.pool].requirements)
    return mask & (same | ~columns.reserved) if choosy else mask & same


def capacity_at_most(columns: Columns, name: str, most: int) -> int:
    table: dict[tuple[str, int], int] = columns.__dict__.setdefault("_at_most", {})
    known = table.get((name, most))
    if known is None:
        known = 0
        for amount, where in _by_capacity(columns, name):
            known |= where if amount <= most else 0
        table[name, most] = known
    return known


def capacities(columns: Columns, mask: int, name: str) -> list[int]:
    """How much machines of a mask have of a resource in all, each amount once, the least first."""
    return [amount for amount, where in reversed(_by_capacity(columns, name)) if where & mask]


def largest_capacity(columns: Columns, mask: int, name: str) -> int:
    """What the largest machine of a mask that is not empty has of a resource in all."""
    return next(amount for amount, where in _by_capacity(columns, name) if where & mask)


def _by_capacity(columns: Columns, name: str) -> list[tuple[int, int]]:
    """The columns by how much of a resource they have, the largest first."""

    def found() -> list[tuple[int, int]]:
        by_amount: dict[int, list[int]] = {}
        for column in columns.rows:
            by_amount.setdefault(column.type.capacity.get(name, 0), []).append(column.index)
        return [(amount, of_bits(by_amount[amount])) for amount in sorted(by_amount, reverse=True)]

    return columns.recall(("capacities", name), found)
