"""A NodeClaim in Karpenter's scheduler: all offerings that its pods still allow.

Pods are added as long as some offering holds them all; prices are compared only after every pod is placed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from dovetail.planner.baseline.topology import TopologyCounts, bits
from dovetail.planner.offerings.alternatives import capacity_at_most, largest_capacity
from dovetail.planner.offerings.catalog import OfferingCatalog, lowest
from dovetail.planner.offerings.open_labels import RESERVATION
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.min_values import mask_meets_min_values
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.topology_counters import TopologyCounter, tolerated
from dovetail.planner.requirements import Term, holds

_NONE: frozenset[str] = frozenset()


class RelaxationStep:
    """A pod class at one step of its relaxation: one required term, and one relaxation level."""

    __slots__ = ("level_index", "mask", "narrow", "nodes", "request", "size", "strict")

    def __init__(
        self, context: ClaimContext, request: PlacementRequest, level_index: int, term: Term, required: Term
    ) -> None:
        problem, catalog = context.problem, context.catalog
        self.request = request
        self.level_index = level_index
        self.mask = (request.mask | context.used_up_for(request)) & catalog.term(term)
        self.nodes = request.nodes
        if len(request.level.terms) > 1 and problem.nodes:
            self.nodes = request.nodes & problem.passing((term,))
        self.size = (id(request.steps), self.mask)
        """The cache key for whether some offering holds the pod; steps with equal keys share the result."""
        self.strict = [
            _among(topology_key.key, named, required)
            for topology_key, named in zip(problem.topology_keys, context.topology_counts.named, strict=True)
        ]
        self.narrow = context.narrowed_by(term)


class SimulatedNodeClaim:
    """Mutable: the offerings that are left, the pods, and the capacity reservations held for the claim."""

    __slots__ = ("attached", "dead", "domains", "mask", "number", "pool", "reserved", "used")

    def __init__(self, number: int, pool: int, mask: int, domains: list[int | None], dims: int) -> None:
        self.number = number
        self.pool = pool
        self.mask = mask
        self.domains = domains
        self.used = [0] * dims
        self.attached = 0
        self.reserved = _NONE
        self.dead: set[tuple[int, int]] = set()
        """Pod sizes that no longer fit: free resources only shrink."""


class ClaimChange:
    """The state of a claim with one more pod."""

    __slots__ = ("domains", "mask", "reserved")

    def __init__(self, mask: int, domains: list[int | None], reserved: frozenset[str]) -> None:
        self.mask = mask
        self.domains = domains
        self.reserved = reserved


class Deferred(Exception):
    """The claim could use reserved capacity, but none is left to hold: Karpenter tries nothing else for the pod."""


class ClaimContext:
    """What claims share: the offerings, the reservations not held for any claim, the remaining NodePool limits."""

    def __init__(self, problem: Problem, topology_counts: TopologyCounts) -> None:
        self.problem = problem
        self.catalog: OfferingCatalog = problem.catalog
        self.topology_counts = topology_counts
        self.left = dict(problem.reservations)
        self.limits = [dict(limit) for limit in problem.limits]
        of_name = {name: self.catalog.by_label(RESERVATION).get(name, 0) & self.catalog.reserved for name in self.left}
        self._of_reservation = {name: mask for name, mask in of_name.items() if self.left[name]}
        self._unreserved = self.catalog.everything & ~self.catalog.reserved
        self._used_up = _offered(problem, _union(mask for name, mask in of_name.items() if not self.left[name]))
        """Exhausted reservations cannot be launched, but Karpenter counts them for minValues."""
        self._in_domains: dict[tuple[int, int], int] = {}
        self._sizes = [self.catalog.steps(name) for name in problem.dims]
        self._seen: dict[int, int] = {}

    def used_up_for(self, request: PlacementRequest) -> int:
        """The offerings of exhausted reservations that a pod would accept."""
        if not self._used_up:
            return 0
        in_tolerated_pools = tolerated(
            self.catalog, request.cls.shape.tolerations, request.level.tolerates_prefer_no_schedule
        )
        return self._used_up & in_tolerated_pools & self.catalog.any_term(request.cls.storage.alternatives)

    def narrowed_by(self, term: Term) -> list[int | None]:
        """The domains of each topology key that a term allows; None where it has no requirement."""
        keys = {clause[0] for clause in term}
        return [
            _among(topology_key.key, named, term) if topology_key.key in keys else None
            for topology_key, named in zip(self.problem.topology_keys, self.topology_counts.named, strict=True)
        ]

    def within(self, topology_key: int, domains: int) -> int:
        """The offerings in some domains of a topology key."""
        cached = self._in_domains.get((topology_key, domains))
        if cached is None:
            where, values = (
                self.catalog.by_label(self.problem.topology_keys[topology_key].key),
                self.problem.topology_keys[topology_key].values,
            )
            cached = 0
            for index, value in enumerate(values):
                if domains >> index & 1:
                    cached |= where.get(value, 0)
            self._in_domains[topology_key, domains] = cached
        return cached

    def change(self, claim: SimulatedNodeClaim, step: RelaxationStep) -> ClaimChange | None:
        """The claim with the pod added; None if it cannot take it. Raises `Deferred`."""
        request = step.request
        if not self.topology_counts.host_admits(request, claim.number):
            return None
        mask = claim.mask & step.mask
        if mask:
            for dim, amount in request.steps:
                levels, masks = self._sizes[dim]
                mask &= masks[bisect_left(levels, claim.used[dim] + amount)]
                if not mask:
                    break
        if not mask:
            claim.dead.add(step.size)
            return None
        for dim, more in self.new_attachments(claim, request) if request.shared else ():
            levels, masks = self._sizes[dim]
            mask &= masks[bisect_left(levels, claim.used[dim] + int(request.amounts[dim]) + more)]
        if not mask:
            return None
        for volumes in request.cls.storage.alternatives:
            narrowed = self._narrowed(claim, step, mask & self.catalog.term(volumes), volumes)
            if narrowed is not None:
                return narrowed
        return None

    def new_attachments(self, claim: SimulatedNodeClaim, request: PlacementRequest) -> tuple[tuple[int, int], ...]:
        """The attachments for a pod's shared volumes that no pod of the claim uses yet."""
        return self.problem.sharing.amounts(request.shared & ~claim.attached)

    def _narrowed(
        self, claim: SimulatedNodeClaim, step: RelaxationStep, mask: int, volumes: Term
    ) -> ClaimChange | None:
        open_to = list(claim.domains)
        for narrow in (step.narrow, self.narrowed_by(volumes)) if volumes else (step.narrow,):
            for index, narrowed_mask in enumerate(narrow):
                before = open_to[index]
                if narrowed_mask is not None:
                    open_to[index] = narrowed_mask if before is None else before & narrowed_mask
        domains = self.topology_counts.domains(step.request, step.strict, open_to) if mask else None
        if domains is None:
            return None
        for position, chosen in enumerate(domains):
            if chosen is not None:
                mask &= self.within(position, chosen)
        if not mask or not self._diverse(claim.pool, mask):
            return None
        return ClaimChange(mask, domains, self._reservations(claim, mask))

    def _diverse(self, pool: int, mask: int) -> bool:
        return mask_meets_min_values(self.catalog, mask, self.problem.min_values.get(pool, ()))

    def _reservations(self, claim: SimulatedNodeClaim, mask: int) -> frozenset[str]:
        """The reservations to hold for the claim: all that it could use and that are not held for others.

        An exhausted reservation defers the pod only if the claim has no other offering.
        """
        if not (self._of_reservation or claim.reserved) and mask & self._unreserved:
            return _NONE
        usable = [name for name, where in self._of_reservation.items() if where & mask]
        kept = frozenset(name for name in usable if name in claim.reserved or self.left[name] > 0)
        if (usable or claim.reserved or not mask & self._unreserved) and not kept:
            raise Deferred
        return kept

    def add(self, claim: SimulatedNodeClaim, step: RelaxationStep, change: ClaimChange) -> None:
        for name in change.reserved - claim.reserved:
            self.left[name] -= 1
        for name in claim.reserved - change.reserved:
            self.left[name] += 1
        claim.mask, claim.domains, claim.reserved = change.mask, change.domains, change.reserved
        for dim, amount in (*step.request.steps, *self.new_attachments(claim, step.request)):
            claim.used[dim] += amount
        claim.attached |= step.request.shared
        members = (*step.request.topology.host_members, *step.request.topology.domain_members)
        seen = [counter for counter in members if counter.everywhere or not claim.mask & ~self._counted(counter)]
        self.topology_counts.record(step.request, claim.number, claim.domains, seen)

    def _counted(self, counter: TopologyCounter) -> int:
        """The offerings on which a group counts pods."""
        if counter.counted_offerings is None:
            return self.catalog.everything
        cached = self._seen.get(counter.index)
        if cached is None:
            cached = self._seen[counter.index] = self.catalog.mask(counter.counted_offerings.tolist())
        return cached

    # -- limits -------------------------------------------------------------------------------------------------

    def launchable(self, pool: int) -> int:
        """The offerings of a pool that its limits still allow."""
        mask = self.catalog.of_pool[pool] & (self.catalog.available | self._used_up)
        for name, left in self.limits[pool].items():
            if name == "nodes":
                mask = mask if left > 0 else 0
            else:
                mask &= capacity_at_most(self.catalog, name, left)
        return mask

    def charge(self, claim: SimulatedNodeClaim) -> None:
        """Charge a new claim to its NodePool's limits as its largest offering."""
        left: dict[str, int] = self.limits[claim.pool]
        for name in left:
            left[name] -= 1 if name == "nodes" else largest_capacity(self.catalog, claim.mask, name)

    def final(self, claim: SimulatedNodeClaim) -> int:
        """The final offerings of the claim: those of the reservations held for it, else the others."""
        if claim.reserved:
            return claim.mask & _union(self._of_reservation[name] for name in claim.reserved)
        return claim.mask & ~self.catalog.reserved

    def price(self, claim: SimulatedNodeClaim) -> float:
        return float(self.catalog.prices[lowest(self.final(claim))])


def open_domains(context: ClaimContext, pool: int) -> list[int | None]:
    """The domains of each topology key that a NodePool's requirements leave; None where it has none."""
    open_domains: list[int | None] = []
    template = context.problem.pools[pool]
    given: Mapping[str, str] = template.labels
    for topology_key, named in zip(context.problem.topology_keys, context.topology_counts.named, strict=True):
        rules = [
            (requirement.key, requirement.operator, requirement.values)
            for requirement in template.requirements
            if requirement.key == topology_key.key and requirement.operator == "In"
        ]
        if topology_key.key in given:
            open_domains.append(bits(index for index, value in enumerate(named) if value == given[topology_key.key]))
        else:
            open_domains.append(_among(topology_key.key, named, tuple(rules)) if rules else None)
    return open_domains


def _offered(problem: Problem, mask: int) -> int:
    """The available offerings of a mask, whether or not their reservation is exhausted."""
    gone, offered = problem.snapshot.unavailable, 0
    for offering in problem.catalog.listed(mask):
        offer = offering.offering
        if offer.available and (offering.type.name, offer.zone, offer.capacity_type) not in gone:
            offered |= 1 << offering.index
    return offered


def _among(key: str, values: list[str], term: Term) -> int:
    rules = [clause for clause in term if clause[0] == key]
    return bits(index for index, value in enumerate(values) if all(holds(rule, value) for rule in rules))


def _union(masks: Iterable[int]) -> int:
    union_mask = 0
    for mask in masks:
        union_mask |= mask
    return union_mask
