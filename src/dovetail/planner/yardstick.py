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


class Yardstick(msgspec.Struct, frozen=True):
    """Pods left out by class, wishes not kept, zones of the machines bought, and their price."""

    left: Mapping[int, int]
    unkept: int
    zones: int
    price: float

    def missing(self, left: Mapping[int, int]) -> int:
        """How many go without that the reference places."""
        return sum(max(0, count - self.left.get(index, 0)) for index, count in left.items())

    def same(self, left: Mapping[int, int]) -> bool:
        """Whether the same pods have a place."""
        return {index: count for index, count in left.items() if count} == {
            index: count for index, count in self.left.items() if count
        }

    def dearer(self, left: Mapping[int, int], cost: float) -> bool:
        """Whether a packing costs more for the same pods."""
        return self.same(left) and cost > self.price * (1 + _SAME) + _SAME
