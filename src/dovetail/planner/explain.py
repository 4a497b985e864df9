"""Why a pod has no place: for each pool, how many offerings each question left, and which one took the last.

The nearest miss is the cheapest of what the last question turned away, as far as possible of what lacks nothing else:
the price of the cure. Where all are too small, it is the cheapest of the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.model.reasons import reason
from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.classes import PodClass
from dovetail.planner.columns import Columns, lowest
from dovetail.planner.obstacles import at_last, in_the_way
from dovetail.planner.plan import Choice, Funnel, Step, Unschedulable
from dovetail.planner.ports import PORT
from dovetail.planner.problem import Problem
from dovetail.planner.questions import Question, of_offerings, own_requirements, shown
from dovetail.planner.sharing import ATTACH
from dovetail.planner.snapshot import Pool

#: Further along is nearer to a place.
_PROGRESS = ("UNTOLERATED_TAINT", "UNKNOWN_LABEL", "NO_TYPE_MATCHES", "VOLUME_ZONE", "VOLUME_LIMIT", "HOST_PORT_TAKEN",
             "NO_TYPE_FITS", "NO_PRICE", "NO_OFFERING", "AFFINITY", "ANTI_AFFINITY", "SPREAD", "RESERVATION_FULL",
             "LIMIT_REACHED", "MIN_VALUES")  # fmt: skip
#: Of those that a question turned away, how many types are named, and how many offerings are looked at for them.
_NAMED, _LOOKED_AT = 10, 200


def unschedulable(problem: Problem, board: Board, one: PodClass) -> Unschedulable:
    """The reason for a class, with every pool's funnel."""
    if one.error:
        code = "UNREADABLE" if one.shape.error else one.storage.code
        return Unschedulable(code=code, message=f"{one.error}; {reason(code).cure}")
    if not problem.pools:
        known = reason("NO_NODEPOOL")
        return Unschedulable(code=known.code, message=f"{known.text}; {known.cure}")
    ask = problem.ask(one, len(one.levels) - 1)
    funnels = {pool.name: _funnel(problem, board, ask, index) for index, pool in enumerate(problem.pools)}
    name, best = max(funnels.items(), key=lambda item: (_PROGRESS.index(item[1].code), item[0]))
    message = f"NodePool {name}: {best.emptied_by} left none of {best.start} offerings; {reason(best.code).cure}"
    if best.nearest is not None:
        message += f" (nearest: {_told(best.nearest)}{f', lacks {best.nearest_lacks}' if best.nearest_lacks else ''})"
    return Unschedulable(code=best.code, message=message, pools=funnels)


def _told(choice: Choice) -> str:
    price = "unknown price" if choice.price is None else f"${choice.price:.4f}/h"
    return f"{choice.instance_type} in {choice.zone}, {price}"


def _funnel(problem: Problem, board: Board, ask: Ask, pool: int) -> Funnel:
    columns = problem.columns
    left = columns.of_pool[pool]
    start = left.bit_count()
    if not start:
        return _nothing_to_offer(problem.pools[pool])
    questions = [*of_offerings(problem, ask, pool), *in_the_way(problem, board, ask, pool)]
    steps: list[Step] = []
    for question in (*questions, at_last(problem, pool)):
        before, left = left, left & question.mask
        steps.append(Step(clause=question.words, left=left.bit_count(),
                          turned_away=_turned_away(columns, before & ~left)))  # fmt: skip
        if not left:
            break
    more = questions[len(steps) :]
    at = _nearest(problem, ask, before, more)
    return Funnel(start=start, steps=tuple(steps), code=question.code, emptied_by=question.words,
                  nearest=columns.rows[at].choice, nearest_lacks=_lacking(problem, ask, at, more))  # fmt: skip


def _nothing_to_offer(pool: Pool) -> Funnel:
    words, sold = own_requirements(pool), sum(len(kind.offerings) for kind in pool.types)
    return Funnel(start=sold, steps=(Step(clause=words, left=0),), code="NO_TYPE_MATCHES", emptied_by=words)


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


def _nearest(problem: Problem, ask: Ask, among: int, more: Sequence[Question]) -> int:
    """Of what a question turned away, the cheapest that passes as much of the rest as can be.

    Where all of them lack something, the cheapest of those that have most of it.
    """
    for question in more:
        among = among & question.mask or among
    columns = problem.columns
    for name, amount in sorted(ask.cls.requests.items()):
        if not name.startswith((PORT, ATTACH)) and not among & columns.holding(name, amount):
            held = columns.amounts(name)
            return int(np.where(columns.bools(among), held, held.min() - 1).argmax())
    return lowest(among)


def _lacking(problem: Problem, ask: Ask, at: int, more: Sequence[Question]) -> str:
    """What a nearest miss is short of, and what else it would be asked in vain."""
    columns = problem.columns
    found = [
        _short(columns, at, name, amount - int(columns.amounts(name)[at]))
        for name, amount in ask.cls.requests.items()
        if amount > columns.amounts(name)[at] and not name.startswith((PORT, ATTACH))
    ]
    found += [each.words for each in more if not each.size and not each.mask >> at & 1]
    return ", ".join(found)


def _short(columns: Columns, at: int, name: str, amount: int) -> str:
    daemons = int(columns.overhead(name)[at]) if name in columns.charged() else 0
    taken = f" (daemons take {shown(name, daemons)})" if daemons else ""
    return f"{name} {shown(name, amount)}{taken}"
