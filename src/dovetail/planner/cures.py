"""Cures: what would give a pod a place, as far as it can be told for the very pod and pool.

The vocabulary has a cure for every reason. Here are the cases in which more is known: a machine that would do, which
the pool forbids; an amount that no larger machine has; requirements that contradict each other.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.model.labels import HOSTNAME
from dovetail.model.reasons import reason
from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.clauses import NODE_NAME, text
from dovetail.planner.columns import Columns, sold
from dovetail.planner.flavours import pool_clauses
from dovetail.planner.hints import contradictory, of_values, values
from dovetail.planner.plan import Funnel, Step
from dovetail.planner.problem import Problem
from dovetail.planner.questions import Question
from dovetail.planner.shelf import Need, shelf_of
from dovetail.planner.snapshot import Pool

#: Reasons about the offering alone, and what else the pod's owner could do where the pool forbids one that would do.
_INSTEAD = {
    "NO_TYPE_FITS": "ask for less",
    "NO_TYPE_MATCHES": "ask for another",
    "VOLUME_ZONE": "move the volume",
    "VOLUME_LIMIT": "use fewer volumes",
}
_DISK = "ephemeral-storage"


def cure(columns: Columns, pool: Pool, question: Question) -> str:
    """What helps where a question turned away the last offering of a pool."""
    if question.clauses and question.clauses[0][0] in (HOSTNAME, NODE_NAME):
        return "name a machine that is there, or none"
    if len(question.clauses) > 1 and contradictory(question.clauses):
        return "leave one of them"
    if question.resource == _DISK:
        return "ask for less, or let the NodeClass give machines a larger disk"
    if question.absent:
        there = question.resource in columns.stock and any(question.resource in kind.capacity for kind in pool.types)
        return "let it buy types that have some" if there else "correct its name, or add it to types by a NodeOverlay"
    return reason(question.code).cure


def widened(problem: Problem, board: Board, ask: Ask, pool: int, funnel: Funnel) -> Funnel:
    """The funnel with the machine that would do if its pool allowed it, if there is one within the pool's limits.

    One machine is not enough for a pool that wants a choice.
    """
    if funnel.code not in _INSTEAD or funnel.barren or pool in problem.min_values:
        return funnel
    left, terms = board.left[pool], ask.level.terms
    limits = {name: amount for name, amount in left.items() if name != "nodes"}
    shelf = shelf_of(problem, pool)
    found = shelf.forbidden(Need((terms, ask.cls.storage.alternatives), ask.cls.requests, limits))
    if found is not None and left.get("nodes", 1) > 0:
        rules = " and ".join(map(text, found.clauses))
        instead = f"{_INSTEAD[funnel.code]}, or widen its {rules}"
        return replace(funnel, nearest=found.choice, nearest_lacks="", misses=1, cure=instead)
    if funnel.cure == reason("NO_TYPE_MATCHES").cure and not shelf.sells(terms):
        return replace(funnel, cure="ask for something that it sells, or use another NodePool")
    return funnel


def barren(pool: Pool) -> Funnel:
    """A pool that has nothing to offer to anybody, and what of its own is to blame; what the pod lacks comes on top."""
    words, start = _to_blame(pool), sum(len(kind.offerings) for kind in pool.types)
    return Funnel(start=start, steps=(Step(clause=words, left=0),), code="NO_TYPE_MATCHES", emptied_by=words,
                  cure="widen what the NodePool requires" if start else "see why its NodeClass offers none",
                  misses=2)  # fmt: skip


def _to_blame(pool: Pool) -> str:
    if not any(kind.offerings for kind in pool.types):
        return f"its NodeClass (it offers no types{' in any zone' if pool.types else ''})"
    clauses = pool_clauses(pool)
    for each in clauses:
        if not sold(pool, (each,)):
            there = values(pool, each[0])
            told = of_values((each,), there, there)
            return f"its own requirement {text(each)}{f' ({told})' if told else ''}"
    needed = [each for each in clauses if sold(pool, (other for other in clauses if other != each))]
    return f"its own requirements {' and '.join(map(text, needed)) or 'together'}"
