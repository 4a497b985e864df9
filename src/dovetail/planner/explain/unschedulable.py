"""Why a pod has no node: for each pool, how many offerings each question left, and which one took the last.

The nearest miss is the cheapest of what the last question turned away, as far as possible of what lacks nothing else:
the price of the remedy. Where all are too small, it is the cheapest of the largest. Blamed is the pool that is
nearest to
a place; if it forbids a node that would do, that node is the nearest miss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.model.reasons import reason
from dovetail.planner.explain import suggestions as hints
from dovetail.planner.explain.filters import Question, at_last, in_the_way, of_offerings, size_words, too_few
from dovetail.planner.explain.remedies import barren, remedy, widened
from dovetail.planner.offerings.catalog import OfferingCatalog, lowest
from dovetail.planner.packing.state import PackingState
from dovetail.planner.plan import Funnel, Step, Unschedulable
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.pod_classes import PodClass
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.problem.resources import PORT

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
#: Of those that a question turned away, how many types are named, and how many offerings are looked at for them.
_NAMED, _LOOKED_AT = 10, 200


def unschedulable(problem: Problem, state: PackingState, one: PodClass) -> Unschedulable:
    """The reason for a class, with every pool's funnel; the pool to blame comes first."""
    if one.error:
        return _plainly(one.shape.code if one.shape.error else one.storage.code, one.error)
    if not problem.pools:
        return _plainly("NO_NODEPOOL", reason("NO_NODEPOOL").text)
    request = problem.request(one, len(one.levels) - 1)
    funnels = {index: _funnel(problem, state, request, index) for index in range(len(problem.pools))}
    order = sorted(funnels, key=lambda at: (funnels[at].misses, -_PROGRESS.index(funnels[at].code), at))
    blamed = order[0]
    best = funnels[blamed] = widened(problem, state, request, blamed, funnels[blamed])
    name = problem.pools[blamed].name
    message = f"NodePool {name}: {best.emptied_by} left none of {best.start} offerings; {best.remedy}"
    if best.nearest is not None:
        message += f" (nearest: {best.miss})"
    pools = {name: funnels[at] for at in order for name in _alike(problem, at)}
    return Unschedulable(code=best.code, message=message, remedy=best.remedy, pools=pools)


def _alike(problem: Problem, pool: int) -> tuple[str, ...]:
    """The name of a NodePool and of those that it stands for: what empties its funnel empties theirs."""
    name = problem.pools[pool].name
    return (name, *problem.stands_for.get(name, ()))


def _plainly(code: str, text: str) -> Unschedulable:
    known = reason(code)
    return Unschedulable(code=code, message=f"{text}; {known.remedy}", remedy=known.remedy)


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
    at = _nearest(problem, request, before, more)
    short = _lacks_feasible_pod(problem, request, at)
    others = [each.words for each in more if not each.resource and not each.mask >> at & 1]
    one = problem.pools[pool]
    described = (
        hints.of_amounts(catalog, one, question.resource, at)
        if question.resource
        else hints.of_labels(catalog, one, question.clauses, before)
    )
    words = f"{question.words} ({described})" if described else question.words
    steps.append(_step(catalog, words, before, 0))
    return Funnel(
        start=start,
        steps=tuple(steps),
        code=question.code,
        emptied_by=words,
        remedy=remedy(catalog, one, question),
        nearest=catalog.rows[at].choice,
        nearest_lacks=", ".join([*short.values(), *others]),
        misses=len(short.keys() - {question.resource}) + len(others) + 1,
    )


def _step(catalog: OfferingCatalog, words: str, before: int, left: int) -> Step:
    return Step(clause=words, left=left.bit_count(), turned_away=_turned_away(catalog, before & ~left))


def _turned_away(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    """The cheapest types among offerings, a few: a pod that reads on wants names, not numbers alone."""
    return catalog.recall(("turned away", lost), lambda: _types(catalog, lost)) if lost else ()


def _types(catalog: OfferingCatalog, lost: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for _ in range(min(lost.bit_count(), _LOOKED_AT)):
        at = lowest(lost)
        lost ^= 1 << at
        found[catalog.rows[at].type.name] = None
        if len(found) == _NAMED:
            break
    return tuple(found)


def _passing(among: int, questions: Iterable[Question]) -> int:
    """Those that pass as many of the questions as can be."""
    for each in questions:
        among = among & each.mask or among
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


def _lacks_feasible_pod(problem: Problem, request: PlacementRequest, at: int) -> dict[str, str]:
    """What a nearest miss has too little of, in words."""
    catalog = problem.catalog
    return {
        name: size_words(name, amount - int(catalog.amounts(name)[at]))
        for name, amount in request.cls.requests.items()
        if amount > catalog.amounts(name)[at] and not name.startswith(PORT)
    }
