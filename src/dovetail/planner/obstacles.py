"""Obstacles: what other pods, limits and reservations have against an offering that suits a pod by itself.

They are asked of the board as the plan leaves it, in the form of the questions that come before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from dovetail.model.pods import Pod
from dovetail.planner.allowance import allow_member, allow_owner
from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.cells import Cell
from dovetail.planner.classes import pod_key
from dovetail.planner.clauses import Term, text
from dovetail.planner.groups import AFFINITY, ANTI, SPREAD, Group
from dovetail.planner.launch_masks import capacity_at_most
from dovetail.planner.problem import UNLIMITED, Problem
from dovetail.planner.questions import Question, shown
from dovetail.planner.shape import shape_of

_CODES = {SPREAD: "SPREAD", AFFINITY: "AFFINITY", ANTI: "ANTI_AFFINITY"}
#: So many domains are told.
_TOLD = 5


def in_the_way(problem: Problem, board: Board, ask: Ask, pool: int) -> Iterator[Question]:
    """What may stand in the way of a new machine for the ask, in order."""
    for cell in ask.ties.host_owned:
        if cell.kind == AFFINITY:
            yield _beside(problem, board, ask, cell)
    for cell in ask.ties.domain_owned:
        yield _owned(problem, board, ask, cell)
    for cell in ask.ties.domain_members:
        if cell.kind != AFFINITY and cell not in ask.ties.domain_owned:
            yield _counted(problem, board, cell)
    yield from _limits(problem, board, pool)


def too_few(problem: Problem, pool: int, left: int) -> Iterator[Question]:
    """The variety that a pool asks for and that what is left of it has not."""
    for key, least in problem.min_values.get(pool, ()):
        there = sum(1 for value, mask in problem.columns.by_label(key).items() if value is not None and mask & left)
        if there < least:
            count = f"there {'is' if there == 1 else 'are'} {there}"
            yield Question("MIN_VALUES", f"minValues {least} of {key} ({count})", 0)


def at_last(problem: Problem, pool: int) -> Question:
    """What keeps a pod out where no single thing does: too little choice, or rules about pods taken together."""
    if pool in problem.min_values:
        needs = ", ".join(f"{least} of {key}" for key, least in problem.min_values[pool])
        return Question("MIN_VALUES", f"minValues {needs} on one machine", 0)
    return Question("SPREAD", "what it and other pods ask of each other", 0)


def _beside(problem: Problem, board: Board, ask: Ask, cell: Cell) -> Question:
    """Company on one machine: a new machine has none, unless the first pod of its own kind opens it."""
    there = bool((board.host_counts[cell.slot, : board.size] > 0).any())
    why = "no room beside it" if there else _missed(problem, cell)
    opens = not there and cell in ask.ties.own
    return Question("AFFINITY", f"{_words(cell.group, ask)} ({why})", problem.columns.everything if opens else 0)


def _missed(problem: Problem, cell: Cell) -> str:
    """Why company is not there."""
    waiting = any(cell.group in one.kind.members for one in problem.classes)
    return "such pods have no place either" if waiting else "no such pod"


def _owned(problem: Problem, board: Board, ask: Ask, cell: Cell) -> Question:
    assert cell.axis is not None
    words = _words(cell.group, ask)
    if not cell.axis.values and cell.kind != ANTI:
        return Question("UNKNOWN_LABEL", f"{words} (no machine has that label)", 0)
    allowed = [UNLIMITED] * (len(cell.axis.values) + 1)
    allow_owner(ask, cell, board.counts[cell.slot], allowed)
    if cell.kind == AFFINITY and not any(allowed):
        return Question("AFFINITY", f"{words} ({_missed(problem, cell)})", 0)
    return _domains(problem, cell, words, allowed)


def _counted(problem: Problem, board: Board, cell: Cell) -> Question:
    """A rule of other pods."""
    assert cell.axis is not None
    allowed = [UNLIMITED] * (len(cell.axis.values) + 1)
    allow_member(cell, board.counts[cell.slot], board.owners[cell.slot], allowed)
    rule, to = ("topology spread", "over") if cell.kind == SPREAD else ("anti-affinity", "by")
    return _domains(problem, cell, f"the {rule} of {_owner(problem, cell.group)} {to} {cell.group.key}", allowed)


def _owner(problem: Problem, group: Group) -> str:
    """The first pod whose rule it is: one that runs, or one that waits as well."""
    there = sorted((problem.machines[row] for row in problem.fears.get(group, ())), key=lambda node: node.name)
    running = sorted(pod_key(pod) for node in there[:1] for pod in node.pods if _asks(problem, pod, group))
    waiting = (name for one in problem.classes if group in one.levels[0].hard for name in one.pods)
    return next(chain(running, waiting), "another pod")


def _asks(problem: Problem, pod: Pod, group: Group) -> bool:
    rules = shape_of(pod, problem.snapshot.memory).anti
    return any((rule.key, rule.selector, rule.weight) == (group.key, group.selector, 0) for rule in rules)


def _domains(problem: Problem, cell: Cell, words: str, allowed: list[int]) -> Question:
    assert cell.axis is not None
    if all(allowed):
        return Question(_CODES[cell.kind], words, problem.columns.everything)
    free = [value for value, room in zip(cell.axis.values, allowed, strict=False) if room]
    told = f"in {', '.join(free[:_TOLD])}" + (" and others" if len(free) > _TOLD else "") if free else "nowhere"
    mask = problem.columns.mask(np.array(allowed)[cell.axis.columns] > 0)
    return Question(_CODES[cell.kind], f"{words} (room {told})", mask)


def _words(group: Group, ask: Ask) -> str:
    if group.kind == SPREAD:
        least = f", minDomains {group.min_domains}" if group.min_domains > 1 else ""
        return f"topology spread over {group.key}, maxSkew {group.max_skew}{least}"
    rule = "affinity" if group.kind == AFFINITY else "anti-affinity"
    spaces = group.namespaces or ()
    elsewhere = f" in {', '.join(sorted(spaces))}" if {*spaces} - {ask.cls.shape.namespace} else ""
    return f"pod {rule} to {_selected(group.selector)}{elsewhere} by {group.key}"


def _selected(selector: Term) -> str:
    """A selector as short as people write it."""
    told = [f"{key}={values[0]}" if operator == "In" and len(values) == 1 else text((key, operator, values))
            for key, operator, values in selector]  # fmt: skip
    return ",".join(told) or "any pod"


def _limits(problem: Problem, board: Board, pool: int) -> Iterator[Question]:
    columns = problem.columns
    full = {name for name, most in problem.reservations.items() if board.reserved.get(name, 0) >= most}
    if full:
        mask = columns.mask(each.offering.reservation_id not in full for each in columns.rows)
        yield Question("RESERVATION_FULL", "reservations with room", mask)
    for name, left in sorted(board.left[pool].items()):
        words = f"{name} limit ({shown(name, max(0, left))} left)"
        within = (columns.everything if left > 0 else 0) if name == "nodes" else capacity_at_most(columns, name, left)
        yield Question("LIMIT_REACHED", words, within)
