"""Why a pod has no node: for each pool, how many offerings each question left, and which one took the last.

The nearest miss is the cheapest of what the last question turned away, as far as possible of what lacks nothing else:
the price of the remedy. Where all are too small, it is the cheapest of the largest.

The first cause is that of the pool that gets furthest: a pool that would hold the pod and is not ready comes first,
then the pools that the pod may use, then all others. If the pool to blame forbids a node that would do, that node is
the nearest miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.language import message, plural, source
from dovetail.model.reasons import reason
from dovetail.planner.explain import admission
from dovetail.planner.explain import suggestions as hints
from dovetail.planner.explain.filters import Question, at_last, in_the_way, of_offerings, size_words, too_few
from dovetail.planner.explain.remedies import barren, remedy, widened
from dovetail.planner.offerings.catalog import OfferingCatalog, lowest
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Funnel, Step, Unschedulable
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass, pod_key
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT
from dovetail.planner.snapshot import Pool, UnusablePool

#: Of pools that lack one thing each, further along is nearer to a place.
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
#: A pool that fails on one of these is none that the pod may use.
_UNSUITABLE = frozenset({"UNTOLERATED_TAINT", "UNKNOWN_LABEL", "NO_TYPE_MATCHES", "VOLUME_ZONE"})
#: Of those that a question turned away, how many types are named, and how many offerings are looked at for them.
_NAMED, _LOOKED_AT = 10, 200
#: So many NodePools are named in a message; others are counted.
_MAX_POOL_NAMES = 3
NO_NODEPOOL = Unschedulable(
    code="NO_NODEPOOL", message=source("there is no NodePool; create a NodePool"), remedy=source("create a NodePool")
)


class Verdict(NamedTuple):
    """What a pool says to a pod. `tier` is 0 for the pools to blame first."""

    tier: int
    funnel: Funnel
    names: tuple[str, ...]

    @property
    def rank(self) -> tuple[int, int, int, bool]:
        code, words = self.funnel.code, self.funnel.emptied_by
        progress = _PROGRESS.index(code) if code in _PROGRESS else len(_PROGRESS)
        misspelt = "did you mean" in words and " of NodePool " not in words
        return self.tier, self.funnel.misses, -progress, not misspelt


class UnusablePools:
    """The pools that launch nothing now, asked whether they would hold a pod. `classes` are the pods without a node."""

    def __init__(self, problem: Problem, classes: Sequence[PodClass]) -> None:
        self._unusable = {unusable_pool.pool.name: unusable_pool for unusable_pool in problem.snapshot.unusable_pools}
        self._problem: Problem | None = None
        self._class_of: dict[str, PodClass] = {}
        if not self._unusable or not classes:
            return
        first = {pod_class.pods[0] for pod_class in classes if pod_class.pods}
        pods = tuple(pod for pod in problem.snapshot.pending if pod_key(pod) in first)
        pools = tuple(unusable.pool for unusable in self._unusable.values())
        self._problem = Problem(replace(problem.snapshot, pools=pools, unusable_pools=(), pending=pods))
        self._class_of = {name: pod_class for pod_class in self._problem.classes for name in pod_class.pods}

    def verdicts(self, pod_class: PodClass) -> list[Verdict]:
        """What each of them would say if it could launch nodes."""
        alike = self._class_of.get(pod_class.pods[0]) if pod_class.pods else None
        problem = self._problem
        if problem is None or alike is None or alike.error:
            return []
        request, state = problem.request(alike, len(alike.levels) - 1), PackingState(problem)
        return [
            self._verdict(problem, state, request, index, name)
            for index in range(len(problem.pools))
            for name in _alike(problem, index)
        ]

    def _verdict(
        self, problem: Problem, state: PackingState, request: PlacementRequest, index: int, name: str
    ) -> Verdict:
        pool, cause = problem.pools[index], self._unusable[name]
        if not problem.catalog.of_pool[index]:
            words = admission.refusal(pool, request.level.terms, request.cls.shape.tolerations)
            return _of_unusable(cause, words, 0 if not words else 1, suits=not words)
        funnel = _funnel(problem, state, request, index)
        held = funnel.left_over
        return _of_unusable(cause, "" if held else funnel.emptied_by, 0 if held else funnel.misses, funnel.suits)


def _of_unusable(cause: UnusablePool, words: str, misses: int, suits: bool) -> Verdict:
    """`words` are what would keep the pod out beside the cause."""
    steps = (Step(clause=cause.why, left=0), *([Step(clause=words, left=0)] if words else ()))
    funnel = Funnel(
        start=0,
        steps=steps,
        code=cause.code,
        emptied_by=message("{why}; it would be refused for {words}", why=cause.why, words=words)
        if words
        else cause.why,
        remedy=cause.remedy,
        misses=misses + 1,
        suits=suits and not misses,
        object=cause.object,
    )
    tier = 3 if words else 2 if cause.leaving else 0
    return Verdict(tier, funnel, (cause.pool.name,))


def unschedulable(
    problem: Problem, state: PackingState, pod_class: PodClass, unusable: UnusablePools | None = None
) -> Unschedulable:
    """The reason for a class, with every pool's funnel; the pool to blame comes first."""
    if pod_class.error:
        return _plainly(pod_class.shape.code if pod_class.shape.error else pod_class.storage.code, pod_class.error)
    verdicts = (unusable or UnusablePools(problem, [pod_class])).verdicts(pod_class)
    if not problem.pools and not verdicts:
        return NO_NODEPOOL
    request = problem.request(pod_class, len(pod_class.levels) - 1)
    for index, pool in enumerate(problem.pools):
        funnel = _funnel(problem, state, request, index)
        verdicts.append(Verdict(_tier(pool, request, funnel), funnel, _alike(problem, index)))
    order = sorted(range(len(verdicts)), key=lambda index: (*verdicts[index].rank, index))
    first = verdicts[order[0]]
    if not first.funnel.unusable:
        blamed = next(index for index, pool in enumerate(problem.pools) if pool.name == first.names[0])
        first = first._replace(funnel=widened(problem, state, request, blamed, first.funnel))
    ordered = [first, *(verdicts[index] for index in order[1:])]
    best = first.funnel
    return Unschedulable(
        code=best.code,
        message=_message(ordered),
        remedy=best.remedy,
        pools={name: verdict.funnel for verdict in ordered for name in verdict.names},
        object=best.object or (f"nodepool/{first.names[0]}" if first.tier < 3 else ""),
    )


def _tier(pool: Pool, request: PlacementRequest, funnel: Funnel) -> int:
    if not funnel.barren:
        return 1 if funnel.suits else 3
    admitted = not admission.refusal(pool, request.level.terms, request.cls.shape.tolerations)
    return 0 if admitted and admission.roomy(pool, request.cls.requests) else 3


def _message(ordered: Sequence[Verdict]) -> str:
    """The first cause in words. Pools that all refuse a pod for the same are named together."""
    first = ordered[0].funnel
    same = [verdict for verdict in ordered if verdict.funnel.emptied_by == first.emptied_by]
    together = len(same) == len(ordered) and not first.unusable
    names = [name for verdict in (same if together else ordered[:1]) for name in verdict.names]
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


def _alike(problem: Problem, pool: int) -> tuple[str, ...]:
    """The name of a NodePool and of those that it stands for: what empties its funnel empties theirs."""
    name = problem.pools[pool].name
    return (name, *problem.stands_for.get(name, ()))


def _plainly(code: str, text: str) -> Unschedulable:
    reason_ = reason(code)
    return Unschedulable(code=code, message=f"{text}; {reason_.remedy}", remedy=reason_.remedy)


def _funnel(problem: Problem, state: PackingState, request: PlacementRequest, pool: int) -> Funnel:
    catalog = problem.catalog
    left = catalog.of_pool[pool]
    start = left.bit_count()
    if not start:
        return barren(problem.pools[pool])
    alone = list(of_offerings(problem, request, pool))
    choice = too_few(problem, pool, _passing(left, alone)) if pool in problem.min_values else ()
    questions = [*alone, *choice, *in_the_way(problem, state, request, pool)]
    steps: list[Step] = []
    for question in (*questions, at_last(problem, pool)):
        before, left = left, left & question.mask
        if not left:
            break
        steps.append(_step(catalog, question.words, before, left))
    more = questions[len(steps) + 1 :]
    nearest = _nearest(problem, request, before, more)
    short = _lacks_feasible_pod(problem, request, nearest)
    others = [question_.words for question_ in more if not question_.resource and not question_.mask >> nearest & 1]
    pod_class = problem.pools[pool]
    described = (
        hints.of_amounts(catalog, pod_class, question.resource, nearest)
        if question.resource
        else hints.of_labels(catalog, problem.pools, pod_class, question.clauses, before)
    )
    words = f"{question.words} ({described})" if described else question.words
    steps.append(_step(catalog, words, before, 0))
    return Funnel(
        start=start,
        steps=tuple(steps),
        code=question.code,
        emptied_by=words,
        remedy=remedy(catalog, pod_class, question),
        nearest=catalog.rows[nearest].choice,
        nearest_lacks=", ".join([*short.values(), *others]),
        misses=len(short.keys() - {question.resource}) + len(others) + 1,
        suits=question.code not in _UNSUITABLE and not question.absent,
        left_over=len(steps) > len(questions),
    )


def _step(catalog: OfferingCatalog, words: str, before: int, left: int) -> Step:
    return Step(clause=words, left=left.bit_count(), turned_away=_turned_away(catalog, before & ~left))


def _turned_away(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    """The cheapest types among offerings, a few: a pod that reads on wants names, not numbers alone."""
    return catalog.recall(("turned away", lost), lambda: _types(catalog, lost)) if lost else ()


def _types(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    types: dict[str, None] = {}
    for _ in range(min(lost.bit_count(), _LOOKED_AT)):
        index = lowest(lost)
        lost ^= 1 << index
        types[catalog.rows[index].type.name] = None
        if len(types) == _NAMED:
            break
    return tuple(types)


def _passing(among: int, questions: Iterable[Question]) -> int:
    """Those that pass as many of the questions as can be."""
    for question in questions:
        among = among & question.mask or among
    return among


def _nearest(problem: Problem, request: PlacementRequest, among: int, more: Sequence[Question]) -> int:
    """Of what a question turned away, the cheapest that passes as much of the rest as can be.

    Where all of them lack something, the cheapest of those that have most of it.
    """
    catalog, among = problem.catalog, _passing(among, more)
    for name, amount in sorted(request.cls.requests.items()):
        if not name.startswith(PORT) and not among & catalog.holding(name, amount):
            return lowest(catalog.richest(name, among))
    return lowest(among)


def _lacks_feasible_pod(problem: Problem, request: PlacementRequest, node: int) -> dict[str, str]:
    """What a nearest miss has too little of, in words."""
    catalog = problem.catalog
    return {
        name: size_words(name, amount - int(catalog.amounts(name)[node]))
        for name, amount in request.cls.requests.items()
        if amount > catalog.amounts(name)[node] and not name.startswith(PORT)
    }
