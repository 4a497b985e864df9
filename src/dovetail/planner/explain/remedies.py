"""Remedies: the change that would make a pod schedulable.

Every reason code has a general remedy (`dovetail.model.reasons`). This module has the cases with a more specific one:
an offering that would hold the pod but that a requirement of the NodePool forbids, a resource that no larger type has,
and requirements that contradict each other.

`ProviderCatalog` has all offerings of a NodePool's provider, whatever the NodePool requires: an unschedulable pod is
often excluded by a single requirement of its NodePool. Then the nearest miss is an offering that the NodePool forbids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.language import message, source
from dovetail.model.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.model.lint.requirements import meant_key
from dovetail.model.reasons import reason
from dovetail.planner.explain.filters import OfferingFilter
from dovetail.planner.explain.suggestions import contradictory, value_suggestion, values
from dovetail.planner.offerings.alternatives import capacity_at_most
from dovetail.planner.offerings.catalog import LabelQueries, OfferingCatalog, lowest, offered
from dovetail.planner.offerings.open_labels import RESERVATION, pool_clauses
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Exclusion, Funnel, FunnelStep, OfferingOption
from dovetail.planner.problem.compile import Problem, Unavailable, build_catalog
from dovetail.planner.problem.nodes import Daemon
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH, driver_of
from dovetail.planner.requirements import NODE_NAME, Clause, Term, text
from dovetail.planner.snapshot import Pool

#: Reason codes that depend on the offering alone, with the remedy on the side of the pod.
_POD_REMEDIES = {
    "NO_TYPE_FITS": source("ask for less"),
    "NO_TYPE_MATCHES": source("ask for another"),
    "VOLUME_ZONE": source("move the volume"),
    "VOLUME_LIMIT": source("use fewer volumes"),
}
_DISK = "ephemeral-storage"


def remedy(catalog: OfferingCatalog, pool: Pool, offering_filter: OfferingFilter) -> str:
    """The remedy if a filter rejects the last offering of a pool."""
    if offering_filter.clauses and offering_filter.clauses[0][0] in (HOSTNAME, NODE_NAME):
        return message("name an existing node, or none")
    if len(offering_filter.clauses) > 1 and contradictory(offering_filter.clauses):
        return message("leave one of them")
    if offering_filter.resource == _DISK:
        return message("ask for less, or let the NodeClass give nodes a larger disk")
    if offering_filter.absent:
        there = offering_filter.resource in catalog.resource_names and any(
            offering_filter.resource in kind.capacity for kind in pool.types
        )
        return (
            message("allow instance types that have some")
            if there
            else message("correct its name, or add it to types by a NodeOverlay")
        )
    return reason(offering_filter.code).remedy


def with_forbidden_offering(
    problem: Problem, state: PackingState, request: PlacementRequest, pool: int, funnel: Funnel
) -> Funnel:
    """The funnel with a forbidden offering as nearest miss, if one within the pool's limits would hold the pod.

    It is not suggested for a pool with minValues: one more offering may not be enough.
    """
    if funnel.code not in _POD_REMEDIES or funnel.offers_nothing or pool in problem.min_values:
        return funnel
    offering = forbidden_offering(problem, state, request, pool)
    if offering is not None:
        rules = " and ".join(map(text, offering.clauses))
        instead = message("{instead}, or widen its {rules}", instead=_POD_REMEDIES[funnel.code], rules=rules)
        forbidding = tuple((key, operator) for key, operator, _ in offering.clauses)
        return replace(
            funnel,
            nearest=offering.choice,
            nearest_lacks="",
            misses=1,
            remedy=instead,
            exclusion=replace(funnel.exclusion, forbidding=forbidding),
        )
    if funnel.remedy == reason("NO_TYPE_MATCHES").remedy and not provider_catalog(problem, pool).offers_any(
        request.level.terms
    ):
        return replace(funnel, remedy=message("ask for something that it offers, or use another NodePool"))
    return funnel


def forbidden_offering(
    problem: Problem, state: PackingState, request: PlacementRequest, pool: int
) -> ForbiddenOffering | None:
    """An offering within the pool's limits that would hold the pod, and that requirements of the pool forbid."""
    left = state.left[pool]
    if left.get("nodes", 1) <= 0:
        return None
    limits = {name: amount for name, amount in left.items() if name != "nodes"}
    terms = (request.level.terms, request.cls.storage.alternatives)
    return provider_catalog(problem, pool).forbidden(PodNeeds(terms, request.cls.requests, limits))


def without_offerings(pool: Pool) -> Funnel:
    """The funnel of a pool whose own requirements leave no offering, whatever the pod requires."""
    words, meant, own = _blocking_requirements(pool)
    start = sum(len(kind.offerings) for kind in pool.types)
    wrong_key = (
        message("write the key {meant} instead of {instance_type}", meant=meant, instance_type=INSTANCE_TYPE)
        if meant
        else message("widen what the NodePool requires")
    )
    return Funnel(
        start=start,
        steps=(FunnelStep(clause=words, left=0),),
        code="NO_TYPE_MATCHES",
        emptied_by=words,
        remedy=wrong_key if start else message("see why its NodeClass offers none"),
        misses=2,
        exclusion=Exclusion(own_requirements=tuple((key, operator) for key, operator, _ in own)),
        offers_nothing=True,
    )


def _blocking_requirements(pool: Pool) -> tuple[str, str, Sequence[Clause]]:
    """The requirements of a pool that leave no offering: as text, with the label key that was probably meant, and as
    clauses. The key is set if the pool lists values of another label, such as a family, as instance types.
    """
    if not any(kind.offerings for kind in pool.types):
        if pool.types:
            return message("its NodeClass (it offers no types in any zone)"), "", ()
        return message("its NodeClass (it offers no types)"), "", ()
    clauses = pool_clauses(pool)
    for clause in clauses:
        if not offered(pool, (clause,)):
            there = values(pool, clause[0])
            meant = meant_key(clause[2]) if clause[0] == INSTANCE_TYPE and clause[1] == "In" else None
            described = (
                message("these are no instance types") if meant else value_suggestion((clause,), there, there).words
            )
            words = text(clause)
            if not described:
                return message("its own requirement {requirement}", requirement=words), meant or "", (clause,)
            return (
                message("its own requirement {requirement} ({why})", requirement=words, why=described),
                meant or "",
                (clause,),
            )
    needed = [clause for clause in clauses if offered(pool, (other for other in clauses if other != clause))]
    listed = " and ".join(map(text, needed)) or message("together")
    return message("its own requirements {list}", list=listed), "", needed


#: Cached provider catalogs.
_MAX_PROVIDER_CATALOGS = 8


class PodNeeds(NamedTuple):
    """The requirements of a pod on an offering: one term of each of the `terms`, resources, and the pool's limits."""

    terms: tuple[tuple[Term, ...], ...]
    requests: Mapping[str, int]
    limits: Mapping[str, int]


class ForbiddenOffering(NamedTuple):
    """An offering that would hold the pod, and the requirements of the pool that forbid it."""

    choice: OfferingOption
    clauses: tuple[Clause, ...]


class ProviderCatalog:
    """All that the provider of a pool offers: whatever the pool requires of types and offerings, nothing is left
    out.
    """

    def __init__(
        self, pool: Pool, label_queries: LabelQueries, unavailable: Unavailable, daemons: Iterable[Daemon]
    ) -> None:
        theirs = {key for kind in pool.types for key in kind.labels} | {ZONE, CAPACITY_TYPE, INSTANCE_TYPE, RESERVATION}
        own = tuple(requirement for requirement in pool.requirements if requirement.key not in theirs)
        self._rules = [clause for clause in pool_clauses(pool) if clause[0] in theirs]
        self._catalog = build_catalog((replace(pool, requirements=own),), label_queries, unavailable, daemons)

    def offers_any(self, terms: Iterable[Term]) -> bool:
        """Whether any offering satisfies one of the terms, available or not."""
        return bool(self._catalog.any_term(terms))

    def forbidden(self, need: PodNeeds) -> ForbiddenOffering | None:
        """The offering for a pod that the fewest requirements of the pool forbid; of several, the cheapest."""
        catalog, mask = self._catalog, self._feasible(need)
        for count in range(1, len(self._rules) + 1) if mask else ():
            ways = [(self._without_rules(mask, broken), broken) for broken in combinations(self._rules, count)]
            cheapest = min(((lowest(where), broken) for where, broken in ways if where), default=None)
            if cheapest is not None:
                return ForbiddenOffering(catalog.rows[cheapest[0]].choice, cheapest[1])
        return None

    def _without_rules(self, mask: int, broken: tuple[Clause, ...]) -> int:
        """The offerings of a mask that satisfy all requirements of the pool except the `broken` ones."""
        for clause in self._rules:
            if clause not in broken:
                mask &= self._catalog.clause(clause)
        return mask

    def _feasible(self, need: PodNeeds) -> int:
        catalog = self._catalog
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
        rows, driver = self._catalog.rows, driver_of(name)
        return self._catalog.recall(
            ("attaching", driver, amount),
            lambda: OfferingCatalog.mask(row.type.attach_limits.get(driver, amount) >= amount for row in rows),
        )


def provider_catalog(problem: Problem, pool: int) -> ProviderCatalog:
    """The provider catalog of a pool, cached as long as the catalog of the problem is the same."""
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
