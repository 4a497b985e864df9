"""Sizing: the columns on which a machine could stand with what is on it, and the cheapest of them.

Machines whose pods accept the same columns in the same domains climb the same stairs; they are built once.
"""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.columns import Bools, Ints
from dovetail.planner.stairs import Stairs


def shrink(board: Board, machines: Iterable[int] | None = None) -> None:
    """Let machines to buy (all, or some) stand on the cheapest column that holds them."""
    problem = board.problem
    limited = bool(problem.binding or problem.reservations)
    for at in board.bought() if machines is None else machines:
        if limited or problem.diversity is not None:
            held = holding(board, at)
            ok = board.affordable(held, at) if limited else held
            best = int(ok.argmax()) if ok.any() else None
        else:
            problem.work += 1
            best = _stairs(board, at).first(board.used(at))
        if best is not None and best != board.column[at]:
            board.move(at, best)


def holding(board: Board, at: int, more: Ints | None = None, ask: Ask | None = None) -> Bools:
    """The columns on which a machine could stand with what is on it (and `more` beside, of an ask)."""
    problem = board.problem
    problem.work += 1
    ok = _alike(board, at, *_accepted(board, at, ask))
    for dim, amount in enumerate(board.used(at)):
        ok &= board.menu.capacity[dim] >= (amount if more is None else amount + more[dim])
    if problem.diversity is not None:
        held = [board.asks[number] for number in board.contents[at]]
        ok = problem.diversity.filtered(ok, [*held, ask] if ask is not None else held)
    return ok


def _accepted(board: Board, at: int, ask: Ask | None = None) -> tuple[dict[int, Bools], set[int]]:
    """The columns that pods on a machine (and one more) accept, each once, and the axes that pin it."""
    accepted: dict[int, Bools] = {} if ask is None else {id(ask.columns): ask.columns}
    keys = set() if ask is None else set(ask.keys)
    for number in board.contents[at]:
        one = board.asks[number]
        accepted[id(one.columns)] = one.columns
        keys.update(one.keys)
    return accepted, {board.axis_at[key] for key in keys}


def _alike(board: Board, at: int, accepted: dict[int, Bools], axes: Iterable[int]) -> Bools:
    """The columns that differ from a machine's in nothing that its pods notice but size."""
    menu = board.menu
    ok: Bools = menu.kinds == menu.kinds[board.column[at]]
    for columns in accepted.values():
        ok &= columns
    for axis in axes:
        ok &= menu.domains[axis] == board.lying(axis, at)
    return ok


def _stairs(board: Board, at: int) -> Stairs:
    accepted, axes = _accepted(board, at)
    places = tuple([(axis, board.lying(axis, at)) for axis in sorted(axes)])
    key = (int(board.menu.kinds[board.column[at]]), frozenset(accepted), places)
    return board.menu.recall(key, accepted, lambda: Stairs(board.menu, _alike(board, at, accepted, axes)))
