"""Events as Kubernetes' own components record them: the same thing again is a higher count, not another object.

One task writes asynchronously, in order: recording an event never delays the caller. An
object that talks too much is cut off, as by the real correlator (a burst of 25, then one every five minutes),
and ten messages for one reason are combined into one. Names end in the instant, so that listings keep the order.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, Disconnected, NotFound
from dovetail.kube.events import Tokens
from dovetail.kube.resources import CORE_EVENTS
from dovetail.lab.controllers.timestamps import stamp

BURST = 25
REFILL_SECONDS = 300.0
REMEMBER = 4096
COMBINE = 10
COMBINE_SECONDS = 600.0
COMBINED = "(combined from similar events): "
#: Characters of a message.
LONGEST = 1024

#: Receives an event where no client would read it from the API server: its type, what it is about (kind, namespace,
#: name), its reason and its message.
EventSink = Callable[[str, str, str, str, str, str], None]


class Involved(msgspec.Struct, frozen=True):
    """What an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    field_path: str = ""

    @classmethod
    def of(cls, api_version: str, kind: str, metadata: Any) -> Involved:
        """From an object's metadata, be it JSON or a view."""
        if isinstance(metadata, dict):
            return cls(
                api_version,
                kind,
                metadata.get("namespace", ""),
                metadata["name"],
                metadata.get("uid", ""),
                metadata.get("resourceVersion", ""),
            )
        return cls(api_version, kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)

    def at(self, field_path: str) -> Involved:
        return msgspec.structs.replace(self, field_path=field_path)


class _Known(msgspec.Struct):
    name: str
    namespace: str
    count: int


class _Similar(msgspec.Struct):
    """The messages one object had for one reason."""

    messages: set[str]
    at: float


class Recorder:
    """Records events of one component. `quiet` leaves out Normal ones; `event_sink` receives them instead."""

    def __init__(
        self, kube: Kube, clock: Clock, component: str, *, quiet: bool = False, event_sink: EventSink | None = None
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._component = component
        self.quiet = quiet
        self._event_sink = event_sink
        self._queue: deque[tuple[Involved, str, str, str, str, str]] = deque()
        self._wake = asyncio.Event()
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._tokens: OrderedDict[str, Tokens] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        self._residue = crc32(component.encode()) % 1000
        self._instant = 0

    def normal(self, about: Involved, reason: str, message: str, host: str = "") -> None:
        if not self.quiet:
            self._record(about, "Normal", reason, message, host)

    def warning(self, about: Involved, reason: str, message: str, host: str = "") -> None:
        self._record(about, "Warning", reason, message, host)

    def _record(self, about: Involved, type_: str, reason: str, message: str, host: str) -> None:
        if self._spam(about, host):
            return
        if self._event_sink is not None:
            if self._combines(_subject(about, type_, reason, host), message):
                message = f"{COMBINED}{message}"
            self._event_sink(type_, about.kind, about.namespace, about.name, reason, message[:LONGEST])
            return
        self._queue.append((about, type_, reason, message, stamp(self._clock.now()), host))
        self._wake.set()

    def _spam(self, about: Involved, host: str) -> bool:
        now = self._clock.monotonic()
        key = about.uid or about.name
        tokens = self._tokens.get(key)
        if tokens is None:
            if len(self._tokens) >= REMEMBER:
                self._tokens.popitem(last=False)
            self._tokens[key] = Tokens(BURST - 1, now)
            return False
        return not tokens.take(now, BURST, REFILL_SECONDS)

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            while self._queue:
                entry = self._queue.popleft()
                try:
                    await self._write(*entry)
                except (ApiError, Disconnected):
                    # An event that cannot be written (its namespace went, the server is down) is dropped and counted.
                    continue
            self._wake.clear()

    async def _write(self, about: Involved, type_: str, reason: str, message: str, now: str, host: str) -> None:
        subject = _subject(about, type_, reason, host)
        key: tuple[str, ...] = (*subject, message)
        if self._combines(subject, message):
            key, message = subject, f"{COMBINED}{message}"
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            change = {"count": known.count, "lastTimestamp": now} | ({"message": message} if key is subject else {})
            try:
                await self._kube.patch(CORE_EVENTS, known.name, change, known.namespace)
                return
            except NotFound:
                del self._known[key]
        name = f"{about.name}.{self._next_instant():x}"
        namespace = about.namespace or "default"
        if len(self._known) >= REMEMBER:
            self._known.popitem(last=False)
        self._known[key] = _Known(name, namespace, 1)
        await self._kube.create(CORE_EVENTS, self._body(name, namespace, about, type_, reason, message, now, host))

    def _combines(self, subject: tuple[str, ...], message: str) -> bool:
        now = self._clock.monotonic()
        similar = self._similar.get(subject)
        if similar is None or now - similar.at > COMBINE_SECONDS:
            if len(self._similar) >= REMEMBER:
                self._similar.popitem(last=False)
            self._similar[subject] = _Similar({message}, now)
            return False
        similar.at = now
        similar.messages.add(message)
        if len(similar.messages) < COMBINE:
            return False
        similar.messages.discard(message)
        return True

    def _next_instant(self) -> int:
        """Nanoseconds, the last three digits the component's own: no two recorders make the same name."""
        micros = int(self._clock.now().timestamp() * 1_000_000)
        self._instant = max(self._instant + 1, micros)
        return self._instant * 1000 + self._residue

    def _body(
        self, name: str, namespace: str, about: Involved, type_: str, reason: str, message: str, now: str, host: str
    ) -> dict[str, Any]:
        involved = {
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": about.api_version,
            "resourceVersion": about.resource_version,
            "fieldPath": about.field_path,
        }
        source = {"component": self._component} | ({"host": host} if host else {})
        return {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "reason": reason,
            "message": message[:LONGEST],
            "source": source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": type_,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": host,
        }


def _subject(about: Involved, type_: str, reason: str, host: str) -> tuple[str, ...]:
    """What the messages of similar events have in common."""
    return about.uid or about.name, about.field_path, type_, reason, host
