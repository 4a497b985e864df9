"""The baseline: what Karpenter's scheduler makes of the same pods, in several runs where its result is random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

#: Relative difference below which two packings cost the same.
_SAME_COST = 1e-9

#: Violated preferences: the index of the pod class, preferences violated by each pod, number of such pods.
ViolatedPreference = tuple[int, int, int]


def total(violated: Iterable[ViolatedPreference]) -> int:
    return sum([failing * count for _, failing, count in violated])


class BaselineRun(msgspec.Struct, frozen=True):
    """One run of Karpenter's scheduler: unplaced pods by class, price in $/h, violated preferences, zones used."""

    left: Mapping[int, int]
    price: float
    violated_count: int
    zones: int = 1


class Baseline(msgspec.Struct, frozen=True):
    """All runs of Karpenter's scheduler, and for each pod name the number of runs that leave it unplaced."""

    runs: tuple[BaselineRun, ...]
    names: Mapping[str, int] = {}

    @property
    def zones(self) -> int:
        """The largest number of zones that a run uses."""
        return max(run.zones for run in self.runs)

    def excess(self, violated: Sequence[ViolatedPreference], left: Mapping[int, int]) -> int:
        """Preferences violated beyond a run's, for as many pods of each class as it places; the maximum over runs."""
        return max(
            total(violated) - _violations_of_extra_pods(violated, run, left) - run.violated_count for run in self.runs
        )

    def missing(self, left: Mapping[int, int]) -> int:
        """Unplaced pods that Karpenter places, summed over its runs."""
        return sum(max(0, count - run.left.get(index, 0)) for run in self.runs for index, count in left.items())

    def short(self, left: Mapping[int, int]) -> int:
        """The number of runs in which Karpenter places a pod that is unplaced here: any of the runs may happen."""
        return sum(any(count > run.left.get(index, 0) for index, count in left.items()) for run in self.runs)

    def price(self, left: Mapping[int, int]) -> float | None:
        """Karpenter's price with the same pods unplaced, in $/h; None if no run leaves exactly these unplaced.

        Of several such runs, those with the fewest violated preferences count, and of these the cheapest; if most of
        them reach all zones, the cheapest of those that do.
        """
        same = [run for run in self.runs if run.left == left]
        best = [run for run in same if run.violated_count == min(run_.violated_count for run_ in same)]
        wide = [run for run in best if run.zones == self.zones]
        return min((run.price for run in (wide if 2 * len(wide) > len(same) else best)), default=None)

    def fewer(self, left: Mapping[int, int]) -> float:
        """The lowest price of the runs that place no pod that is unplaced here; 0 if there is no such run."""
        runs = [run for run in self.runs if all(count <= run.left.get(index, 0) for index, count in left.items())]
        return min((run.price for run in runs), default=0.0)

    def beyond(self, left: Mapping[int, int], cost: float) -> float:
        """The share by which a cost exceeds Karpenter's price for the same pods; 0 if it does not."""
        price = self.price(left)
        if price is None or cost <= price * (1 + _SAME_COST) + _SAME_COST:
            return 0.0
        return cost / max(price, _SAME_COST) - 1


def _violations_of_extra_pods(violated: Sequence[ViolatedPreference], run: BaselineRun, left: Mapping[int, int]) -> int:
    """Violated preferences of pods that the run leaves unplaced; the pods with most violations count as these first."""
    beyond = Counter({index: count - left.get(index, 0) for index, count in run.left.items()})
    violations = 0
    for index, failing, count in sorted(violated, key=lambda violation: -violation[1]) if +beyond else ():
        these = min(count, max(0, beyond[index]))
        beyond[index] -= these
        violations += failing * these
    return violations
