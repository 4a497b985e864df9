"""The yardstick: what the reference makes of a problem, and how far a packing falls short of it.

Whoever compares two autoscalers looks at each of these: is a pod left out that the other one places, are fewer wishes
kept, is it dearer, are fewer zones used. So no packing may be worse than the reference in any of them; what it does
better decides only after that. A wish that the reference gives up is kept as long as that costs no more than the
reference does. Wishes of pods that it leaves out are nobody's loss: a place is more than it gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from dovetail.planner.packing.violated_preferences import ViolatedPreference, total
from dovetail.planner.problem.compile import Problem

#: Parts of the price below which two packings cost the same.
_SAME = 1e-9

#: The share of the price that is paid for a wish; and for one that the yardstick keeps and a packing does not.
_WORTH, _DUE = 0.004, 0.25
#: What a dollar counts that is paid beyond the yardstick's price.
_BEYOND = 50.0


class BaselineRun(msgspec.Struct, frozen=True):
    """One way that chance has it: pods left out by class, the price of the others, wishes not kept, and zones used."""

    left: Mapping[int, int]
    price: float
    violated_count: int
    zones: int = 1


class Baseline(msgspec.Struct, frozen=True):
    """What the reference comes to: all its ways, and in how many of them a pod is left out, by name."""

    runs: tuple[BaselineRun, ...]
    names: Mapping[str, int] = {}

    @property
    def zones(self) -> int:
        """The most zones of any way."""
        return max(run.zones for run in self.runs)

    def excess(self, violated: Sequence[ViolatedPreference], left: Mapping[int, int]) -> int:
        """How many wishes more are not kept than in any way, of as many pods of each class as it places."""
        return max(total(violated) - _forgiven(violated, run, left) - run.violated_count for run in self.runs)

    def missing(self, left: Mapping[int, int]) -> int:
        """How many go without that the reference places, over all its ways."""
        return sum(max(0, count - run.left.get(index, 0)) for run in self.runs for index, count in left.items())

    def short(self, left: Mapping[int, int]) -> int:
        """In how many of its ways the reference places somebody who goes without: chance takes one of them."""
        return sum(any(count > run.left.get(index, 0) for index, count in left.items()) for run in self.runs)

    def price(self, left: Mapping[int, int]) -> float | None:
        """What the reference costs with the same pods left out, if it has them so, where it keeps most wishes.

        Of several such ways the cheapest counts; where most reach all zones, the cheapest of those.
        """
        same = [run for run in self.runs if run.left == left]
        best = [run for run in same if run.violated_count == min(each.violated_count for each in same)]
        wide = [run for run in best if run.zones == self.zones]
        return min((run.price for run in (wide if 2 * len(wide) > len(same) else best)), default=None)

    def fewer(self, left: Mapping[int, int]) -> float:
        """The least that the reference pays in a way that places no pod more; 0 if it has none."""
        runs = [run for run in self.runs if all(count <= run.left.get(index, 0) for index, count in left.items())]
        return min((run.price for run in runs), default=0.0)

    def beyond(self, left: Mapping[int, int], cost: float) -> float:
        """By which part of its price a packing costs more than the reference does for the same pods."""
        price = self.price(left)
        if price is None or cost <= price * (1 + _SAME) + _SAME:
            return 0.0
        return cost / max(price, _SAME) - 1


def _forgiven(violated: Sequence[ViolatedPreference], run: BaselineRun, left: Mapping[int, int]) -> int:
    """The wishes of pods beyond those that a way places: whoever keeps fewest counts as one of them."""
    beyond = Counter({index: count - left.get(index, 0) for index, count in run.left.items()})
    found = 0
    for index, failing, count in sorted(violated, key=lambda violation: -violation[1]) if +beyond else ():
        these = min(count, max(0, beyond[index]))
        beyond[index] -= these
        found += failing * these
    return found


def weighed(problem: Problem, price: float, violated: Sequence[ViolatedPreference], left: Mapping[int, int]) -> float:
    """A price with what wishes are worth that are not kept, and no wish is worth more than the yardstick costs."""
    baseline: Baseline | None = problem.baseline
    missed = total(violated)
    if baseline is None:
        return price * (1 + _WORTH * missed)
    most = baseline.price(left)
    beyond = max(0.0, price - most) if most is not None else 0.0
    return price * (1 + _WORTH * missed + _DUE * max(0, baseline.excess(violated, left))) + _BEYOND * beyond
