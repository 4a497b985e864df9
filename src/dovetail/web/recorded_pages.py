"""Pages that are of a recording alone: the series over its whole time, with every launch and removal of a node."""

from __future__ import annotations

import asyncio
from datetime import datetime
from urllib.parse import urlencode

import msgspec

from dovetail.offline.growing_recording import GrowingRecording
from dovetail.offline.recorded_fleet import STEPS, RecordedFleet, instant_text
from dovetail.offline.timeline import ScalingDecision
from dovetail.web.cluster_pages import plots
from dovetail.web.context import Moment, PageContext
from dovetail.web.instant import shown
from dovetail.web.layout import card, table
from dovetail.web.markup import Markup, isolated, join, tag
from dovetail.web.series import ChartSeries, Mark, Series, chart

MAX_ROWS = 500


def moment(recording: GrowingRecording, instant: datetime | None) -> Moment:
    """Where the page is; without an instant at the end, and with it as it moves on."""
    recorded, following = recording.fleet, instant is None and recording.growing
    instant = recorded.end if instant is None else instant
    return Moment(
        instant=instant,
        start=recorded.start,
        end=recorded.end,
        step=recorded.step_of(instant),
        steps=STEPS,
        before=recorded.decision_before(instant),
        after=recorded.decision_after(instant),
        gap=recorded.gap_at(instant),
        growing=recording.growing,
        following=following,
    )


class RecordedSeries:
    """The series of a whole recording, derived when they are first asked for, and again when it grew."""

    def __init__(self, recording: GrowingRecording) -> None:
        self._recording = recording
        self._derived: tuple[RecordedFleet, asyncio.Task[Series]] | None = None

    async def chart(self, instant: datetime) -> ChartSeries:
        """With the instant marked. Evictions are counted from a decision history, which is not recorded."""
        recorded = self._recording.fleet
        if self._derived is None or self._derived[0] is not recorded:
            self._derived = recorded, asyncio.create_task(_series(recorded), name="recorded series")
        series = await asyncio.shield(self._derived[1])
        drawn = chart(series.points, (), recorded.end, history=False)
        marks = [_mark(recorded, decision) for decision in recorded.decisions]
        return msgspec.structs.replace(drawn, marks=marks, instant=instant.timestamp())


async def _series(recorded: RecordedFleet) -> Series:
    series = Series()
    async for instant, view in recorded.series():
        series.take(view, instant)
    return series


def _mark(recorded: RecordedFleet, decision: ScalingDecision) -> Mark:
    time = recorded.time_of(decision)
    return Mark(
        time=time.timestamp(),
        id=decision.name,
        kind=decision.action,
        summary=_summary(decision),
        evictions=0,
        href=_address(time),
    )


def _summary(decision: ScalingDecision) -> str:
    parts = (decision.instance_type, decision.capacity_type, decision.zone, decision.pool, decision.reason)
    return ", ".join(filter(None, parts))


def _address(instant: datetime) -> str:
    return f"/?{urlencode({'at': instant_text(instant)})}"


def time(context: PageContext, recorded: RecordedFleet) -> Markup:
    t = context.t
    actions = {"launch": t("launched"), "remove": t("removed")}
    rows: list[list[Markup | str]] = []
    for decision in recorded.decisions[:MAX_ROWS]:
        instant = recorded.time_of(decision)
        opened = tag("a", shown(instant), href=_address(instant))
        rows.append([opened, actions[decision.action], isolated(decision.name), isolated(_summary(decision))])
    more = len(recorded.decisions) - MAX_ROWS
    columns = [(t("Time"), ""), (t("Change"), ""), (t("Node"), "key"), (t("What"), "")]
    listed = table(t("Launches and removals"), columns, rows, t("No node was launched or removed."), hidden=True)
    note = tag("p", t("{count} more", count=more), class_="empty") if more > 0 else None
    said = t(
        "The whole recording; thin lines mark launches and removals, the thick one the instant that is shown."
        " Times are UTC."
    )
    return join(tag("h1", t("Time")), plots(t, said), card(t("Launches and removals"), listed, note))
