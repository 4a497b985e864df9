"""Why the cheaper offerings lost: for each machine to buy, what speaks against those that cost less."""

from __future__ import annotations

from functools import lru_cache

from dovetail.model.labels import ZONE
from dovetail.model.quantity import format_resources
from dovetail.planner.board import Board
from dovetail.planner.columns import Column, Columns
from dovetail.planner.company import company
from dovetail.planner.demand import ATTACH
from dovetail.planner.plan import Lost
from dovetail.planner.ports import PORT

_MOST = 10


def cheaper(board: Board, at: int, chosen: Column, used: list[int]) -> tuple[Lost, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason."""
    columns = board.problem.columns
    below = columns.recall(("below", chosen.index), lambda: _below(columns, chosen))
    if not below:
        return ()
    accepted = company(board, at).mask
    return tuple([
        Lost(choice=column.choice, because=_because(board, at, column, chosen, accepted, used)) for column in below
    ])


def _below(columns: Columns, chosen: Column) -> list[Column]:
    """A column of each of the types next below in price."""
    found: dict[str, Column] = {}
    for column in reversed(columns.rows[: chosen.index]):
        if column.type.name != chosen.type.name and column.choice.price != chosen.choice.price:
            found.setdefault(column.type.name, column)
        if len(found) == _MOST:
            break
    return list(found.values())


def _because(board: Board, at: int, column: Column, chosen: Column, accepted: int, used: list[int]) -> str:
    problem, columns = board.problem, board.problem.columns
    if not columns.available >> column.index & 1:
        return "not available now"
    if not accepted >> column.index & 1:
        asks = (board.asks[number] for number in board.contents[at])
        unwilling = next(ask for ask in asks if not ask.mask >> column.index & 1)
        return f"{unwilling.cls.pods[0]} may not run on it"
    for name, amount in zip(problem.dims, used, strict=True):
        room = max(0, int(columns.amounts(name)[column.index])) if amount else 0
        if amount <= room:
            continue
        if name.startswith((PORT, ATTACH)):
            return "too few volumes or ports"
        return f"too small: {name} {_shown(name, amount)} > {_shown(name, room)}"
    if column.pool != chosen.pool:
        return f"NodePool {problem.pools[column.pool].name} comes later"
    if column.offering.zone != chosen.offering.zone and ZONE in board.axis_at:
        return f"the pods belong in {chosen.offering.zone}"
    return "limits, reservations or minimum flexibility forbid it"


@lru_cache(maxsize=4096)
def _shown(name: str, amount: int) -> str:
    return format_resources({name: amount})[name]
