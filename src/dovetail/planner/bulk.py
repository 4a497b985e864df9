"""Bulk: what happens to many machines of a board at once, in a few array operations."""

from __future__ import annotations

from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.columns import Ints
from dovetail.planner.stairs import Stairs

#: For fewer machines than this it is quicker one by one.
_SEVERAL = 3


def buy(board: Board, ask: Ask, column: int, machines: int, count: int) -> None:
    """Open machines on a column of the menu, with so many pods of the ask on each of them."""
    if machines < _SEVERAL or board.gone or ask.shared:
        for _ in range(machines):
            board.put(ask, board.open(column), count)
        return
    first = board.size
    board.open_alike(column, machines)
    fresh = slice(first, board.size)
    board.free[:, fresh] -= count * ask.request[:, None]
    for cell in ask.ties.host_members:
        board.host_counts[cell.slot, fresh] = count
    for cell in ask.ties.promised_hosts:
        board.host_owners[cell.slot, fresh] = count
    _count(board, ask, first, machines * count)
    board.contents[fresh] = [{ask.number: count}] * machines


def put_all(board: Board, ask: Ask, bins: Ints, counts: Ints) -> None:
    """Put pods of the ask on machines to buy that lie together; their contents are the caller's to note."""
    board.free[:, bins] -= ask.request[:, None] * counts
    for cell in ask.ties.host_members:
        board.host_counts[cell.slot, bins] += counts
    for cell in ask.ties.promised_hosts:
        board.host_owners[cell.slot, bins] += counts
    _count(board, ask, int(bins[0]), int(counts.sum()))


def move_all(board: Board, machines: Ints, stairs: Stairs) -> None:
    """Let machines to buy stand on the cheapest step of their stairs that holds them, where nothing is limited."""
    capacity, standing = board.menu.capacity, board.column[machines]
    used = capacity[:, standing] - board.free[:, machines]
    best = stairs.firsts(used)
    moving = (best >= 0) & (best != standing)
    machines, best, standing = machines[moving], best[moving], standing[moving]
    board.free[:, machines] += capacity[:, best] - capacity[:, standing]
    if board.choosy:
        for at, before, column in zip(machines.tolist(), standing.tolist(), best.tolist(), strict=True):
            board.recount(at, before, column)
    board.column[machines] = best
    for lying, where in zip(board.domains, board.menu.domains, strict=True):
        lying[machines] = where[best]
    board.stamp = object()


def used_by_all(board: Board) -> list[list[int]]:
    """What the pods on each of the machines to buy take of it."""
    bought = slice(board.existing, board.size)
    used: list[list[int]] = (board.menu.capacity[:, board.column[bought]] - board.free[:, bought]).T.tolist()
    return used


def _count(board: Board, ask: Ask, at: int, total: int) -> None:
    """Count pods where a machine lies."""
    for cell in ask.ties.domain_members:
        domain = board.domain(cell, at)
        if domain >= 0 and board.counted(cell, at):
            board.counts[cell.slot][domain] += total
    for cell in ask.ties.promised_domains:
        domain = board.domain(cell, at)
        if domain >= 0:
            board.owners[cell.slot][domain] += total
