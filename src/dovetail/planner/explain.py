"""Why a pod has no place: for each pool, how many offerings each clause left, and which clause took the last.

The nearest miss is the cheapest offering that the last clause turned away; where all are too small, of the largest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dovetail.model.labels import HOSTNAME, WELL_KNOWN
from dovetail.model.reasons import reason
from dovetail.model.taints import text as taint_text
from dovetail.model.taints import untolerated
from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.classes import PodClass
from dovetail.planner.clauses import NEVER, text
from dovetail.planner.columns import Columns, lowest
from dovetail.planner.groups import AFFINITY, ANTI, SPREAD
from dovetail.planner.losers import shown
from dovetail.planner.plan import Funnel, Step, Unschedulable
from dovetail.planner.ports import PORT
from dovetail.planner.problem import Problem
from dovetail.planner.sharing import ATTACH

#: Further along is nearer to a place.
_PROGRESS = ("UNTOLERATED_TAINT", "UNKNOWN_LABEL", "NO_TYPE_MATCHES", "VOLUME_ZONE", "VOLUME_LIMIT", "HOST_PORT_TAKEN",
             "NO_TYPE_FITS", "NO_PRICE", "NO_OFFERING", "RESERVATION_FULL", "LIMIT_REACHED",
             "MIN_VALUES", "ANTI_AFFINITY", "AFFINITY", "SPREAD")  # fmt: skip
#: Of those that a clause turned away, how many types are named, and how many offerings are looked at for them.
_NAMED, _LOOKED_AT = 10, 200


def unschedulable(problem: Problem, board: Board, one: PodClass) -> Unschedulable:
    """The reason for a class, with every pool's funnel."""
    if one.error:
        code = "UNREADABLE" if one.shape.error else "VOLUME_MISSING"
        return Unschedulable(code=code, message=one.error)
    if not problem.pools:
        return Unschedulable(code="NO_NODEPOOL", message=reason("NO_NODEPOOL").text)
    ask = problem.ask(one, len(one.levels) - 1)
    funnels = {pool.name: _funnel(problem, board, ask, index) for index, pool in enumerate(problem.pools)}
    name, nearest = max(funnels.items(), key=lambda item: (_PROGRESS.index(item[1].code), item[0]))
    cure = reason(nearest.code).cure
    message = f"NodePool {name}: {nearest.emptied_by} left none of {nearest.start} offerings; {cure}"
    if nearest.code in ("SPREAD", "AFFINITY", "ANTI_AFFINITY"):
        message = f"{nearest.emptied_by}; {cure}"
    if nearest.nearest is not None:
        price = "unknown price" if nearest.nearest.price is None else f"${nearest.nearest.price:.4f}/h"
        message += f" (nearest: {nearest.nearest.instance_type} in {nearest.nearest.zone}, {price}"
        message += f", {nearest.nearest_lacks})" if nearest.nearest_lacks else ")"
    return Unschedulable(code=nearest.code, message=message, pools=funnels)


def _funnel(problem: Problem, board: Board, ask: Ask, pool: int) -> Funnel:
    columns = problem.columns
    left = columns.of_pool[pool]
    start = left.bit_count()
    steps: list[Step] = []
    for code, words, mask in _clauses(problem, ask, pool):
        before, left = left, left & mask
        steps.append(Step(clause=words, left=left.bit_count(), turned_away=_turned_away(columns, before & ~left)))
        if not left:
            if not before:
                return Funnel(start=start, steps=tuple(steps), code=code, emptied_by=words)
            at = _largest(problem, ask, before) if code == "NO_TYPE_FITS" else lowest(before)
            return Funnel(start=start, steps=tuple(steps), code=code, emptied_by=words,
                          nearest=columns.rows[at].choice,
                          nearest_lacks=_lacking(problem, ask, at) if code == "NO_TYPE_FITS" else "")  # fmt: skip
    code, words = _beyond(problem, board, ask, pool)
    steps.append(Step(clause=words, left=0))
    return Funnel(start=start, steps=tuple(steps), code=code, emptied_by=words,
                  nearest=columns.rows[lowest(left)].choice)  # fmt: skip


def _turned_away(columns: Columns, lost: int) -> tuple[str, ...]:
    """The cheapest types among offerings, a few: whoever reads on wants names, not numbers alone."""
    return columns.recall(("turned away", lost), lambda: _types(columns, lost)) if lost else ()


def _types(columns: Columns, lost: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for _ in range(min(lost.bit_count(), _LOOKED_AT)):
        at = lowest(lost)
        lost ^= 1 << at
        found[columns.rows[at].type.name] = None
        if len(found) == _NAMED:
            break
    return tuple(found)


def _clauses(problem: Problem, ask: Ask, pool: int) -> Iterator[tuple[str, str, int]]:
    """Every question asked of an offering, in order: code, words, and the columns that pass."""
    columns, shape = problem.columns, ask.cls.shape
    template = problem.pools[pool]
    missing = untolerated(template.taints, shape.tolerations, ("NoSchedule", "NoExecute"))
    words = f"taint {taint_text(missing[0])}" if missing else "taints"
    yield "UNTOLERATED_TAINT", words, 0 if missing else columns.everything
    terms = ask.level.terms
    if len(terms) == 1:
        for each in terms[0]:
            yield _label_code(problem, each, pool), text(each) if each != NEVER else "an empty node selector", (
                columns.clause(each)
            )
    else:
        yield "NO_TYPE_MATCHES", "any of the required node affinity terms", columns.any_term(terms)
    if ask.cls.storage.alternatives != ((),):
        where = "; ".join(text(each) for term in ask.cls.storage.alternatives for each in term)
        yield "VOLUME_ZONE", f"volumes in {where}", columns.any_term(ask.cls.storage.alternatives)
    for name, amount in sorted(ask.cls.requests.items()):
        yield _size_code(name), _size_words(name, amount), columns.holding(name, amount)
    together = columns.everything
    for name, amount in ask.cls.requests.items():
        together &= columns.holding(name, amount)
    yield "NO_TYPE_FITS", "all requests together", together
    priced = columns.recall("priced", lambda: columns.mask(each.offering.price is not None for each in columns.rows))
    if priced != columns.everything:
        yield "NO_PRICE", "a known price", columns.available | priced
    yield "NO_OFFERING", "available now", columns.available


def _size_code(name: str) -> str:
    if name.startswith(ATTACH):
        return "VOLUME_LIMIT"
    return "HOST_PORT_TAKEN" if name.startswith(PORT) else "NO_TYPE_FITS"


def _size_words(name: str, amount: int) -> str:
    if name.startswith(ATTACH):
        return f"{amount} volumes of {name.removeprefix(ATTACH)}"
    if name.startswith(PORT):
        return f"host port {name.removeprefix(PORT)}"
    return f"{name} {shown(name, amount)}"


def _label_code(problem: Problem, each: tuple[str, str, tuple[str, ...]], pool: int) -> str:
    key = each[0]
    known = key in WELL_KNOWN or any(need.key == key for need in problem.pools[pool].requirements)
    if not known and key not in problem.pools[pool].labels and key != HOSTNAME:
        return "UNKNOWN_LABEL"
    return "NO_TYPE_MATCHES"


def _largest(problem: Problem, ask: Ask, before: int) -> int:
    """Of what passed the other clauses, the cheapest of those with most of what all of them lack."""
    columns = problem.columns
    for name, amount in sorted(ask.cls.requests.items()):
        if not name.startswith((PORT, ATTACH)) and not before & columns.holding(name, amount):
            held = columns.amounts(name)
            return int(np.where(columns.bools(before), held, held.min() - 1).argmax())
    return lowest(before)


def _lacking(problem: Problem, ask: Ask, at: int) -> str:
    short = {
        name: amount - int(problem.columns.amounts(name)[at])
        for name, amount in ask.cls.requests.items()
        if amount > problem.columns.amounts(name)[at] and not name.startswith((PORT, ATTACH))
    }
    return ", ".join(f"lacks {name} {shown(name, amount)}" for name, amount in short.items())


def _beyond(problem: Problem, board: Board, ask: Ask, pool: int) -> tuple[str, str]:
    """There are offerings that fit: what else stood in the way?"""
    menu = problem.menu
    mine = ask.columns & (menu.pools == pool)
    for dim, amount in ask.steps:
        mine &= menu.capacity[dim] >= amount
    if mine.any() and not board.affordable(mine).any():
        left = board.left[pool]
        shown = ", ".join(f"{name} {amount} left" for name, amount in sorted(left.items()))
        if left:
            return "LIMIT_REACHED", f"limits of NodePool {problem.pools[pool].name} ({shown})"
        return "RESERVATION_FULL", "reservations with room"
    for kind, code, words in (
        (AFFINITY, "AFFINITY", "pod affinity"),
        (ANTI, "ANTI_AFFINITY", "pod anti-affinity"),
        (SPREAD, "SPREAD", "topology spread"),
    ):
        for cell in (*ask.host_owned, *ask.domain_owned):
            if cell.group.kind == kind:
                return code, f"{words} on {cell.group.key}"
    for cell in (*ask.host_members, *ask.domain_members):
        if cell.group.kind == ANTI:
            return "ANTI_AFFINITY", f"another pod's anti-affinity on {cell.group.key}"
    if problem.min_values:
        return "MIN_VALUES", "minValues"
    return "SPREAD", "topology"
