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
    """What the reference comes to: pods left out by class with the price of the others, in each way that chance has it.

    Of all ways together: the fewest wishes not kept and the most zones; and of one, who is left out by name.
    """

    prices: tuple[tuple[Mapping[int, int], float], ...]
    unkept: int
    zones: int
    names: frozenset[str] = frozenset()

    def missing(self, left: Mapping[int, int]) -> int:
        """How many go without that the reference places, over all its ways."""
        return sum(max(0, count - theirs.get(index, 0)) for theirs, _ in self.prices for index, count in left.items())

    def price(self, left: Mapping[int, int]) -> float | None:
        """What the reference costs with the same pods left out, if it has them so."""
        return min((price for theirs, price in self.prices if theirs == left), default=None)

    def dearer(self, left: Mapping[int, int], cost: float) -> bool:
        """Whether a packing costs more for the same pods."""
        price = self.price(left)
        return price is not None and cost > price * (1 + _SAME) + _SAME
