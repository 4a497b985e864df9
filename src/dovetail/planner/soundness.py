"""Soundness: do the spreads of a board hold, in the order pods were put or in some other?

The packer keeps every rule as it goes, but pods that are taken off again may lower a minimum that others relied on.
"""

from __future__ import annotations

from dovetail.planner.allowance import minimum
from dovetail.planner.board import Board
from dovetail.planner.cells import Cell
from dovetail.planner.columns import Bools, Ints
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.problem import Ask


def sound(board: Board) -> bool:
    """Whether every spread over domains still holds after pods were taken and put: a minimum may have fallen."""
    for cell in board.problem.cells.values():
        if cell.host or cell.group.kind != SPREAD:
            continue
        promised = board.owners[cell.slot] > 0
        if promised.any() and not _level(cell, promised, board.counts[cell.slot]):
            return False
    return True


def _level(cell: Cell, where: Bools, counts: Ints) -> bool:
    """Whether some domains rise above the lowest by no more than a spread allows."""
    return bool((counts[where] - minimum(cell, counts.tolist()) <= cell.group.max_skew).all())


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
    counts = board.host_counts[cell.slot] if cell.host else board.counts[cell.slot]
    if domain < 0:
        return cell.group.kind == ANTI
    here = int(counts[domain])
    if cell.group.kind == SPREAD:
        least = 0 if cell.host else minimum(cell, counts.tolist())
        return here - least <= cell.group.max_skew
    others = here - (cell.group in ask.cls.members)
    return others <= 0 if cell.group.kind == ANTI else others > 0
