"""Ways: what pods with the same ties look at on one topology key, worked out once for all of them."""

from __future__ import annotations

from dovetail.planner.asks import Ties
from dovetail.planner.cells import Cell
from dovetail.planner.groups import ANTI, SPREAD
from dovetail.planner.strategy import Strategy


class Way:
    """The spread that pods fill up on an axis, if there is one, whether it is their own, and what else is asked."""

    __slots__ = ("axis", "balance", "bound", "own", "settling", "simple")

    def __init__(self, ties: Ties, axis: int, strategy: Strategy) -> None:
        owned, counting, self.settling = ties.domain_owned, ties.domain_members, ties.settling
        if len(ties.axes) > 1:
            owned, counting, self.settling = (
                [cell for cell in cells if cell.place == axis] for cells in (owned, counting, self.settling)
            )
        counting = [cell for cell in counting if cell not in owned]
        self.axis = axis
        self.balance = next((cell for cell in owned if cell.kind == SPREAD and cell in ties.own), None)
        self.own = self.balance is not None
        if not self.own and strategy.level:
            self.balance = _widest(counting)
        self.bound = len(owned) + len(counting) > (self.balance is not None)
        """Whether any group beside that spread has a say."""
        open_ended = self.balance is not None and self.balance.among and self.balance.open_ended
        plain = not (strategy.settle or strategy.slack or strategy.turn)
        self.simple = self.balance if plain and open_ended and not self.bound else None
        """That spread, if nothing but it says where the next pod goes: where there are fewest."""


def _widest(counting: list[Cell]) -> Cell | None:
    """Where pods are to be levelled and have no spread of their own: the widest that counts them."""
    widest: Cell | None = None
    for cell in counting:
        if cell.kind != ANTI and (widest is None or _width(cell) > _width(widest)):
            widest = cell
    return widest


def _width(cell: Cell) -> tuple[int, int]:
    return (len(cell.among), -cell.skew)
