"""Remedies: what would give a pod a place, as far as it can be reported for the very pod and pool.

The vocabulary has a remedy for every reason. Here are the cases in which more is known: a node that would do, which
the pool forbids; an amount that no larger node has; requirements that contradict each other.

The provider catalog: all that the provider of a pool offers, and what of it the pool forbids.

A pod without a node is often one requirement of a pool away from one: then the nearest node is none that the pool
offers, and the price of the remedy is that node's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.language import message, source
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.model.lint.requirements import meant_key
from dovetail.model.reasons import reason
from dovetail.planner.explain.filters import Question
from dovetail.planner.explain.suggestions import contradictory, of_values, values
from dovetail.planner.offerings.alternatives import capacity_at_most
from dovetail.planner.offerings.catalog import Asked, OfferingCatalog, lowest, offered
from dovetail.planner.offerings.open_labels import RESERVATION, pool_clauses
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Choice, Funnel, Step
from dovetail.planner.problem.compile import Problem, Unavailable, build_catalog
from dovetail.planner.problem.nodes import Daemon
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.requirements import NODE_NAME, Clause, Term, text
from dovetail.planner.snapshot import Pool

#: Reasons about the offering alone, and what else the pod's owner could do where the pool forbids one that would do.
_INSTEAD = {
    "NO_TYPE_FITS": source("ask for less"),
    "NO_TYPE_MATCHES": source("ask for another"),
    "VOLUME_ZONE": source("move the volume"),
    "VOLUME_LIMIT": source("use fewer volumes"),
}
_DISK = "ephemeral-storage"


def remedy(catalog: OfferingCatalog, pool: Pool, question: Question) -> str:
    """What helps where a question turned away the last offering of a pool."""
    if question.clauses and question.clauses[0][0] in (HOSTNAME, NODE_NAME):
        return message("name an existing node, or none")
    if len(question.clauses) > 1 and contradictory(question.clauses):
        return message("leave one of them")
    if question.resource == _DISK:
        return message("ask for less, or let the NodeClass give nodes a larger disk")
    if question.absent:
        there = question.resource in catalog.stock and any(question.resource in kind.capacity for kind in pool.types)
        return (
            message("allow instance types that have some")
            if there
            else message("correct its name, or add it to types by a NodeOverlay")
        )
    return reason(question.code).remedy


def widened(problem: Problem, state: PackingState, request: PlacementRequest, pool: int, funnel: Funnel) -> Funnel:
    """The funnel with the node that would do if its pool allowed it, if there is one within the pool's limits.

    One node is not enough for a pool that wants a choice.
    """
    if funnel.code not in _INSTEAD or funnel.barren or pool in problem.min_values:
        return funnel
    left, terms = state.left[pool], request.level.terms
    limits = {name: amount for name, amount in left.items() if name != "nodes"}
    provider = provider_catalog(problem, pool)
    found = provider.forbidden(Need((terms, request.cls.storage.alternatives), request.cls.requests, limits))
    if found is not None and left.get("nodes", 1) > 0:
        rules = " and ".join(map(text, found.clauses))
        instead = message("{instead}, or widen its {rules}", instead=_INSTEAD[funnel.code], rules=rules)
        return replace(funnel, nearest=found.choice, nearest_lacks="", misses=1, remedy=instead)
    if funnel.remedy == reason("NO_TYPE_MATCHES").remedy and not provider.sells(terms):
        return replace(funnel, remedy=message("ask for something that it offers, or use another NodePool"))
    return funnel


def barren(pool: Pool) -> Funnel:
    """A pool that has nothing to offer to any pod, and what of its own is to blame; what the pod lacks comes on top."""
    words, meant = _to_blame(pool)
    start = sum(len(kind.offerings) for kind in pool.types)
    wrong_key = (
        message("write the key {meant} instead of {instance_type}", meant=meant, instance_type=INSTANCE_TYPE)
        if meant
        else message("widen what the NodePool requires")
    )
    return Funnel(
        start=start,
        steps=(Step(clause=words, left=0),),
        code="NO_TYPE_MATCHES",
        emptied_by=words,
        remedy=wrong_key if start else message("see why its NodeClass offers none"),
        misses=2,
    )


def _to_blame(pool: Pool) -> tuple[str, str]:
    """What of a pool leaves nothing; and the label whose values it lists as instance types, if it does."""
    if not any(kind.offerings for kind in pool.types):
        if pool.types:
            return message("its NodeClass (it offers no types in any zone)"), ""
        return message("its NodeClass (it offers no types)"), ""
    clauses = pool_clauses(pool)
    for each in clauses:
        if not offered(pool, (each,)):
            there = values(pool, each[0])
            meant = meant_key(each[2]) if each[0] == INSTANCE_TYPE and each[1] == "In" else None
            described = message("these are no instance types") if meant else of_values((each,), there, there)
            words = text(each)
            if not described:
                return message("its own requirement {requirement}", requirement=words), meant or ""
            return (
                message("its own requirement {requirement} ({why})", requirement=words, why=described),
                meant or "",
            )
    needed = [clause for clause in clauses if offered(pool, (other for other in clauses if other != clause))]
    return message("its own requirements {list}", list=" and ".join(map(text, needed)) or message("together")), ""


#: So many shelves are remembered.
_MAX_PROVIDER_CATALOGS = 8


class Need(NamedTuple):
    """What a pod requests of an offering: any of each of the `terms`, so much of everything, and to keep to the
    limits.
    """

    terms: tuple[tuple[Term, ...], ...]
    requests: Mapping[str, int]
    limits: Mapping[str, int]


class Forbidden(NamedTuple):
    """An offering that would do, but for what a pool requires of its nodes."""

    choice: Choice
    clauses: tuple[Clause, ...]


class ProviderCatalog:
    """All that the provider of a pool offers: whatever the pool requires of types and offerings, nothing is left
    out.
    """

    def __init__(self, pool: Pool, asked: Asked, unavailable: Unavailable, daemons: Iterable[Daemon]) -> None:
        theirs = {key for kind in pool.types for key in kind.labels} | {ZONE, CAPACITY_TYPE, INSTANCE_TYPE, RESERVATION}
        own = tuple(requirement for requirement in pool.requirements if requirement.key not in theirs)
        self._rules = [each for each in pool_clauses(pool) if each[0] in theirs]
        self._columns = build_catalog((replace(pool, requirements=own),), asked, unavailable, daemons)

    def sells(self, terms: Iterable[Term]) -> bool:
        """Whether anything meets any of the terms, to be had now or not."""
        return bool(self._columns.any_term(terms))

    def forbidden(self, need: Need) -> Forbidden | None:
        """The offering that fewest requirements of the pool keep from a pod, of several the cheapest."""
        catalog, mask = self._columns, self._doing(need)
        for count in range(1, len(self._rules) + 1) if mask else ():
            ways = [(self._but(mask, broken), broken) for broken in combinations(self._rules, count)]
            found = min(((lowest(where), broken) for where, broken in ways if where), default=None)
            if found is not None:
                return Forbidden(catalog.rows[found[0]].choice, found[1])
        return None

    def _but(self, mask: int, broken: tuple[Clause, ...]) -> int:
        """Those of a mask that keep all rules but the broken ones."""
        for each in self._rules:
            if each not in broken:
                mask &= self._columns.clause(each)
        return mask

    def _doing(self, need: Need) -> int:
        catalog = self._columns
        mask = catalog.available
        for name, amount in need.requests.items():
            if not name.startswith(PORT):
                mask &= self._attaching(name, amount) if name.startswith(ATTACH) else catalog.holding(name, amount)
            if not mask:
                return 0
        for alternatives in need.terms:
            mask &= catalog.any_term(alternatives)
        for name, left in need.limits.items():
            mask &= capacity_at_most(catalog, name, left)
        return mask

    def _attaching(self, name: str, amount: int) -> int:
        rows, driver = self._columns.rows, driver_of(name)
        return self._columns.recall(
            ("attaching", driver, amount),
            lambda: OfferingCatalog.mask(row.type.attach_limits.get(driver, amount) >= amount for row in rows),
        )


def provider_catalog(problem: Problem, pool: int) -> ProviderCatalog:
    """The provider catalog of a pool, remembered as long as what is offered is the same."""
    table: dict[tuple[int, int], tuple[OfferingCatalog, ProviderCatalog]] = problem.snapshot.memory.table("catalogs")
    cached = table.get((id(problem.catalog), pool))
    if cached is None:
        if len(table) >= _MAX_PROVIDER_CATALOGS:
            table.clear()
        made = ProviderCatalog(
            problem.pools[pool], problem.catalog.asked, problem.snapshot.unavailable, problem.daemons
        )
        cached = table[id(problem.catalog), pool] = (problem.catalog, made)
    return cached[1]
