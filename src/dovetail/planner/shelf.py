"""The shelf: all that the provider of a pool sells, and what of it the pool forbids.

A pod without a place is often one requirement of a pool away from one: then the nearest machine is none that the pool
sells, and the price of the cure is that machine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.clauses import Clause, Term
from dovetail.planner.columns import Asked, Columns, lowest
from dovetail.planner.flavours import RESERVATION, pool_clauses
from dovetail.planner.fleet import Daemon
from dovetail.planner.launch_masks import capacity_at_most
from dovetail.planner.plan import Choice
from dovetail.planner.ports import PORT
from dovetail.planner.problem import Problem
from dovetail.planner.sale import Unavailable, on_sale
from dovetail.planner.sharing import ATTACH, driver_of
from dovetail.planner.snapshot import Pool

#: So many shelves are remembered.
_SHELVES = 8


class Need(NamedTuple):
    """What a pod asks of an offering: any of each of the `terms`, so much of everything, and to keep to the limits."""

    terms: tuple[tuple[Term, ...], ...]
    requests: Mapping[str, int]
    limits: Mapping[str, int]


class Forbidden(NamedTuple):
    """An offering that would do, but for what a pool requires of its machines."""

    choice: Choice
    clauses: tuple[Clause, ...]


class Shelf:
    """All that the provider of a pool sells: whatever the pool requires of types and offerings, nothing is left out."""

    def __init__(self, pool: Pool, asked: Asked, unavailable: Unavailable, daemons: Iterable[Daemon]) -> None:
        theirs = {key for kind in pool.types for key in kind.labels} | {ZONE, CAPACITY_TYPE, INSTANCE_TYPE, RESERVATION}
        own = tuple(each for each in pool.requirements if each.key not in theirs)
        self._rules = [each for each in pool_clauses(pool) if each[0] in theirs]
        self._columns = on_sale((replace(pool, requirements=own),), asked, unavailable, daemons)

    def sells(self, terms: Iterable[Term]) -> bool:
        """Whether anything meets any of the terms, to be had now or not."""
        return bool(self._columns.any_term(terms))

    def forbidden(self, need: Need) -> Forbidden | None:
        """The offering that fewest requirements of the pool keep from a pod, of several the cheapest."""
        columns, mask = self._columns, self._doing(need)
        for count in range(1, len(self._rules) + 1) if mask else ():
            ways = [(self._but(mask, broken), broken) for broken in combinations(self._rules, count)]
            found = min(((lowest(where), broken) for where, broken in ways if where), default=None)
            if found is not None:
                return Forbidden(columns.rows[found[0]].choice, found[1])
        return None

    def _but(self, mask: int, broken: tuple[Clause, ...]) -> int:
        """Those of a mask that keep all rules but the broken ones."""
        for each in self._rules:
            if each not in broken:
                mask &= self._columns.clause(each)
        return mask

    def _doing(self, need: Need) -> int:
        columns = self._columns
        mask = columns.available
        for name, amount in need.requests.items():
            if not name.startswith(PORT):
                mask &= self._attaching(name, amount) if name.startswith(ATTACH) else columns.holding(name, amount)
            if not mask:
                return 0
        for alternatives in need.terms:
            mask &= columns.any_term(alternatives)
        for name, left in need.limits.items():
            mask &= capacity_at_most(columns, name, left)
        return mask

    def _attaching(self, name: str, amount: int) -> int:
        rows, driver = self._columns.rows, driver_of(name)
        return self._columns.recall(
            ("attaching", driver, amount),
            lambda: Columns.mask(row.type.attach_limits.get(driver, amount) >= amount for row in rows),
        )


def shelf_of(problem: Problem, pool: int) -> Shelf:
    """The shelf of a pool, remembered as long as what is sold is the same."""
    table: dict[tuple[int, int], tuple[Columns, Shelf]] = problem.snapshot.memory.table("shelves")
    known = table.get((id(problem.columns), pool))
    if known is None:
        if len(table) >= _SHELVES:
            table.clear()
        made = Shelf(problem.pools[pool], problem.columns.asked, problem.snapshot.unavailable, problem.daemons)
        known = table[id(problem.columns), pool] = (problem.columns, made)
    return known[1]
