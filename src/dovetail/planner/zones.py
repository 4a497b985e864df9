"""Zones of the machines to buy: how many they reach, and more of them where it costs nothing.

One zone's failure should take as little as possible; at the same price more zones are better than fewer.
"""

from __future__ import annotations

import numpy as np

from dovetail.model.labels import ZONE
from dovetail.planner.board import Board
from dovetail.planner.columns import Ints
from dovetail.planner.soundness import sound, widowed


def reach(board: Board) -> int:
    """How many zones the machines to buy may lie in; one that no topology keeps to a zone may lie in any."""
    axis, bought = board.axis_at.get(ZONE), board.bought()
    if axis is None:
        return len(bought)
    lying: Ints = board.domains[axis]
    pinned = [at for at in bought if any(ZONE in board.asks[number].keys for number in board.contents[at])]
    return len(bought) - len(pinned) + len({int(lying[at]) for at in pinned})


def widened(board: Board) -> Board:
    """The board with machines moved to unused zones of the same price, as far as every rule allows."""
    axis = board.axis_at.get(ZONE)
    if axis is None:
        return board
    for domain in range(len(board.problem.axes[axis].values)):
        used = [int(board.domains[axis][at]) for at in board.bought()]
        if domain in used:
            continue
        crowded = [at for at in board.bought() if used.count(int(board.domains[axis][at])) > 1]
        for at in crowded:
            moved = _moved(board, at, axis, domain)
            if moved is not None:
                board = moved
                break
    return board


def _moved(board: Board, at: int, axis: int, domain: int) -> Board | None:
    menu, column = board.menu, int(board.column[at])
    same = (menu.prices == menu.prices[column]) & (menu.domains[axis] == domain) & (menu.kinds == menu.kinds[column])
    same &= (menu.capacity >= board.used(at)[:, None]).all(axis=0)
    for number in board.contents[at]:
        same &= board.asks[number].columns
    if not same.any():
        return None
    twin = board.clone()
    held = twin.clear(at)
    fresh = twin.open(int(np.flatnonzero(same)[0]))
    for number, count in held.items():
        ask = twin.asks[number]
        for other in range(len(twin.domains)):
            where = int(twin.domains[other][fresh])
            if where >= 0 and twin.allowance(ask, other)[where] < count:
                return None
        twin.put(ask, fresh, count)
    lonely = any(widowed(twin, each) for each in twin.bought())
    return twin if sound(twin) and not lonely else None

