"""The scheduler's events, in the newer form that kube-scheduler writes: with an action, and a series when repeated."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.events import EventSink
from dovetail.kube.resources import CORE_EVENTS
from dovetail.lab.controllers.timestamps import micro
from dovetail.lab.scheduler.messages import shortened
from dovetail.model.pods import Pod

_MAX_REMEMBERED_EVENTS = 4096
#: A series is written when it begins and then at most this often, in seconds; it counts on in between.
_SERIES_REFRESH_S = 360.0
_NAME = "default-scheduler"


class _Event(msgspec.Struct, frozen=True):
    pod: Pod
    kind: str
    reason: str
    action: str
    message: str
    at: str
    related: Pod | None


class _RecordedEvent(msgspec.Struct):
    name: str
    count: int
    written: float


class EventWriter:
    """Written in order by one task, asynchronously to the caller. `quiet` leaves the Normal ones out; `event_sink`
    receives them instead of the server.

    An event is named by its pod and its instant, so that names sort as things happened.
    """

    def __init__(self, kube: Kube, clock: Clock, *, quiet: bool = False, event_sink: EventSink | None = None) -> None:
        self._kube = kube
        self._event_sink = event_sink
        self._clock = clock
        self._instant = 0
        self._quiet = quiet
        self._queue: deque[_Event] = deque()
        self._wake = asyncio.Event()
        self._recorded: OrderedDict[tuple[str, ...], _RecordedEvent] = OrderedDict()
        self.dropped = 0

    def normal(self, pod: Pod, reason: str, action: str, message: str, related: Pod | None = None) -> None:
        if not self._quiet:
            self._record(pod, "Normal", reason, action, message, related)

    def warning(self, pod: Pod, reason: str, action: str, message: str) -> None:
        self._record(pod, "Warning", reason, action, message, None)

    def _record(self, pod: Pod, kind: str, reason: str, action: str, message: str, related: Pod | None) -> None:
        now = micro(self._clock.now())
        self._queue.append(_Event(pod, kind, reason, action, shortened(message), now, related))
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                try:
                    await self._write(self._queue.popleft())
                except KubeError:
                    # An event that cannot be written (its namespace went, the server is down) is dropped and counted.
                    self.dropped += 1

    async def _write(self, event: _Event) -> None:
        meta = event.pod.metadata
        key = (meta.uid, meta.resource_version, event.reason, event.message)
        recorded, now = self._recorded.get(key), self._clock.monotonic()
        if recorded is not None:
            recorded.count += 1
            if recorded.count == 2 or now - recorded.written >= _SERIES_REFRESH_S:
                recorded.written = now
                await self._publish(recorded, event)
            return
        self._instant = max(self._instant + 1, int(self._clock.now().timestamp() * 1e6) * 1000)
        name = f"{meta.name}.{self._instant:016x}"
        while len(self._recorded) >= _MAX_REMEMBERED_EVENTS:
            self._recorded.popitem(last=False)
        recorded = self._recorded[key] = _RecordedEvent(name, 1, now)
        await self._publish(recorded, event)

    async def _publish(self, recorded: _RecordedEvent, event: _Event) -> None:
        """The event for the first time, or the series that it has become."""
        meta = event.pod.metadata
        if self._event_sink is not None:
            self._event_sink(event.kind, "Pod", meta.namespace, meta.name, event.reason, event.message)
        elif recorded.count > 1:
            series = {"count": recorded.count, "lastObservedTime": event.at}
            await self._kube.patch(CORE_EVENTS, recorded.name, {"series": series}, meta.namespace)
        else:
            await self._kube.create(CORE_EVENTS, _body(recorded.name, event), meta.namespace)


def _body(name: str, event: _Event) -> dict[str, Any]:
    body = {
        "metadata": {"name": name, "namespace": event.pod.metadata.namespace},
        "involvedObject": _reference(event.pod),
        "reason": event.reason,
        "message": event.message,
        "type": event.kind,
        "action": event.action,
        "eventTime": event.at,
        "reportingComponent": _NAME,
        "reportingInstance": f"{_NAME}-lab",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
    }
    return body | ({"related": _reference(event.related)} if event.related is not None else {})


def _reference(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
