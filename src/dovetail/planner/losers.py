"""Why the cheaper offerings lost: for each machine to buy, what speaks against those that cost less."""

from __future__ import annotations

from dovetail.model.labels import ZONE
from dovetail.model.quantity import format_resources
from dovetail.planner.board import Board
from dovetail.planner.columns import Column
from dovetail.planner.plan import Lost
from dovetail.planner.ports import PORT
from dovetail.planner.problem import ATTACH, Problem

_MOST = 10


def cheaper(problem: Problem, board: Board, at: int, chosen: Column) -> tuple[Lost, ...]:
    """Up to ten types that cost less than the chosen one, nearest in price first, each with its reason."""
    asks = [board.asks[number] for number in board.contents[at]]
    amounts = {
        name: sum(int(ask.request[dim]) * board.contents[at][ask.number] for ask in asks)
        for dim, name in enumerate(problem.dims)
    }
    found: list[Lost] = []
    seen: set[str] = {chosen.type.name}
    for index in range(chosen.index - 1, -1, -1):
        column = problem.columns.rows[index]
        if column.type.name in seen or column.choice.price == chosen.choice.price:
            continue
        seen.add(column.type.name)
        found.append(Lost(choice=column.choice, because=_because(problem, board, at, column, chosen, amounts)))
        if len(found) == _MOST:
            break
    return tuple(found)


def _because(
    problem: Problem, board: Board, at: int, column: Column, chosen: Column, amounts: dict[str, int]
) -> str:
    columns = problem.columns
    if not columns.available >> column.index & 1:
        return "not available now"
    for number in board.contents[at]:
        if not board.asks[number].mask >> column.index & 1:
            return f"{board.asks[number].cls.pods[0]} may not run on it"
    short = {
        name: amount for name, amount in amounts.items() if amount > columns.amounts(name)[column.index]
    }
    for name, amount in short.items():
        if name.startswith((PORT, ATTACH)):
            return "too few volumes or ports"
        room = max(0, int(columns.amounts(name)[column.index]))
        shown = format_resources({name: amount}), format_resources({name: room})
        return f"too small: {name} {shown[0][name]} > {shown[1][name]}"
    if column.pool != chosen.pool:
        return f"NodePool {problem.pools[column.pool].name} comes later"
    if column.offering.zone != chosen.offering.zone and ZONE in board.axis_at:
        return f"the pods belong in {chosen.offering.zone}"
    return "limits, reservations or minimum flexibility forbid it"
