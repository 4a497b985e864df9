"""The objective: which of two packings is better, and what a preference or a zone may cost.

A packing is compared with what Karpenter's scheduler makes of the same pods (the baseline, simulated where pods are
few). Pods that Karpenter places come first, then all pods, then a cost within Karpenter's, then the weighted cost: the
cost an hour, raised by a bounded share for every violated preference and every zone that Karpenter would have reached.

| what | raises the cost by at most |
|---|---|
| a preference that is violated | 0.4 % |
| a preference that is violated and that Karpenter keeps | 2 % more |
| a zone that Karpenter reaches and the packing does not | 5 % |
| all of it together | 10 % |

So a packing that keeps everything is never chosen if it costs over 10 % more than one that keeps nothing. The first
violations weigh most; further ones less and less, so that the sum stays below its bound and fewer are always better.
Preferences of pods that Karpenter leaves pending do not count: a node is more than Karpenter gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from dovetail.planner.packing.violated_preferences import ViolatedPreference, total

#: Relative difference below which two packings cost the same.
_SAME_COST = 1e-9
#: Shares of a plan's cost: what a violated preference may cost, and more for one that Karpenter keeps.
PREFERENCE_SHARE, BASELINE_PREFERENCE_SHARE = 0.004, 0.02
#: What a zone may cost that Karpenter reaches.
BASELINE_ZONE_SHARE = 0.05
#: What all zones beyond those that Karpenter reaches may cost together.
FURTHER_ZONES_SHARE = 0.015
#: What all preferences and zones may cost together.
MAX_SHARE = 0.10
#: What a dollar above Karpenter's cost counts while a search goes on.
_DOLLAR_ABOVE_BASELINE = 50.0


class Score(NamedTuple):
    """How good a packing is. Lower is better; earlier fields dominate later ones."""

    baseline_runs_missed: int
    """Karpenter's runs that place a pod which has no node here: chance takes one of the runs."""
    baseline_pods_missed: int
    """Pods without a node here that Karpenter places, over its runs."""
    order_dependent: bool
    """Whether a spread holds only for some orders in which pods are bound."""
    pending: int
    above_baseline: bool
    """Whether it costs more than Karpenter's placement of the same pods."""
    weighted_cost: float
    """Dollars an hour, raised by the bounded shares of violated preferences and missed zones."""


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
        best = [run for run in same if run.violated_count == min(each.violated_count for each in same)]
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
    found = 0
    for index, failing, count in sorted(violated, key=lambda violation: -violation[1]) if +beyond else ():
        these = min(count, max(0, beyond[index]))
        beyond[index] -= these
        found += failing * these
    return found


def weighted_cost(
    cost: float,
    violated: Sequence[ViolatedPreference],
    left: Mapping[int, int],
    baseline: Baseline | None,
    zones_missed: int,
) -> float:
    """A cost an hour, raised by what violated preferences and missed zones may cost."""
    share = PREFERENCE_SHARE * total(violated) + BASELINE_ZONE_SHARE * zones_missed
    if baseline is not None:
        share += BASELINE_PREFERENCE_SHARE * max(0, baseline.excess(violated, left))
    return cost * (1 + bounded_share(share))


def search_cost(
    cost: float,
    violated: Sequence[ViolatedPreference],
    left: Mapping[int, int],
    baseline: Baseline | None,
    zones_missed: int,
) -> float:
    """The weighted cost, made steep above Karpenter's cost: what a search that passes through it descends."""
    limit = baseline.price(left) if baseline is not None else None
    above = max(0.0, cost - limit) if limit is not None else 0.0
    return weighted_cost(cost, violated, left, baseline, zones_missed) + _DOLLAR_ABOVE_BASELINE * above


def bounded_share(share: float) -> float:
    """A share that grows with every violation and never reaches MAX_SHARE."""
    return share * MAX_SHARE / (share + MAX_SHARE)


class ZoneBudget(NamedTuple):
    """How many zones new nodes should reach, and what that may cost in $/h on top of the packing."""

    zones: int = 0
    extra_cost: float = 0.0
    further_cost: float = 0.0
    """What zones beyond these may cost together."""


def zone_budget(cost: float, left: Mapping[int, int], baseline: Baseline | None) -> ZoneBudget:
    """Karpenter's zones for a bounded share each, further zones for a smaller one, and never above Karpenter's cost."""
    if baseline is None:
        return ZoneBudget(further_cost=FURTHER_ZONES_SHARE * cost)
    limit = baseline.price(left)
    room = max(0.0, limit - cost) if limit is not None else MAX_SHARE * cost
    wanted = min(MAX_SHARE, BASELINE_ZONE_SHARE * max(0, baseline.zones - 1)) * cost
    return ZoneBudget(baseline.zones, min(room, wanted), min(room, FURTHER_ZONES_SHARE * cost))
