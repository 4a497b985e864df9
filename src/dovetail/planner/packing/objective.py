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

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.planner.packing.baseline import Baseline, ViolatedPreference, total

#: Shares of a plan's cost: what a violated preference may cost, and more for one that Karpenter keeps.
PREFERENCE_SHARE, BASELINE_PREFERENCE_SHARE = 0.004, 0.02
#: What a zone may cost that Karpenter reaches.
BASELINE_ZONE_SHARE = 0.05
#: What all zones beyond those that Karpenter reaches may cost together.
FURTHER_ZONES_SHARE = 0.015
#: What all preferences and zones may cost together.
MAX_SHARE = 0.10
#: Weight of each dollar above Karpenter's cost during a search.
_DOLLAR_ABOVE_BASELINE = 50.0


class Score(NamedTuple):
    """How good a packing is. Lower is better; earlier fields dominate later ones."""

    baseline_runs_missed: int
    """Karpenter's runs that place a pod which is unplaced here: any of the runs may happen."""
    baseline_pods_missed: int
    """Pods without a node here that Karpenter places, over its runs."""
    order_dependent: bool
    """Whether a spread holds only for some orders in which pods are bound."""
    pending: int
    above_baseline: bool
    """Whether it costs more than Karpenter's placement of the same pods."""
    weighted_cost: float
    """Dollars an hour, raised by the bounded shares of violated preferences and missed zones."""


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


def zone_budget(
    cost: float, left: Mapping[int, int], baseline: Baseline | None, cheapest: float | None = None
) -> ZoneBudget:
    """Karpenter's zones for a bounded share each, further zones for a smaller one, and never above Karpenter's cost.

    `cheapest` is the cost of a packing that ignores preferences: what they take of the bound, zones cannot take again.
    """
    room = max(0.0, (1 + MAX_SHARE) * cheapest - cost) if cheapest is not None else MAX_SHARE * cost
    if baseline is None:
        return ZoneBudget(further_cost=min(room, FURTHER_ZONES_SHARE * cost))
    limit = baseline.price(left)
    room = min(room, max(0.0, limit - cost)) if limit is not None else room
    for_zones = min(MAX_SHARE, BASELINE_ZONE_SHARE * max(0, baseline.zones - 1)) * cost
    return ZoneBudget(baseline.zones, min(room, for_zones), min(room, FURTHER_ZONES_SHARE * cost))
