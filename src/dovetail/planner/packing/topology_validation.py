"""Soundness: do the promises of a board hold, in the order pods were put or in some other?

The packer keeps every rule as it goes, but pods that are taken off again may lower a minimum that others relied on.
"""

from __future__ import annotations

from dovetail.planner.packing.state import Board
from dovetail.planner.packing.topology_rules import minimum
from dovetail.planner.problem.topology_counters import Cell
from dovetail.planner.problem.topology_groups import AFFINITY, SPREAD


def sound(board: Board) -> bool:
    """Whether every spread over domains still holds after pods were taken and put: a minimum may have fallen."""
    for cell in board.problem.cells.values():
        if cell.host or cell.kind != SPREAD:
            continue
        if any(board.owners[cell.slot]) and not _level(cell, board.owners[cell.slot], board.counts[cell.slot]):
            return False
    return True


def _level(cell: Cell, owners: list[int], counts: list[int]) -> bool:
    """Whether the domains with owners rise above the lowest by no more than a spread allows."""
    top = minimum(cell, counts) + cell.skew
    return all(not promised or count <= top for promised, count in zip(owners, counts, strict=True))


def hosts_sound(board: Board) -> bool:
    """Whether every spread over machines holds whatever the order in which pods arrive."""
    size = board.size
    for cell in board.problem.cells.values():
        if cell.host and cell.kind == SPREAD:
            promised = board.host_owners[cell.slot, :size] > 0
            if bool((board.host_counts[cell.slot, :size][promised] > cell.skew).any()):
                return False
    return True


def bereaved(board: Board, machines: int) -> bool:
    """Whether any pod on the first so many machines has lost the company it needs."""
    if not any(cell.kind == AFFINITY for cell in board.problem.cells.values()):
        return False
    return any(widowed(board, at) for at in range(machines) if board.contents[at])


def widowed(board: Board, at: int) -> bool:
    """Whether a pod on a machine has lost the company it needs."""
    for number in board.contents[at]:
        ask = board.asks[number]
        for cell in ask.ties.domain_owned:
            if cell.kind == AFFINITY:
                domain = board.domains[board.axis_at[cell.group.key]][at]
                if domain >= 0 and board.counts[cell.slot][domain] == 0:
                    return True
        for cell in ask.ties.host_owned:
            if cell.kind == AFFINITY and board.host_counts[cell.slot, at] == 0:
                return True
    return False
