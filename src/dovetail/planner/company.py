"""Company: the pods that share a machine, as far as the machine's own choice goes.

Pods of one stance ask the same of a machine, however many and however large they are. So a machine is known by the few
stances on it, and what they leave of the columns is worked out once for all machines that have the same.
"""

from __future__ import annotations

from functools import reduce
from operator import and_, attrgetter

from dovetail.planner.asks import Ask, Stance
from dovetail.planner.board import Board
from dovetail.planner.columns import Bools
from dovetail.planner.menu import Menu
from dovetail.planner.stairs import Stairs

_stance = attrgetter("stance")


class Company:
    """What pods of some stances accept together: columns of the menu and of all, and the axes that pin a machine."""

    __slots__ = ("_accepted", "_stairs", "axes", "keys", "mask")

    def __init__(self, stances: frozenset[Stance], board: Board) -> None:
        self._accepted = {id(each.columns): each.columns for each in stances}
        self._stairs: dict[tuple[int, ...], Stairs] = {}
        self.mask = reduce(and_, [each.mask for each in stances], -1)
        self.axes = sorted({board.axis_at[key] for each in stances for key in each.keys})
        self.keys = [board.problem.axes[axis].key for axis in self.axes]

    def alike(self, menu: Menu, kind: int, places: list[int]) -> Bools:
        """The columns of a kind, in some domain of every axis that matters, that differ in size and price alone."""
        ok: Bools = menu.kinds == kind
        for columns in self._accepted.values():
            ok &= columns
        for axis, place in zip(self.axes, places, strict=True):
            ok &= menu.domains[axis] == place
        return ok

    def stairs(self, menu: Menu, kind: int, places: list[int]) -> Stairs:
        """The same in the order of price; a menu outlives a plan, and so do they."""
        known = self._stairs.get((kind, *places))
        if known is None:
            key = (kind, frozenset(self._accepted), *zip(self.axes, places, strict=True))
            known = menu.recall(key, self._accepted, lambda: Stairs(menu, self.alike(menu, kind, places)))
            self._stairs[kind, *places] = known
        return known


def company(board: Board, at: int, ask: Ask | None = None) -> Company:
    """The company on a machine (and a pod of one more ask)."""
    held = map(_stance, map(board.asks.__getitem__, board.contents[at]))
    key: frozenset[Stance] = frozenset(held) if ask is None else frozenset((*held, ask.stance))
    known: dict[frozenset[Stance], Company] = board.problem.companies
    found = known.get(key)
    if found is None:
        found = known[key] = Company(key, board)
    return found
