"""Why the cheaper offerings lost: for each machine to buy, what speaks against those that cost less."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from dovetail.planner.explain.filters import of_kind, shown
from dovetail.planner.offerings.catalog import Column, Columns
from dovetail.planner.packing.resize import Company
from dovetail.planner.packing.state import Board
from dovetail.planner.plan import Lost
from dovetail.planner.problem.request import Ask
from dovetail.planner.problem.resources import PORT
from dovetail.planner.problem.shared_volumes import ATTACH

_MOST = 10


class _Rival(NamedTuple):
    """A column that costs less, what it has of every dimension, and its bit in masks of columns that are to be had."""

    column: Column
    rooms: list[int]
    bit: int


def cheaper(board: Board, at: int, chosen: Column, used: list[int], these: Company) -> tuple[Lost, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason.

    `these` are the pods on the machine, as far as its choice goes.
    """
    columns, dims = board.problem.columns, board.problem.dims
    rivals = columns.recall(("rivals", chosen.index, *dims), lambda: _rivals(columns, chosen, dims))
    return tuple(
        [Lost(choice=each.column.choice, because=_because(board, at, each, chosen, these, used)) for each in rivals]
    )


def _rivals(columns: Columns, chosen: Column, dims: Sequence[str]) -> list[_Rival]:
    """A column of each of the types next below in price."""
    found: dict[str, Column] = {}
    for column in reversed(columns.rows[: chosen.index]):
        if column.type.name != chosen.type.name and column.choice.price != chosen.choice.price:
            found.setdefault(column.type.name, column)
        if len(found) == _MOST:
            break
    return [
        _Rival(
            each, [max(0, int(columns.amounts(name)[each.index])) for name in dims], 1 << each.index & columns.available
        )
        for each in found.values()
    ]


def _because(board: Board, at: int, rival: _Rival, chosen: Column, these: Company, used: list[int]) -> str:
    problem, column = board.problem, rival.column
    if not rival.bit:
        return "not available now"
    if not these.mask & rival.bit:
        return _refused(board, at, column)
    for name, amount, room in zip(problem.dims, used, rival.rooms, strict=True):
        if amount > room:
            return "too few volumes or ports" if name.startswith((PORT, ATTACH)) else _too_small(name, amount, room)
    for key in these.keys:
        where = problem.columns.label(chosen, key)
        if problem.columns.label(column, key) != where:
            return f"its pods belong where {key} is {where}"
    return _forbidden(board, column, chosen)


def _forbidden(board: Board, column: Column, chosen: Column) -> str:
    """What pools say about a column that the pods would take."""
    pool, own = board.problem.pools[column.pool], board.problem.pools[chosen.pool]
    if pool.weight < own.weight:
        return f"NodePool {pool.name} has less weight"
    reservation = column.offering.reservation_id
    if reservation is not None:
        return f"reservation {reservation} is used up, or keeps its machines to itself"
    back = chosen.type.capacity if pool is own else {}
    for name, left in board.left[column.pool].items():
        if name != "nodes" and column.type.capacity.get(name, 0) > left + back.get(name, 0):
            return f"the {name} limit of NodePool {pool.name}"
    if pool is not own and board.left[column.pool].get("nodes", 1) < 1:
        return f"the nodes limit of NodePool {pool.name}"
    if column.pool in board.problem.min_values:
        return f"minValues of NodePool {pool.name}"
    return "a wish of its pods, or labels that it would change"


def _refused(board: Board, at: int, column: Column) -> str:
    """Which of the pods on a machine asks what of the machine that a column has not, or would rather have it."""
    asks = (board.asks[number] for number in board.contents[at])
    unwilling = next(ask for ask in asks if not ask.mask >> column.index & 1)
    return f"{unwilling.cls.pods[0]} {_verb(board, unwilling, column)}"


def _verb(board: Board, ask: Ask, column: Column) -> str:
    problem = board.problem
    for question in of_kind(problem, ask, column.pool):
        if not question.mask >> column.index & 1:
            if question.code == "UNTOLERATED_TAINT":
                return f"does not tolerate {question.words}"
            last = problem.ask(ask.cls, len(ask.cls.levels) - 1)
            return f"{'prefers' if last.mask >> column.index & 1 else 'asks for'} {question.words}"
    return "may not run on it"


@lru_cache(maxsize=4096)
def _too_small(name: str, amount: int, room: int) -> str:
    return f"too small: {name} {shown(name, amount)} > {shown(name, room)}"
