"""Soundness: do the spreads of a board hold, in the order pods were put or in some other?

The packer keeps every rule as it goes, but pods that are taken off again may lower a minimum that others relied on.
"""

from __future__ import annotations

from dovetail.planner.board import Board
from dovetail.planner.cells import Cell
from dovetail.planner.columns import Bools, Ints
from dovetail.planner.groups import SPREAD


def sound(board: Board) -> bool:
    """Whether every spread over domains still holds after pods were taken and put: a minimum may have fallen.

    It holds for everybody it counts, or for its owners before the others come.
    """
    for cell in board.problem.cells.values():
        if cell.host or cell.group.kind != SPREAD:
            continue
        promised = board.owners[cell.slot] > 0
        if not promised.any() or _level(cell, promised, board.counts[cell.slot]):
            continue
        if not board.problem.bystanders or not _level(cell, promised, _of_owners(board, cell)):
            return False
    return True


def _level(cell: Cell, where: Bools, counts: Ints) -> bool:
    """Whether some domains rise above the lowest by no more than a spread allows."""
    return bool((counts[where] - Board.minimum(cell, counts.tolist()) <= cell.group.max_skew).all())


def _of_owners(board: Board, cell: Cell) -> Ints:
    """What a spread counts without the pods of this plan that it does not bind."""
    found = cell.counts.copy()
    for at in range(board.size):
        for number, count in board.contents[at].items():
            ask = board.asks[number]
            if cell in ask.promised_domains and cell in ask.domain_members:
                board.tally(cell, at, found, count)
    return found


def hosts_sound(board: Board) -> bool:
    """Whether every spread over machines holds whatever the order in which pods arrive."""
    size = board.size
    for cell in board.problem.cells.values():
        if cell.host and cell.group.kind == SPREAD:
            promised = board.host_owners[cell.slot, :size] > 0
            if bool((board.host_counts[cell.slot, :size][promised] > cell.group.max_skew).any()):
                return False
    return True
