"""The shelf: what pools sell, less what daemons take of it, and what a pool would sell if it forbade less.

A pod without a place is often one requirement of a pool away from one: then the nearest machine is none that the pool
sells, and the price of the cure is that machine's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.model.instancetype import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.cells import tolerated
from dovetail.planner.clauses import Clause, Term, holds
from dovetail.planner.columns import Asked, Columns
from dovetail.planner.flavours import RESERVATION, pool_clauses
from dovetail.planner.fleet import Daemon
from dovetail.planner.plan import Choice
from dovetail.planner.ports import PORT, with_ports
from dovetail.planner.sharing import ATTACH, driver_of
from dovetail.planner.snapshot import Pool

Unavailable = frozenset[tuple[str, str, str]]


def on_sale(pools: Sequence[Pool], asked: Asked, unavailable: Unavailable, daemons: Iterable[Daemon]) -> Columns:
    columns = Columns(pools, asked, unavailable)
    for daemon in daemons:
        mask = columns.any_term(daemon.shape.required) & tolerated(columns, daemon.tolerations, prefer=True)
        columns.charge(mask, with_ports(daemon.shape.requests, daemon.shape.ports))
    return columns


class Need(NamedTuple):
    """What a pod asks of an offering: any of each of the `terms`, so much of everything, and to keep to the limits."""

    terms: tuple[tuple[Term, ...], ...]
    requests: tuple[tuple[str, int], ...]
    limits: tuple[tuple[str, int], ...]


class Forbidden(NamedTuple):
    """An offering that would do, but for what a pool requires of its machines."""

    choice: Choice
    clauses: tuple[Clause, ...]


def forbidden(pool: Pool, need: Need, unavailable: Unavailable, daemons: Iterable[Daemon]) -> Forbidden | None:
    """The offering that fewest requirements of a pool keep from a pod, of several the cheapest."""
    types = tuple(kind for kind in pool.types if _may_do(kind, need))
    theirs = {key for kind in types for key in kind.labels} | {ZONE, CAPACITY_TYPE, INSTANCE_TYPE, RESERVATION}
    rules = [each for each in pool_clauses(pool) if each[0] in theirs]
    if not types or not rules:
        return None
    own = tuple(each for each in pool.requirements if each.key not in theirs)
    terms = [term for terms in need.terms for term in terms]
    columns = on_sale((replace(pool, types=types, requirements=own),), Asked(terms, ()), unavailable, daemons)
    mask = columns.available & columns.fits(_counted(need))
    for alternatives in need.terms:
        mask &= columns.any_term(alternatives)
    found = [(_broken(columns, rules, at.index), at.index) for at in columns.listed(mask)]
    if not found:
        return None
    clauses, at = min(found, key=lambda each: (len(each[0]), each[1]))
    return Forbidden(columns.rows[at].choice, clauses) if clauses else None


def _broken(columns: Columns, rules: Sequence[Clause], at: int) -> tuple[Clause, ...]:
    row = columns.rows[at]
    return tuple(each for each in rules if not holds(each, columns.label(row, each[0])))


def _may_do(kind: InstanceType, need: Need) -> bool:
    """Whether a type is large enough and not too large, and nothing in its labels speaks against it."""
    if any(kind.allocatable.get(name, 0) < amount for name, amount in _counted(need).items()):
        return False
    if any(kind.capacity.get(name, 0) > left for name, left in need.limits):
        return False
    for name, amount in need.requests:
        if name.startswith(ATTACH) and kind.attach_limits.get(driver_of(name), amount) < amount:
            return False
    return all(may_meet(kind, terms) for terms in need.terms)


def may_meet(kind: InstanceType, terms: Iterable[Term]) -> bool:
    """Whether any of the terms may hold on some machine of a type, as far as the type decides it."""
    return any(all(_may_be(kind, each) for each in term) for term in terms)


def _may_be(kind: InstanceType, each: Clause) -> bool:
    values = values_of(kind, each[0])
    if not values:
        return each[0] not in kind.labels or holds(each, None)
    return any(holds(each, value) for value in values)


def values_of(kind: InstanceType, key: str) -> Collection[str]:
    """The values that a label has on machines of a type."""
    if key == INSTANCE_TYPE:
        return (kind.name,)
    if key == ZONE:
        return {each.zone for each in kind.offerings}
    if key == CAPACITY_TYPE:
        return {each.capacity_type for each in kind.offerings}
    return kind.labels.get(key, ())


def _counted(need: Need) -> dict[str, int]:
    return {name: amount for name, amount in need.requests if not name.startswith((PORT, ATTACH))}
