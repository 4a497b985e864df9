"""Growth: which machine to buy should rather be larger, so that it takes one more pod.

While a packing grows, machines only fill up and limits only run out. So one that no larger column would help stays so,
and what its columns are with one more pod is found anew only when something was put on it. Where a limit is given back
after all, or the board is another one, all of it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.planner.asks import Ask, Stance
from dovetail.planner.columns import Bools, Ints
from dovetail.planner.sizing import cheapest

if TYPE_CHECKING:
    from dovetail.planner.packer import Packer

#: So many machines are looked at for one pod.
_MOST = 64
_Size = tuple[Stance, int]


class Growth:
    """Answers for one packer about the board it has."""

    def __init__(self) -> None:
        self._never: dict[_Size, int] = {}
        self._held: dict[tuple[int, _Size], tuple[object, int, int | None]] = {}

    def forget(self) -> None:
        """Something other than putting pods, opening machines and enlarging them has happened."""
        self._never.clear()
        self._held.clear()

    def best(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> tuple[int, int] | None:
        """The machine that takes one more pod of the ask for the least extra price, and the column it goes to."""
        board, menu = packer.board, packer.problem.menu
        watched = bool(packer.problem.binding or packer.problem.reservations)
        best: tuple[int, int] | None = None
        least = float("inf")
        open_to: dict[int, Bools] = {}
        for at in self._admitted(packer, ask, axis, domains)[:_MOST].tolist():
            column = self._cheapest(packer, ask, at)
            before = board.standing(at)
            if watched and column is not None:
                if before not in open_to:
                    open_to[before] = board.open_to(at)
                if not open_to[before][column]:
                    column = cheapest(board, at, ask, open_to[before])
            if column is None and ask.shared:  # until somebody else has brought the volumes
                continue
            if column is None:
                self._never[ask.stance, id(ask.steps)] |= 1 << at
                continue
            price, extra = menu.prices[column], float(menu.prices[column] - menu.prices[before])
            if extra < least and price <= max(packer.strategy.ceiling, menu.prices[before]):
                best, least = (at, column), extra
        return best

    def _admitted(self, packer: Packer, ask: Ask, axis: int | None, domains: Bools | None) -> Ints:
        """Machines to buy in some domains that hostname rules admit, whatever their room, and that could still grow."""
        board = packer.board
        never = self._never.setdefault((ask.stance, id(ask.steps)), 0)
        left = packer.standing.lying(packer, ask, axis, domains) & ~never
        left = left >> board.existing << board.existing
        if not left:
            return np.zeros(0, dtype=np.int64)
        steps, shared, ask.steps, ask.shared = ask.steps, ask.shared, [], 0
        bins, _ = board.shares(ask, np.array(_places(left), dtype=np.int64), 2, packer.lenient)
        ask.steps, ask.shared = steps, shared
        return bins

    def _cheapest(self, packer: Packer, ask: Ask, at: int) -> int | None:
        """The cheapest column for a machine with one more pod of the ask on it, whatever limits say, or None."""
        packer.problem.work += 1
        board, key = packer.board, (at, (ask.stance, id(ask.steps)))
        contents, column = board.contents[at], board.standing(at)
        known = self._held.get(key)
        if known is None or known[0] is not contents or known[1] != column:
            known = self._held[key] = (contents, column, cheapest(board, at, ask))
        return known[2]


def _places(bits: int) -> list[int]:
    """The numbers of the bits that are set."""
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
