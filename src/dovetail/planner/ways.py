"""Ways: what pods with the same ties look at on one topology key, worked out once for all of them."""

from __future__ import annotations

from dovetail.planner.asks import Ties
from dovetail.planner.cells import Cell
from dovetail.planner.groups import ANTI, SPREAD


class Way:
    """The spread that pods fill up on an axis, if there is one, whether it is their own, and what else is asked."""

    __slots__ = ("axis", "balance", "bound", "own", "settling", "simple")

    def __init__(self, ties: Ties, axis: int, level: bool) -> None:
        owned = [cell for cell in ties.domain_owned if cell.place == axis]
        counting = [cell for cell in ties.domain_members if cell.place == axis and cell not in owned]
        self.axis = axis
        self.settling = [cell for cell in ties.settling if cell.place == axis]
        mine = [cell for cell in owned if cell.kind == SPREAD and cell in ties.own]
        self.own = bool(mine)
        self.balance = mine[0] if mine else _widest(counting) if level else None
        self.bound = len(owned) + len(counting) > (self.balance is not None)
        """Whether any group beside that spread has a say."""
        open_ended = self.balance is not None and self.balance.among and self.balance.open_ended
        self.simple = self.balance if open_ended and not self.bound else None
        """That spread, if nothing but it says where the next pod goes: where there are fewest."""


def _widest(counting: list[Cell]) -> Cell | None:
    """Where pods are to be levelled and have no spread of their own: the widest that counts them."""
    open_to = [cell for cell in counting if cell.kind != ANTI]
    return max(open_to, key=lambda cell: (len(cell.among), -cell.skew), default=None)
