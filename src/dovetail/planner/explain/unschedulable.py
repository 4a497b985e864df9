"""Why a pod is unschedulable: for each NodePool, the offerings left after each filter, and the filter that left none.

The nearest miss is the cheapest offering that the last filter rejected, preferably one that passes all other filters;
its price is the price of the remedy. If all are too small, it is the cheapest of the largest.

The message reports the NodePool that comes closest: first a pool that would hold the pod but is not ready, then pools
that the pod may use, ready ones before others, then all others. If a requirement of that pool forbids an offering that
would hold the pod, that offering is the nearest miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.language import message, plural, source
from dovetail.model.reasons import reason
from dovetail.planner.explain import admission, suggestions
from dovetail.planner.explain.admission import LabelAdmission
from dovetail.planner.explain.filters import (
    OfferingFilter,
    combined_filter,
    min_values_filters,
    offering_filters,
    request_text,
    state_filters,
)
from dovetail.planner.explain.remedies import forbidden_offering, remedy, with_forbidden_offering, without_offerings
from dovetail.planner.explain.suggestions import Suggestion
from dovetail.planner.offerings.catalog import OfferingCatalog, lowest
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Exclusion, Funnel, FunnelStep, Unschedulable
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass, pod_key
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.snapshot import Pool, UnusablePool

#: The order of filters: of pools that fail one filter each, the one that fails the later filter is closer.
_PROGRESS = (
    "NO_TYPE_FITS",
    "UNKNOWN_LABEL",
    "NO_TYPE_MATCHES",
    "VOLUME_ZONE",
    "VOLUME_LIMIT",
    "HOST_PORT_TAKEN",
    "UNTOLERATED_TAINT",
    "NO_PRICE",
    "NO_OFFERING",
    "AFFINITY",
    "ANTI_AFFINITY",
    "SPREAD",
    "RESERVATION_FULL",
    "LIMIT_REACHED",
    "MIN_VALUES",
)
#: A pool that fails one of these filters is not meant for the pod.
_UNSUITABLE = frozenset({"UNTOLERATED_TAINT", "UNKNOWN_LABEL", "NO_TYPE_MATCHES", "VOLUME_ZONE"})
#: Pools whose labels are those of other pods come last.
_TIER_OF_OTHERS = 4
#: What a pool that is not ready lacks because it is not ready.
_UNAVAILABLE = frozenset({"NO_OFFERING", "NO_PRICE"})
#: Of the offerings that a filter rejects: the types that are named, and the offerings that are read to find them.
_MAX_REJECTED_TYPES, _MAX_REJECTED_OFFERINGS = 10, 200
#: NodePools that a message names; others are counted.
_MAX_POOL_NAMES = 3
NO_NODEPOOL = Unschedulable(
    code="NO_NODEPOOL", message=source("there is no NodePool; create a NodePool"), remedy=source("create a NodePool")
)


class PoolRejections(NamedTuple):
    """Labels, taints or zones by which a pool's nodes exclude a pod."""

    code: str
    words: str
    remedy: str


class PoolDiagnosis(NamedTuple):
    """Why a pool, and pools equal to it, have no offering for a pod. `tier` 0 is reported first.

    `refusal` is what excludes the pod from a pool that launches nothing now, ready or not.
    """

    tier: int
    funnel: Funnel
    names: tuple[str, ...]
    refusal: PoolRejections | None = None

    def rank(self, labels: LabelAdmission) -> tuple[int, bool, int, int, bool]:
        code = self.funnel.code if self.refusal is None else self.refusal.code
        exclusion = self.funnel.exclusion
        tier = _TIER_OF_OTHERS if self.names[0] in labels.others else self.tier
        progress = _PROGRESS.index(code) if code in _PROGRESS else len(_PROGRESS)
        everywhere = not labels.nowhere.isdisjoint(exclusion.labels)
        return tier, not everywhere, self.funnel.misses, -progress, not _is_misspelt(exclusion)


def _is_misspelt(exclusion: Exclusion) -> bool:
    """Whether the pod requires a value that is similar to one of the pool itself."""
    return bool(exclusion.meant and not exclusion.meant_of)


class UnusablePools:
    """The pools that launch nothing now, and whether they would hold a pod. `classes` are the unplaced pods.

    They are not ready, being deleted, or have requirements of their own that leave no offering.
    """

    def __init__(self, problem: Problem, classes: Sequence[PodClass]) -> None:
        self._unusable = {unusable_pool.pool.name: unusable_pool for unusable_pool in problem.snapshot.unusable_pools}
        self._widened = {
            pool.name: _without_blocking_requirements(pool)
            for pool, offerings in zip(problem.pools, problem.catalog.of_pool, strict=True)
            if not offerings and pool.types
        }
        self._problem: Problem | None = None
        self._class_of: dict[str, PodClass] = {}
        if not (self._unusable or self._widened) or not classes:
            return
        first = {pod_class.pods[0] for pod_class in classes if pod_class.pods}
        pods = tuple(pod for pod in problem.snapshot.pending if pod_key(pod) in first)
        # With the usable pools, whose zones are domains of topology spreads too.
        usable = tuple(self._widened.get(pool.name, pool) for pool in problem.snapshot.pools)
        pools = (*usable, *(unusable.pool for unusable in self._unusable.values()))
        self._problem = Problem(replace(problem.snapshot, pools=pools, unusable_pools=(), pending=pods))
        self._class_of = {name: pod_class for pod_class in self._problem.classes for name in pod_class.pods}

    def diagnoses(self, pod_class: PodClass) -> list[PoolDiagnosis]:
        """The diagnosis of each pool as if it could launch nodes."""
        alike = self._class_of.get(pod_class.pods[0]) if pod_class.pods else None
        problem = self._problem
        if problem is None or alike is None or alike.error:
            return []
        request, state = problem.request(alike, len(alike.levels) - 1), PackingState(problem)
        return [
            self._diagnosis(problem, state, request, index, name)
            for index in range(len(problem.pools))
            for name in _pool_names(problem, index)
            if name in self._unusable
        ]

    def with_usable(self, pools: Sequence[Pool]) -> list[Pool]:
        return [*pools, *(unusable.pool for unusable in self._unusable.values())]

    def would_hold(self, pod_class: PodClass, name: str) -> bool:
        """Whether a pool would hold the pod without the requirements of its own that leave no offering."""
        alike = self._class_of.get(pod_class.pods[0]) if pod_class.pods else None
        problem = self._problem
        if problem is None or alike is None or name not in self._widened:
            return True
        index = next(index for index in range(len(problem.pools)) if name in _pool_names(problem, index))
        if not problem.catalog.of_pool[index]:
            return False
        request = problem.request(alike, len(alike.levels) - 1)
        return _funnel(problem, PackingState(problem), request, index).left_over

    def _diagnosis(
        self, problem: Problem, state: PackingState, request: PlacementRequest, index: int, name: str
    ) -> PoolDiagnosis:
        pool, cause = problem.pools[index], self._unusable[name]
        if not problem.catalog.of_pool[index]:
            code, words = admission.refusal(pool, request.level.terms, request.cls.shape.tolerations)
            refusal = PoolRejections(code, words, reason(code).remedy) if words else None
            if not words and not _would_hold(problem, state, request, index):
                words = without_offerings(pool).emptied_by
            return _of_unusable(cause, words, 0 if not words else 1, refusal)
        funnel = _funnel(problem, state, request, index)
        if funnel.left_over or funnel.code in _UNAVAILABLE:
            return _of_unusable(cause, "", 0)
        refusal = None if funnel.suits else PoolRejections(funnel.code, funnel.emptied_by, funnel.remedy)
        return _of_unusable(cause, funnel.emptied_by, funnel.misses, refusal, funnel.exclusion)


def _of_unusable(
    cause: UnusablePool,
    words: str,
    misses: int,
    refusal: PoolRejections | None = None,
    exclusion: Exclusion | None = None,
) -> PoolDiagnosis:
    """`words` and `exclusion` are what would keep the pod out beside the cause.

    A misspelt value counts as all that the pool misses: the pod was meant for it, ready or not, rather than for a ready
    pool that does not know the label.
    """
    misspelt = refusal is not None and exclusion is not None and _is_misspelt(exclusion)
    steps = (FunnelStep(clause=cause.why, left=0), *([FunnelStep(clause=words, left=0)] if words else ()))
    funnel = Funnel(
        start=0,
        steps=steps,
        code=cause.code,
        emptied_by=message("{why}; it would be refused for {words}", why=cause.why, words=words)
        if words
        else cause.why,
        remedy=cause.remedy,
        misses=misses if misspelt else misses + 1,
        suits=refusal is None and not misses,
        object=cause.object,
        exclusion=exclusion
        if exclusion is not None and refusal is not None
        else replace(exclusion or Exclusion(), meant=cause.meant, meant_of=""),
    )
    tier = 3 if refusal is not None else 2 if words or cause.leaving else 0
    return PoolDiagnosis(tier, funnel, (cause.pool.name,), refusal)


def unschedulable(
    problem: Problem, state: PackingState, pod_class: PodClass, unusable: UnusablePools | None = None
) -> Unschedulable:
    """The reason for a class, with the funnel of every pool, the reported pool first."""
    if pod_class.error:
        return _without_funnel(
            pod_class.shape.code if pod_class.shape.error else pod_class.storage.code, pod_class.error
        )
    unusable = unusable or UnusablePools(problem, [pod_class])
    diagnoses = unusable.diagnoses(pod_class)
    if not problem.pools and not diagnoses:
        return NO_NODEPOOL
    request = problem.request(pod_class, len(pod_class.levels) - 1)
    for index in range(len(problem.pools)):
        diagnoses.append(_diagnosis(problem, state, request, index, unusable))
    labels = admission.label_admission(unusable.with_usable(problem.snapshot.pools), request.level.terms)
    order = sorted(range(len(diagnoses)), key=lambda index: (*diagnoses[index].rank(labels), index))
    first = diagnoses[order[0]]
    if not first.funnel.unusable:
        blamed = next(index for index, pool in enumerate(problem.pools) if pool.name == first.names[0])
        first = first._replace(funnel=with_forbidden_offering(problem, state, request, blamed, first.funnel))
    ordered = [first, *(diagnoses[index] for index in order[1:])]
    best, pools = first.funnel, {name: diagnosis.funnel for diagnosis in ordered for name in diagnosis.names}
    if first.refusal is not None:
        text = _message_of_refusal(first, first.refusal)
        return Unschedulable(code=first.refusal.code, message=text, remedy=first.refusal.remedy, pools=pools)
    return Unschedulable(
        code=best.code,
        message=_message(ordered),
        remedy=best.remedy,
        pools=pools,
        object=best.object or (f"nodepool/{first.names[0]}" if first.tier < 3 else ""),
    )


def _without_blocking_requirements(pool: Pool) -> Pool:
    blocking = without_offerings(pool).exclusion.own_requirements
    kept = tuple(need for need in pool.requirements if (need.key, need.operator) not in blocking)
    return replace(pool, requirements=kept)


def _diagnosis(
    problem: Problem, state: PackingState, request: PlacementRequest, index: int, unusable: UnusablePools
) -> PoolDiagnosis:
    funnel, names = _funnel(problem, state, request, index), _pool_names(problem, index)
    if not funnel.offers_nothing:
        return PoolDiagnosis(1 if funnel.suits else 3, funnel, names)
    _, refused = admission.refusal(problem.pools[index], request.level.terms, request.cls.shape.tolerations)
    if refused:
        return PoolDiagnosis(3, replace(funnel, misses=funnel.misses + 1, suits=False), names)
    holds = _would_hold(problem, state, request, index) and unusable.would_hold(request.cls, problem.pools[index].name)
    return PoolDiagnosis(0 if holds else 3, funnel, names)


def _would_hold(problem: Problem, state: PackingState, request: PlacementRequest, index: int) -> bool:
    """Whether a pool without offerings would hold the pod if one of its requirements were wider."""
    if not problem.pools[index].types:
        return True
    offering = forbidden_offering(problem, state, request, index)
    return offering is not None and len(offering.clauses) == 1


def _message_of_refusal(diagnosis: PoolDiagnosis, refusal: PoolRejections) -> str:
    """A pool that launches nothing now is not to blame where its nodes would exclude the pod."""
    return message(
        "NodePool {name}: {words} excludes the pod; {remedy} (the NodePool {why})",
        name=diagnosis.names[0],
        words=refusal.words,
        remedy=refusal.remedy,
        why=diagnosis.funnel.steps[0].clause,
    )


def _message(ordered: Sequence[PoolDiagnosis]) -> str:
    """The message for the first pool. Pools that reject the pod for the same reason are named together."""
    first = ordered[0].funnel
    same = [diagnosis for diagnosis in ordered if diagnosis.funnel.emptied_by == first.emptied_by]
    together = len(same) == len(ordered) and not first.unusable
    names = [name for diagnosis in (same if together else ordered[:1]) for name in diagnosis.names]
    more = message(" and {count} more", count=len(names) - _MAX_POOL_NAMES) if len(names) > _MAX_POOL_NAMES else ""
    listed = ", ".join(names[:_MAX_POOL_NAMES]) + more
    who = plural("NodePool {names}", "NodePools {names}", n=len(names), names=listed)
    if first.unusable:
        return message("NodePool {name} {why}; {remedy}", name=listed, why=first.emptied_by, remedy=first.remedy)
    text = message(
        "{who}: {emptied_by} left none of {start} offerings; {remedy}",
        who=who,
        emptied_by=first.emptied_by,
        start=first.start,
        remedy=first.remedy,
    )
    if first.nearest is None:
        return text
    kind, zone, detail = first.nearest.instance_type, first.nearest.zone, first.miss_detail
    return message("{text} (nearest: {type} in {zone}, {detail})", text=text, type=kind, zone=zone, detail=detail)


def _pool_names(problem: Problem, pool: int) -> tuple[str, ...]:
    """The name of a NodePool and of those that it stands for: what empties its funnel empties theirs."""
    name = problem.pools[pool].name
    return (name, *problem.stands_for.get(name, ()))


def _without_funnel(code: str, text: str) -> Unschedulable:
    reason_ = reason(code)
    return Unschedulable(code=code, message=f"{text}; {reason_.remedy}", remedy=reason_.remedy)


def _funnel(problem: Problem, state: PackingState, request: PlacementRequest, pool: int) -> Funnel:
    catalog = problem.catalog
    left = catalog.of_pool[pool]
    start = left.bit_count()
    if not start:
        return without_offerings(problem.pools[pool])
    alone = list(offering_filters(problem, request, pool))
    choice = min_values_filters(problem, pool, _passing(left, alone)) if pool in problem.min_values else ()
    filters = [*alone, *choice, *state_filters(problem, state, request, pool)]
    steps: list[FunnelStep] = []
    for offering_filter in (*filters, combined_filter(problem, pool)):
        before, left = left, left & offering_filter.mask
        if not left:
            break
        steps.append(_step(catalog, offering_filter.words, before, left))
    more = filters[len(steps) + 1 :]
    nearest = _nearest(problem, request, before, more)
    short = _missing_resources(problem, request, nearest)
    others = [
        later_filter.words
        for later_filter in more
        if not later_filter.resource and not later_filter.mask >> nearest & 1
    ]
    pod_class = problem.pools[pool]
    instead = (
        suggestions.amount_suggestion(catalog, pod_class, offering_filter.resource, nearest)
        if offering_filter.resource
        else suggestions.label_suggestion(catalog, problem.pools, pod_class, offering_filter.clauses, before)
    )
    words = f"{offering_filter.words} ({instead.words})" if instead.words else offering_filter.words
    steps.append(_step(catalog, words, before, 0))
    return Funnel(
        start=start,
        steps=tuple(steps),
        code=offering_filter.code,
        emptied_by=words,
        remedy=remedy(catalog, pod_class, offering_filter),
        nearest=catalog.rows[nearest].choice,
        nearest_lacks=", ".join([*short.values(), *others]),
        misses=len(short.keys() - {offering_filter.resource}) + len(others) + _count(offering_filter),
        suits=offering_filter.code not in _UNSUITABLE and not offering_filter.absent,
        left_over=len(steps) > len(filters),
        exclusion=_exclusion(offering_filter, instead),
    )


def _count(offering_filter: OfferingFilter) -> int:
    """A taint is a requirement of its own: each needs a toleration."""
    return max(len(set(offering_filter.exclusion.taints)), 1)


def _exclusion(offering_filter: OfferingFilter, instead: Suggestion) -> Exclusion:
    return replace(
        offering_filter.exclusion,
        labels=offering_filter.exclusion.labels or tuple(dict.fromkeys(key for key, _, _ in offering_filter.clauses)),
        unknown_label=instead.unknown_label,
        meant=instead.meant,
        meant_of=instead.meant_of,
        resource=offering_filter.resource,
        available=instead.available,
    )


def _step(catalog: OfferingCatalog, words: str, before: int, left: int) -> FunnelStep:
    return FunnelStep(clause=words, left=left.bit_count(), turned_away=_rejected_types(catalog, before & ~left))


def _rejected_types(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    """The names of the cheapest types among some offerings."""
    return catalog.recall(("turned away", lost), lambda: _types(catalog, lost)) if lost else ()


def _types(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    types: dict[str, None] = {}
    for _ in range(min(lost.bit_count(), _MAX_REJECTED_OFFERINGS)):
        index = lowest(lost)
        lost ^= 1 << index
        types[catalog.rows[index].type.name] = None
        if len(types) == _MAX_REJECTED_TYPES:
            break
    return tuple(types)


def _passing(among: int, filters: Iterable[OfferingFilter]) -> int:
    """The offerings that pass the filters, skipping filters that would leave none."""
    for offering_filter in filters:
        among = among & offering_filter.mask or among
    return among


def _nearest(problem: Problem, request: PlacementRequest, among: int, more: Sequence[OfferingFilter]) -> int:
    """The cheapest of the rejected offerings that passes as many later filters as possible.

    If all lack some resource, the cheapest of those that have most of it.
    """
    catalog, among = problem.catalog, _passing(among, more)
    for name, amount in sorted(request.cls.requests.items()):
        if not name.startswith(PORT) and not among & catalog.holding(name, amount):
            return lowest(catalog.with_most(name, among))
    return lowest(among)


def _missing_resources(problem: Problem, request: PlacementRequest, node: int) -> dict[str, str]:
    """The resources that the nearest miss has too little of, as text."""
    catalog = problem.catalog
    return {
        name: request_text(name, amount - int(catalog.amounts(name)[node]))
        for name, amount in request.cls.requests.items()
        if amount > catalog.amounts(name)[node] and not name.startswith(PORT)
    }
