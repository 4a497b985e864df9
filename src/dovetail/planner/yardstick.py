"""The yardstick: what the reference makes of a problem, and how far a packing falls short of it.

Whoever compares two autoscalers looks at each of these: is a pod left out that the other one places, are fewer wishes
kept, is it dearer, are fewer zones used. So no packing may be worse than the reference in any of them; what it does
better decides only after that. A wish that the reference gives up is kept as long as that costs no more than the
reference does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

#: Parts of the price below which two packings cost the same.
_SAME = 1e-9


class Way(msgspec.Struct, frozen=True):
    """One way that chance has it: pods left out by class, the price of the others, and the wishes not kept."""

    left: Mapping[int, int]
    price: float
    unkept: int


class Yardstick(msgspec.Struct, frozen=True):
    """What the reference comes to: all its ways, the most zones of any, and of one who is left out by name."""

    ways: tuple[Way, ...]
    zones: int
    names: frozenset[str] = frozenset()

    @property
    def unkept(self) -> int:
        """The fewest wishes that are not kept in any way."""
        return min(way.unkept for way in self.ways)

    def missing(self, left: Mapping[int, int]) -> int:
        """How many go without that the reference places, over all its ways."""
        return sum(max(0, count - way.left.get(index, 0)) for way in self.ways for index, count in left.items())

    def price(self, left: Mapping[int, int]) -> float | None:
        """What the reference costs with the same pods left out, if it has them so, where it keeps most wishes."""
        same = [(way.unkept, way.price) for way in self.ways if way.left == left]
        return min(same)[1] if same else None

    def dearer(self, left: Mapping[int, int], cost: float) -> bool:
        """Whether a packing costs more for the same pods."""
        price = self.price(left)
        return price is not None and cost > price * (1 + _SAME) + _SAME
