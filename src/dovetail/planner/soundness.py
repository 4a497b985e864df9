"""Soundness: do the spreads of a board hold, in the order pods were put or in some other?

The packer keeps every rule as it goes, but pods that are taken off again may lower a minimum that others relied on.
"""

from __future__ import annotations

from dovetail.planner.allowance import minimum
from dovetail.planner.asks import Ask
from dovetail.planner.board import Board
from dovetail.planner.cells import Cell
from dovetail.planner.groups import ANTI, SPREAD


def sound(board: Board) -> bool:
    """Whether every spread over domains still holds after pods were taken and put: a minimum may have fallen."""
    for cell in board.problem.cells.values():
        if cell.host or cell.group.kind != SPREAD:
            continue
        if any(board.owners[cell.slot]) and not _level(cell, board.owners[cell.slot], board.counts[cell.slot]):
            return False
    return True


def _level(cell: Cell, owners: list[int], counts: list[int]) -> bool:
    """Whether the domains with owners rise above the lowest by no more than a spread allows."""
    top = minimum(cell, counts) + cell.group.max_skew
    return all(not promised or count <= top for promised, count in zip(owners, counts, strict=True))


def hosts_sound(board: Board) -> bool:
    """Whether every spread over machines holds whatever the order in which pods arrive."""
    size = board.size
    for cell in board.problem.cells.values():
        if cell.host and cell.group.kind == SPREAD:
            promised = board.host_owners[cell.slot, :size] > 0
            if bool((board.host_counts[cell.slot, :size][promised] > cell.group.max_skew).any()):
                return False
    return True


def broken(board: Board) -> int:
    """How many soft wishes about other pods do not hold in the end: nobody gave them up, but others came after."""
    if not board.problem.wishful:
        return 0
    return sum(
        count * sum(not _kept(board, cell, board.asks[number], at) for cell in board.asks[number].wishes)
        for at in range(board.size)
        for number, count in board.contents[at].items()
    )


def _kept(board: Board, cell: Cell, ask: Ask, at: int) -> bool:
    domain = at if cell.host else board.domain(cell, at)
    if domain < 0:
        return cell.group.kind == ANTI
    here = int(board.host_counts[cell.slot, at]) if cell.host else board.counts[cell.slot][domain]
    if cell.group.kind == SPREAD:
        least = 0 if cell.host else minimum(cell, board.counts[cell.slot])
        return here - least <= cell.group.max_skew
    others = here - (cell in ask.own)
    return others <= 0 if cell.group.kind == ANTI else others > 0
