"""Sizing: the columns on which a machine could stand with what is on it, and the cheapest of them.

Machines with the same company in the same domains climb the same stairs; they are built once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dovetail.planner.asks import Ask
from dovetail.planner.attached import brought
from dovetail.planner.board import Board
from dovetail.planner.bulk import move_all
from dovetail.planner.columns import Bools
from dovetail.planner.company import Company, company
from dovetail.planner.stairs import Stairs

#: For fewer machines than this it is quicker one by one.
_SEVERAL = 6


def shrink(board: Board, machines: Iterable[int] | None = None) -> None:
    """Let machines to buy (all, or some) stand on the cheapest column that holds them."""
    problem = board.problem
    chosen = board.bought() if machines is None else machines
    limited = bool(problem.binding or problem.reservations)
    if not limited and problem.diversity is None:
        _shrink_freely(board, chosen)
        return
    for at in chosen:
        problem.work += 1
        best = cheapest(board, at, open_to=board.open_to(at) if limited else None)
        if best is not None and best != board.standing(at):
            board.move(at, best)


def _shrink_freely(board: Board, machines: Iterable[int]) -> None:
    """Where nothing is limited machines do not see each other, and all that climb the same stairs do it together."""
    climbing: dict[Stairs, list[int]] = {}
    for at in machines:
        board.problem.work += 1
        these = company(board, at)
        climbing.setdefault(these.stairs(board.menu, *_standing(board, at, these)), []).append(at)
    for stairs, here in climbing.items():
        if len(here) >= _SEVERAL:
            move_all(board, np.array(here, dtype=np.int64), stairs)
            continue
        for at in here:
            best = stairs.first(board.used(at))
            if best is not None and best != board.standing(at):
                board.move(at, best)


def cheapest(board: Board, at: int, ask: Ask | None = None, open_to: Bools | None = None) -> int | None:
    """The cheapest column, of those that are open, for a machine with what is on it (and one more pod, of an ask)."""
    these, load, diversity = company(board, at, ask), board.used(at), board.problem.diversity
    for dim, amount in ask.steps if ask is not None else ():
        load[dim] += amount
    for dim, amount in brought(board, ask, at) if ask is not None and ask.shared else ():
        load[dim] += amount
    columns = these.stairs(board.menu, *_standing(board, at, these)).holding(load)
    if open_to is not None:
        columns = (column for column in columns if open_to[column])
    if diversity is not None:
        held = [board.asks[number] for number in board.contents[at]]
        columns = diversity.among(columns, [*held, ask] if ask is not None else held, load)
    return next(columns, None)


def _standing(board: Board, at: int, these: Company) -> tuple[int, list[int]]:
    """What a machine stays whatever its size: its kind, and where it lies on the axes that matter to its company."""
    return board.menu.kind_at[board.standing(at)], [board.lying(axis, at) for axis in these.axes]
