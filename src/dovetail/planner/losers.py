"""Why the cheaper offerings lost: for each machine to buy, what speaks against those that cost less."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dovetail.model.labels import ZONE
from dovetail.model.quantity import format_resources
from dovetail.planner.board import Board
from dovetail.planner.columns import Column, Columns
from dovetail.planner.plan import Lost
from dovetail.planner.ports import PORT
from dovetail.planner.sharing import ATTACH

_MOST = 10


class _Rival(NamedTuple):
    """A column that costs less, and what it has of every dimension."""

    column: Column
    rooms: list[int]


def cheaper(board: Board, at: int, chosen: Column, used: list[int], accepted: int) -> tuple[Lost, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason.

    `accepted` are the columns that the pods on the machine accept.
    """
    columns, dims = board.problem.columns, board.problem.dims
    rivals = columns.recall(("rivals", chosen.index, *dims), lambda: _rivals(columns, chosen, dims))
    if not rivals:
        return ()
    accepted &= columns.available
    return tuple([
        Lost(choice=each.column.choice, because=_because(board, at, each, chosen, accepted, used)) for each in rivals
    ])


def _rivals(columns: Columns, chosen: Column, dims: Sequence[str]) -> list[_Rival]:
    """A column of each of the types next below in price."""
    found: dict[str, Column] = {}
    for column in reversed(columns.rows[: chosen.index]):
        if column.type.name != chosen.type.name and column.choice.price != chosen.choice.price:
            found.setdefault(column.type.name, column)
        if len(found) == _MOST:
            break
    return [_Rival(each, [max(0, int(columns.amounts(name)[each.index])) for name in dims]) for each in found.values()]


def _because(board: Board, at: int, rival: _Rival, chosen: Column, accepted: int, used: list[int]) -> str:
    problem, column = board.problem, rival.column
    if not accepted >> column.index & 1:
        return _refused(board, at, column)
    for name, amount, room in zip(problem.dims, used, rival.rooms, strict=True):
        if amount <= room:
            continue
        if name.startswith((PORT, ATTACH)):
            return "too few volumes or ports"
        return _too_small(name, amount, room)
    if column.pool != chosen.pool:
        return f"NodePool {problem.pools[column.pool].name} comes later"
    if column.offering.zone != chosen.offering.zone and ZONE in board.axis_at:
        return f"the pods belong in {chosen.offering.zone}"
    return "limits, reservations or minimum flexibility forbid it"


def _refused(board: Board, at: int, column: Column) -> str:
    """Why a column is nothing for the pods on a machine, whatever it holds."""
    if not board.problem.columns.available >> column.index & 1:
        return "not available now"
    asks = (board.asks[number] for number in board.contents[at])
    unwilling = next(ask for ask in asks if not ask.mask >> column.index & 1)
    return f"{unwilling.cls.pods[0]} may not run on it"


@lru_cache(maxsize=4096)
def _too_small(name: str, amount: int, room: int) -> str:
    return f"too small: {name} {shown(name, amount)} > {shown(name, room)}"


@lru_cache(maxsize=4096)
def shown(name: str, amount: int) -> str:
    """An amount of a resource as people write it."""
    return format_resources({name: amount})[name]
