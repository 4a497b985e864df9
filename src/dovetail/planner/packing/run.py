"""What all packings of one planning run share beside the problem: the work meter and Karpenter's baseline."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.planner.packing.baseline import Baseline


class WorkMeter:
    """Questions asked of packing states so far.

    A search is bounded by work, not by time, so that it ends at the same packing on every computer.
    """

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0


class PackingRun(NamedTuple):
    """One planning run: what it has spent, and what it is compared with."""

    meter: WorkMeter
    baseline: Baseline | None = None
    cheapest: float | None = None
    """$/h of a packing that ignores all preferences, where there are some: what they may cost is a share of it."""
