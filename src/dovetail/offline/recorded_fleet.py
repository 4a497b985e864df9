"""The fleet of a recording at any instant, and over its whole time: derived by what derives the live one."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock, beside
from dovetail.cluster.state import ClusterState
from dovetail.errors import UserError
from dovetail.kube.client import Kube
from dovetail.language import message
from dovetail.offline.recorded_api import Kind, RecordedApi, recorded_kinds
from dovetail.offline.recording import Measured, ObjectKey, Recording, read
from dovetail.offline.timeline import ScalingDecision, timeline
from dovetail.view.fleet import Fleet
from dovetail.view.model import FleetView
from dovetail.view.observer import Observer

#: Steps of the slider, and of the series over the whole recording.
STEPS = 200
#: Instants that are kept, for pages that are opened one after the other.
MAX_INSTANTS = 4
#: How long the lower bound of an instant may take before the fleet is shown without it.
SETTLE_TIMEOUT_S = 10.0


class RecordingContents(msgspec.Struct, frozen=True):
    """What one pass says of a recording: its kinds, its launches and removals in order, and when nothing was seen."""

    kinds: frozenset[Kind]
    decisions: tuple[ScalingDecision, ...]
    gaps: tuple[tuple[datetime, datetime], ...]


def contents(recording: Recording) -> RecordingContents:
    seconds = (recording.end - recording.start).total_seconds()
    decisions = timeline(recording, recording.start, max(1.0, seconds)).decisions
    return RecordingContents(recorded_kinds(recording), decisions, tuple(recording.gaps()))


class RecordedFleet:
    """A recording, looked at one instant at a time. Make it with `opened`."""

    def __init__(self, recording: Recording, facts: RecordingContents) -> None:
        self.path = recording.path
        self.cluster = recording.header.cluster
        self.start, self.end = recording.start, recording.end
        self.decisions = facts.decisions
        self._recording = recording
        self._facts = facts
        self._times = [self.start + timedelta(seconds=decision.at) for decision in facts.decisions]
        self._observers: OrderedDict[datetime, asyncio.Task[Observer]] = OrderedDict()
        #: A recording is read from one place at a time.
        self._reading = asyncio.Lock()

    @classmethod
    async def opened(cls, path: Path) -> RecordedFleet:
        recording = await beside(partial(read, path))
        return cls(recording, await beside(partial(contents, recording)))

    # -- instants

    def instant(self, text: str) -> datetime:
        """The instant that a text names, within the recording; `UserError` says what is wrong with it."""
        try:
            named = datetime.fromisoformat(text)
        except ValueError as problem:
            raise UserError(message("{text}: no time; write 2026-01-31T12:00:00Z", text=text)) from problem
        named = named.replace(tzinfo=UTC) if named.tzinfo is None else named.astimezone(UTC)
        if not self.start <= named <= self.end:
            raise UserError(
                message(
                    "{text}: the recording is from {start} to {end}",
                    text=text,
                    start=instant_text(self.start),
                    end=instant_text(self.end),
                )
            )
        return _to_milliseconds(named)

    def instant_of(self, step: int) -> datetime:
        """The instant of a step of the slider."""
        share = max(0, min(STEPS, step)) / STEPS
        return _to_milliseconds(self.start + (self.end - self.start) * share)

    def step_of(self, instant: datetime) -> int:
        """The nearest step."""
        length = self.end - self.start
        return round(STEPS * ((instant - self.start) / length)) if length else STEPS

    def time_of(self, decision: ScalingDecision) -> datetime:
        return self.start + timedelta(seconds=decision.at)

    def decision_before(self, instant: datetime) -> datetime | None:
        position = bisect_left(self._times, instant)
        return self._times[position - 1] if position else None

    def decision_after(self, instant: datetime) -> datetime | None:
        position = bisect_right(self._times, instant)
        return self._times[position] if position < len(self._times) else None

    def gap_at(self, instant: datetime) -> tuple[datetime, datetime] | None:
        """When the recorder did not run, if that was then."""
        return next((gap for gap in self._facts.gaps if gap[0] < instant < gap[1]), None)

    # -- the fleet

    async def at(self, instant: datetime) -> Observer:
        """An observer that has seen the cluster at the instant, and sees nothing more."""
        task = self._observers.get(instant)
        if task is None:
            task = self._observers[instant] = asyncio.create_task(self._observe(instant), name="recorded fleet")
            if len(self._observers) > MAX_INSTANTS:
                self._observers.popitem(last=False)
        self._observers.move_to_end(instant)
        return await asyncio.shield(task)

    async def _observe(self, instant: datetime) -> Observer:
        objects, usage = await self._read(instant)
        clock = Clock(asyncio.get_running_loop(), instant)
        observer = Observer(_kube(RecordedApi(objects, usage, self._facts.kinds), clock), clock)
        watching = asyncio.create_task(observer.run(), name="recorded observer")
        try:
            await observer.ready.wait()
            await observer.settle(SETTLE_TIMEOUT_S)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
        return observer

    def release(self) -> None:
        """Forget the instants that were looked at: a longer recording takes the place of this one."""
        self._observers.clear()

    async def _read(self, instant: datetime) -> tuple[list[dict[str, Any]], dict[ObjectKey, Measured]]:
        async with self._reading:
            return await beside(lambda: (self._recording.objects_at(instant), self._recording.usage_at(instant)))

    async def series(self) -> AsyncIterator[tuple[datetime, FleetView]]:
        """The fleet at every step from the start to the end."""
        objects, _ = await self._read(self.start)
        clock = Clock(asyncio.get_running_loop(), self.start)
        api = RecordedApi(objects, {}, self._facts.kinds)
        state = ClusterState(_kube(api, clock), clock, only_viewed=True)
        watching = asyncio.create_task(state.run(), name="recorded series")
        try:
            await state.synced.wait()
            fleet, steps = Fleet(state), map(self.instant_of, range(STEPS + 1))
            until = next(steps)
            for event in self._recording.events(self.start, self.end):
                while event.time > until:
                    yield until, fleet.view()
                    await asyncio.sleep(0)
                    until = next(steps)
                api.push(event)
            for instant in (until, *steps):
                yield instant, fleet.view()
        finally:
            watching.cancel()
            await asyncio.wait([watching])


def instant_text(instant: datetime) -> str:
    """RFC 3339, with milliseconds where there are any."""
    text = instant.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{text.removesuffix('.000')}Z"


def _to_milliseconds(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def _kube(api: RecordedApi, clock: Clock) -> Kube:
    return Kube(api, clock, chance=Chance(0))
