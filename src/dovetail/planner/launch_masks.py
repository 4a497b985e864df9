"""Masks that decide what a machine may still become: the same pool, flavour and reservation, within limits."""

from __future__ import annotations

from dovetail.planner.columns import RESERVATION, Column, Columns


def kind_mask(columns: Columns, column: Column) -> int:
    """The columns a machine may change to while it stays the machine it is."""
    mask = columns.of_pool[column.pool] & columns.available
    for key, value in column.flavour:
        mask &= columns.by_label(key).get(value, 0)
    reservation = column.offering.reservation_id
    if reservation is not None:
        return mask & columns.by_label(RESERVATION).get(reservation, 0)
    return mask & ~columns.reserved


def capacity_at_most(columns: Columns, name: str, most: int) -> int:
    table: dict[tuple[str, int], int] = columns.__dict__.setdefault("_at_most", {})
    known = table.get((name, most))
    if known is None:
        known = table[name, most] = columns.mask(each.type.capacity.get(name, 0) <= most for each in columns.rows)
    return known
