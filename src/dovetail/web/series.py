"""The fleet over time, as this process has seen it: a point for every change, thinned out when there are many."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.view.decisions import MARKED, summary_of
from dovetail.view.model import FleetView
from dovetail.view.scaling import ScalingPoint
from dovetail.web.markup import path

MAX_POINTS = 4000


class Point(msgspec.Struct, frozen=True):
    """Seconds since 1970; what is unknown is None."""

    time: float
    cost: float | None
    nodes: int
    pending: int
    pods: int | None


class Series:
    """Points in order of time."""

    def __init__(self) -> None:
        self.points: list[Point] = []

    def take(self, view: FleetView, now: datetime) -> None:
        totals = view.totals
        point = Point(now.timestamp(), totals.fleet.money.per_hour, totals.fleet.nodes, totals.pending, totals.pods)
        if self.points and msgspec.structs.replace(self.points[-1], time=point.time) == point:
            return
        self.points.append(point)
        if len(self.points) > MAX_POINTS:
            older, newer = self.points[: MAX_POINTS // 2], self.points[MAX_POINTS // 2 :]
            self.points = older[::2] + newer


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    time: float
    id: str
    kind: str
    summary: str
    evictions: int
    #: Where a click on it leads.
    href: str


class ChartSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What the script draws: columns, as uPlot takes them."""

    time: list[float]
    cost: list[float | None]
    nodes: list[int]
    pending: list[int]
    evictions: list[int | None]
    marks: list[Mark]
    #: The instant of a recording that is seen, in seconds since 1970.
    instant: float | None = None


def chart(points: Sequence[Point], decisions: Sequence[Decision], now: datetime, history: bool) -> ChartSeries:
    """The last point holds until now. Evictions are counted from the decisions: unknown without the history."""
    undone = {decision.id for decision in decisions if decision.kind == "undo"}
    held = [*points, msgspec.structs.replace(points[-1], time=now.timestamp())] if points else []
    marks = [
        Mark(
            time=time,
            id=decision.id,
            kind=decision.kind,
            summary=summary_of(decision),
            evictions=0 if decision.id in undone else decision.evictions,
            href=path("decision", decision.id),
        )
        for decision in decisions
        if decision.kind in MARKED and (time := _seconds(decision)) is not None
    ]
    evictions: list[int | None] = []
    counted, position = 0, 0
    for point in held:
        while position < len(marks) and marks[position].time <= point.time:
            counted += marks[position].evictions
            position += 1
        evictions.append(counted if history else None)
    return ChartSeries(
        time=[point.time for point in held],
        cost=[point.cost for point in held],
        nodes=[point.nodes for point in held],
        pending=[point.pending for point in held],
        evictions=evictions,
        marks=marks,
    )


def _seconds(decision: Decision) -> float | None:
    """When it was decided; None where the record, which is text in a ConfigMap, has no time."""
    try:
        return datetime.fromisoformat(decision.time).timestamp()
    except (ValueError, OverflowError):
        return None


def scaling_chart(points: Sequence[ScalingPoint], now: datetime) -> dict[str, object]:
    """The columns of an HPA: replicas beside those desired, and `used0` beside `target0` for its first metric.

    A metric that the HPA has no more has no value; the last point holds until now.
    """
    held = [*points, msgspec.structs.replace(points[-1], time=now.timestamp())] if points else []
    columns: dict[str, object] = {
        "time": [point.time for point in held],
        "replicas": [point.replicas for point in held],
        "desired": [point.desired for point in held],
        "marks": [],
        "instant": None,
    }
    for number, name in enumerate(points[-1].metrics if points else ()):
        values = [point.metrics.get(name, (None, None)) for point in held]
        columns[f"used{number}"] = [used for used, _ in values]
        columns[f"target{number}"] = [target for _, target in values]
    return columns
