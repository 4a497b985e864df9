"""Squeeze: let one machine be smaller, or go, by moving a few of its pods into room that others have left.

Pods move within their domains, so no spread or affinity over domains notices. It is the cheapest kind of improvement:
nothing is bought, and each try looks at one machine alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.state import Board
from dovetail.planner.problem.request import Ask, Ties
from dovetail.planner.problem.topology_groups import AFFINITY

#: Smaller columns tried for one machine, and how many pods may leave it.
_MOST_COLUMNS, _MOST_PODS = 6, 12
_MOST_PASSES = 6


def squeezed(board: Board, out_of_time: Callable[[], bool]) -> Board:
    """The board with machines made smaller as long as there is one to be had; the board given is not changed."""
    problem = board.problem
    if problem.binding or problem.reservations or problem.diversity is not None:
        return board
    twin = board.clone()
    for _ in range(_MOST_PASSES):
        gained = False
        for at in sorted(twin.bought(), key=lambda each: (-_waste(twin, each), each)):
            if out_of_time():
                return twin
            gained |= _smaller(twin, at)
        if not gained:
            break
    return twin


def _waste(board: Board, at: int) -> float:
    """What of a machine's price is paid for room that is empty."""
    column = int(board.column[at])
    capacity = np.maximum(board.menu.capacity[:, column], 1)
    return float(board.menu.prices[column] * (board.free[:, at] / capacity)[: len(capacity)].min())


def _smaller(board: Board, at: int) -> bool:
    asks = [board.asks[number] for number in board.contents[at]]
    if not asks or any(_together(ask.ties) for ask in asks):
        return False
    if sum(board.contents[at].values()) <= _MOST_PODS and _moved(board, at, dict(board.contents[at])):
        board.close(at)
        return True
    used = board.used(at)
    for column in _columns(board, at, asks):
        room = board.menu.sizes[column]
        leaving = _excess(board, at, [amount - most for amount, most in zip(used, room, strict=True)])
        if leaving is not None and _moved(board, at, leaving):
            board.move(at, column)
            return True
    return False


def _together(ties: Ties) -> bool:
    """Whether pods must be on a machine with others."""
    return any(cell.kind == AFFINITY for cell in (*ties.host_owned, *ties.host_members))


def _columns(board: Board, at: int, asks: list[Ask]) -> list[int]:
    """Cheaper columns for a machine in its domains, the cheapest first, one of each price."""
    menu, column = board.menu, int(board.column[at])
    ok: Bools = (menu.kinds == menu.kinds[column]) & (menu.prices < menu.prices[column])
    for ask in asks:
        ok &= ask.columns
    for axis in {board.axis_at[key] for ask in asks for key in ask.keys}:
        ok &= menu.domains[axis] == board.domains[axis][at]
    ok &= (menu.capacity * _MOST_PODS >= np.array(board.used(at))[:, None]).all(axis=0)
    found = np.flatnonzero(ok)
    return [int(each) for each in found[-_MOST_COLUMNS:]]


def _excess(board: Board, at: int, over: list[int]) -> dict[int, int] | None:
    """A few pods without which a machine holds less by `over`: each time the one that is nearest to what is missing."""
    leaving: dict[int, int] = {}
    held = dict(board.contents[at])
    for _ in range(_MOST_PODS):
        if max(over) <= 0:
            return leaving
        best, number = max([(_help(board.asks[each], over), -each) for each in held])
        if best <= 0.0:
            return None
        leaving[-number] = leaving.get(-number, 0) + 1
        held[-number] -= 1
        if not held[-number]:
            del held[-number]
        for dim, amount in board.asks[-number].steps:
            over[dim] -= amount
        if not held:
            return None
    return leaving if max(over) <= 0 else None


def _help(ask: Ask, over: list[int]) -> float:
    """How much of what must go a pod takes with it; what it takes beyond that is hard to place elsewhere."""
    took = wasted = 0.0
    for dim, amount in ask.steps:
        need = max(0, over[dim])
        if need:
            took += min(amount, need) / need
        if amount > need:
            wasted += (amount - need) / amount
    return took - 0.2 * wasted


def _moved(board: Board, at: int, leaving: dict[int, int]) -> bool:
    """Move pods off a machine into room elsewhere, all or none."""
    done: list[tuple[Ask, int, int]] = []
    numbers = sorted(leaving, key=lambda each: -int(board.asks[each].request.max()))
    for number in numbers:
        ask, count = board.asks[number], leaving[number]
        board.put(ask, at, -count)
        done.append((ask, at, count))
        for place, fits in _places(board, ask, at, count):
            take = min(fits, count)
            board.put(ask, place, take)
            done.append((ask, place, -take))
            count -= take
            if not count:
                break
        if count:
            for one, place, amount in reversed(done):
                board.put(one, place, amount)
            return False
    return True


def _places(board: Board, ask: Ask, at: int, count: int) -> list[tuple[int, int]]:
    """Other machines with room for pods of the ask in the same domains, the fullest first."""
    bins, room = board.room(ask, count)
    ok = bins != at
    for key in ask.keys:
        lying = board.domains[board.axis_at[key]]
        ok &= lying[bins] == lying[at]
    bins, room = bins[ok], room[ok]
    left = np.zeros(len(bins))
    for dim, amount in ask.steps:
        left += board.free[dim].take(bins) / amount
    order = np.argsort(left, kind="stable")
    return list(zip(bins[order].tolist(), room[order].tolist(), strict=True))
