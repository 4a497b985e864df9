"""Ways: what pods with the same ties look at on one topology key, worked out once for all of them."""

from __future__ import annotations

from dovetail.planner.asks import Ties
from dovetail.planner.cells import Cell
from dovetail.planner.groups import ANTI, SPREAD


class Way:
    """The spread that pods fill up on an axis, if there is one, whether it is their own, and what else is asked."""

    __slots__ = ("axis", "balance", "bound", "own", "settling", "simple")

    def __init__(self, ties: Ties, axis: int, level: bool) -> None:
        self.axis = axis
        self.settling = [cell for cell in ties.settling if cell.place == axis]
        self.balance, self.own = _balance(ties, axis, level)
        here = {cell for cell in (*ties.domain_owned, *ties.domain_members) if cell.place == axis}
        self.bound = not here <= {self.balance}
        """Whether any group beside that spread has a say."""
        open_ended = self.balance is not None and self.balance.among and self.balance.open_ended
        self.simple = self.balance if open_ended and not self.bound else None
        """That spread, if nothing but it says where the next pod goes: where there are fewest."""


def _balance(ties: Ties, axis: int, level: bool) -> tuple[Cell | None, bool]:
    """The first spread of their own; or, where pods are to be levelled, the widest that counts them."""
    for cell in ties.domain_owned:
        if cell.group.kind == SPREAD and cell.place == axis and cell in ties.own:
            return cell, True
    others = [each for each in ties.domain_members if each.group.kind != ANTI and each not in ties.domain_owned]
    counting = [each for each in others if each.place == axis]
    if counting and level:
        return max(counting, key=lambda each: (len(each.among), -each.group.max_skew)), False
    return None, False
