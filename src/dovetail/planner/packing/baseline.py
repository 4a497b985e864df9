"""The baseline: what Karpenter's scheduler makes of the same pods, over several runs where chance decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

#: Relative difference below which two packings cost the same.
_SAME_COST = 1e-9

#: Violated preferences: of which class, how many of each pod, and of how many pods.
ViolatedPreference = tuple[int, int, int]


def total(violated: Iterable[ViolatedPreference]) -> int:
    return sum([failing * count for _, failing, count in violated])


class BaselineRun(msgspec.Struct, frozen=True):
    """One way that chance has it: pods left out by class, the price of the others, preferences not kept, and zones
    used.
    """

    left: Mapping[int, int]
    price: float
    violated_count: int
    zones: int = 1


class Baseline(msgspec.Struct, frozen=True):
    """What Karpenter comes to: all its ways, and in how many of them a pod is left out, by name."""

    runs: tuple[BaselineRun, ...]
    names: Mapping[str, int] = {}

    @property
    def zones(self) -> int:
        """The most zones of any way."""
        return max(run.zones for run in self.runs)

    def excess(self, violated: Sequence[ViolatedPreference], left: Mapping[int, int]) -> int:
        """How many preferences more are not kept than in any way, of as many pods of each class as it places."""
        return max(total(violated) - _forgiven(violated, run, left) - run.violated_count for run in self.runs)

    def missing(self, left: Mapping[int, int]) -> int:
        """How many go without that Karpenter places, over all its ways."""
        return sum(max(0, count - run.left.get(index, 0)) for run in self.runs for index, count in left.items())

    def short(self, left: Mapping[int, int]) -> int:
        """In how many of its ways Karpenter places a pod who goes without: chance takes one of them."""
        return sum(any(count > run.left.get(index, 0) for index, count in left.items()) for run in self.runs)

    def price(self, left: Mapping[int, int]) -> float | None:
        """What Karpenter costs with the same pods left out, if it has them so, where it keeps most preferences.

        Of several such ways the cheapest counts; where most reach all zones, the cheapest of those.
        """
        same = [run for run in self.runs if run.left == left]
        best = [run for run in same if run.violated_count == min(run_.violated_count for run_ in same)]
        wide = [run for run in best if run.zones == self.zones]
        return min((run.price for run in (wide if 2 * len(wide) > len(same) else best)), default=None)

    def fewer(self, left: Mapping[int, int]) -> float:
        """The least that Karpenter pays in a way that places no pod more; 0 if it has none."""
        runs = [run for run in self.runs if all(count <= run.left.get(index, 0) for index, count in left.items())]
        return min((run.price for run in runs), default=0.0)

    def beyond(self, left: Mapping[int, int], cost: float) -> float:
        """By which part of its price a packing costs more than Karpenter does for the same pods."""
        price = self.price(left)
        if price is None or cost <= price * (1 + _SAME_COST) + _SAME_COST:
            return 0.0
        return cost / max(price, _SAME_COST) - 1


def _forgiven(violated: Sequence[ViolatedPreference], run: BaselineRun, left: Mapping[int, int]) -> int:
    """The preferences of pods beyond those that a way places: a pod that keeps fewest counts as one of them."""
    beyond = Counter({index: count - left.get(index, 0) for index, count in run.left.items()})
    forgiven = 0
    for index, failing, count in sorted(violated, key=lambda violation: -violation[1]) if +beyond else ():
        these = min(count, max(0, beyond[index]))
        beyond[index] -= these
        forgiven += failing * these
    return forgiven
