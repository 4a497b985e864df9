"""Runs of several seeds as one row: medians with their spread, and when two of them differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

import msgspec

from dovetail.studies.run import Measures, Run
from dovetail.studies.setups import Setup

#: With one seed the spread is unknown: smaller differences, as a share of the smaller figure, are not reported.
MIN_DIFFERENCE_OF_ONE_SEED = 0.05


class Figure(msgspec.Struct, frozen=True):
    """The median over all seeds, the least and the most."""

    median: float
    low: float
    high: float
    seeds: int = 1

    def below(self, other: Figure) -> bool:
        """Whether it is smaller beyond the spread of both: every seed of this one is below every seed of the other."""
        if self.seeds == 1 or other.seeds == 1:
            return other.median - self.median > MIN_DIFFERENCE_OF_ONE_SEED * abs(self.median)
        return self.high < other.low


def figure(values: Sequence[float]) -> Figure:
    return Figure(median(values), min(values), max(values), len(values))


class Row(msgspec.Struct, frozen=True):
    """A set-up: the runs of all its seeds, and a figure for every measure that all of them have."""

    setup: Setup
    runs: tuple[Run, ...]
    figures: dict[str, Figure]

    def __getitem__(self, measure: str) -> Figure:
        return self.figures[measure]

    @property
    def typical(self) -> Run:
        """The run of the median cost, for charts."""
        ordered = sorted(self.runs, key=lambda run: (run.measures.dollars, run.seed))
        return ordered[(len(ordered) - 1) // 2]


def rows(runs: Iterable[Run]) -> list[Row]:
    """One row for each set-up, in the order of the runs."""
    by_setup: dict[Setup, list[Run]] = {}
    for run in runs:
        by_setup.setdefault(run.setup, []).append(run)
    return [Row(setup, tuple(mine), _figures(mine)) for setup, mine in by_setup.items()]


def _figures(runs: Sequence[Run]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for field in msgspec.structs.fields(Measures):
        values = [getattr(run.measures, field.name) for run in runs]
        numbers = [float(value) for value in values if value is not None]
        if len(numbers) == len(values):
            figures[field.name] = figure(numbers)
    above = [run.measures.dollars / run.measures.lower_bound - 1.0 for run in runs if run.measures.lower_bound > 0]
    if len(above) == len(runs):
        figures["above_bound"] = figure(above)
        figures["cost_ratio"] = figure([1.0 + share for share in above])
    return figures


def pods_differ(group: Iterable[Row]) -> bool:
    """Whether pods of these set-ups request unlike amounts: their lower bounds differ beyond the spread.

    With VPA a pod gets its new requests when it is created anew, so that a set-up that evicts more has other pods.
    """
    bounds = sorted((row["lower_bound"] for row in group), key=lambda bound: bound.median)
    return bounds[0].median > 0 and bounds[0].below(bounds[-1])
