"""Kubernetes events: what happened to an object, for `kubectl describe`. The one recorder of every component.

It does what client-go's does. The same event again raises a count on the one that is there; too many about one object
are cut off, and counted on the next one that is written; the tenth message for one reason is combined with the earlier
ones. Names end in the instant, so that listings keep the order. Recording never waits and never fails the caller: a
writer task writes, and what it could not write is counted in `dropped`.

(kube-scheduler's events, which have an action and a series, are another API: `dovetail.lab.scheduler.events`.)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar
from zlib import crc32

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, KubeError, NotFound
from dovetail.kube.log import Log
from dovetail.kube.resources import CORE_EVENTS, Resource
from dovetail.model.meta import stamp
from dovetail.runtime.token_bucket import TokenBucket

log = Log(__name__)

MAX_REMEMBERED = 4096
#: How long the server keeps an event that is not written again.
EVENT_TTL_S = 3600.0
MAX_QUEUED = 1000
#: So many messages of one object for one reason within so many seconds are combined into one event.
MAX_SIMILAR, SIMILAR_S = 10, 600.0
COMBINED = "(combined from similar events): "
MAX_MESSAGE_CHARACTERS = 1024

V = TypeVar("V")
Severity = Literal["Normal", "Warning"]
#: Receives an event where no client would read it from the API server: its type, what it is about (kind, namespace,
#: name), its reason and its message.
EventSink = Callable[[str, str, str, str, str, str], None]


class InvolvedObject(msgspec.Struct, frozen=True, rename="camel"):
    """The object an event is about, and the field of it."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"
    resource_version: str = ""
    field_path: str = ""

    @classmethod
    def of(cls, api_version: str, kind: str, metadata: Any) -> InvolvedObject:
        """From an object's metadata, be it JSON or a view."""
        if isinstance(metadata, dict):
            version = metadata.get("resourceVersion", "")
            return cls(
                kind, metadata["name"], metadata.get("namespace", ""), metadata.get("uid", ""), api_version, version
            )
        return cls(kind, metadata.name, metadata.namespace, metadata.uid, api_version, metadata.resource_version)

    def at(self, field_path: str) -> InvolvedObject:
        return msgspec.structs.replace(self, field_path=field_path)

    @property
    def identity(self) -> tuple[str, ...]:
        """The object, whatever its version and the field."""
        return self.kind, self.namespace, self.name, self.uid


def reference(resource: Resource, obj: Any) -> InvolvedObject:
    metadata = obj["metadata"] if isinstance(obj, dict) else obj.metadata
    return InvolvedObject.of(resource.api_version, resource.kind, metadata)


class _Event(msgspec.Struct, frozen=True):
    """An event that is to be written."""

    about: InvolvedObject
    severity: Severity
    reason: str
    message: str
    time: str
    host: str
    annotations: Mapping[str, str]
    #: With those of it that were cut off before.
    count: int = 1

    @property
    def subject(self) -> tuple[str, ...]:
        """What similar events have in common: all but the message."""
        return *self.about.identity, self.about.field_path, self.severity, self.reason, self.host


class _Recorded(msgspec.Struct):
    """An event that is on the server."""

    name: str
    namespace: str
    count: int
    used_s: float = 0.0


class _CutOff(msgspec.Struct):
    """How often an event was not written."""

    count: int = 0
    used_s: float = 0.0


class _Similar(msgspec.Struct):
    """The messages that one object had for one reason."""

    messages: set[str]
    used_s: float


#: What the limit of events is for: the object, the reason and the message, or less of it.
LimitKey = Callable[[InvolvedObject, str, str], tuple[str, ...]]


def _by_object(about: InvolvedObject, reason: str, message: str) -> tuple[str, ...]:
    return about.identity


class EventRecorder:
    """`burst` events at once about one object, or with one `limit_key`, then one every `refill` seconds.

    Each has a queue of its own, of `max_queued` events (0: any number). Several of one component have a `subject` each,
    which tells their events apart. One that is `silent` (a dry run's) writes nothing and counts nothing; one that is
    `quiet` leaves out Normal events. With an `event_sink` nothing is written to the API server.
    """

    def __init__(
        self,
        kube: Kube,
        component: str,
        *subject: str,
        burst: int = 25,
        refill: float = 300.0,
        limit_key: LimitKey = _by_object,
        max_queued: int = MAX_QUEUED,
        on_drop: Callable[[], None] | None = None,
        silent: bool = False,
        quiet: bool = False,
        event_sink: EventSink | None = None,
    ) -> None:
        self.dropped = 0
        self.quiet = quiet
        self._kube = kube
        self._component = component
        self._burst = burst
        self._refill = refill
        self._limit_key = limit_key
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(max_queued)
        self._recorded: OrderedDict[tuple[str, ...], _Recorded] = OrderedDict()
        self._tokens: OrderedDict[tuple[str, ...], TokenBucket] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
        #: Events that were cut off and have not been written since, by subject and message.
        self._cut_off: OrderedDict[tuple[str, ...], _CutOff] = OrderedDict()
        self._residue = crc32("/".join((component, *subject)).encode()) % 1000
        self._instant = 0
        self._on_drop = on_drop
        self._silent = silent
        self._event_sink = event_sink

    def normal(self, about: InvolvedObject, reason: str, message: str, host: str = "") -> bool:
        return self.record(about, "Normal", reason, message, host=host)

    def warning(self, about: InvolvedObject, reason: str, message: str, host: str = "") -> bool:
        return self.record(about, "Warning", reason, message, host=host)

    def record(
        self,
        about: InvolvedObject,
        severity: Severity,
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
        host: str = "",
    ) -> bool:
        """Write it soon. False if it is too much already. `annotations` go on the event when it is first written."""
        if self._silent or (self.quiet and severity == "Normal"):
            return False
        event = _Event(about, severity, reason, message, stamp(self._kube.clock.now()), host, annotations or {})
        if not self._allowed(self._limit_key(about, reason, message)):
            self._count_cut_off(event)
            self._drop()
            return False
        cut_off = self._cut_off.pop((*event.subject, event.message), None)
        if cut_off is not None:
            event = msgspec.structs.replace(event, count=1 + cut_off.count)
        if self._event_sink is not None:
            text = f"{COMBINED}{message}" if self._combines(event) else message
            self._event_sink(severity, about.kind, about.namespace, about.name, reason, text[:MAX_MESSAGE_CHARACTERS])
            return True
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        self.dropped += 1
        if self._on_drop is not None:
            self._on_drop()

    def _count_cut_off(self, event: _Event) -> None:
        key, now = (*event.subject, event.message), self._kube.clock.monotonic()
        cut_off = self._cut_off.setdefault(key, _CutOff())
        cut_off.count += 1
        cut_off.used_s = now
        self._cut_off.move_to_end(key)
        _forget(self._cut_off, lambda cut_off: cut_off.used_s, now - EVENT_TTL_S)

    async def run(self) -> None:
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except KubeError as problem:
                self._drop()
                log.warning("event not written", reason=event.reason, object=event.about.name, problem=str(problem))
            self._queue.task_done()

    async def flush(self) -> None:
        """Until all that was recorded is written."""
        await self._queue.join()

    async def _write(self, event: _Event) -> None:
        combined = self._combines(event)
        key = event.subject if combined else (*event.subject, event.message)
        message = (f"{COMBINED}{event.message}" if combined else event.message)[:MAX_MESSAGE_CHARACTERS]
        recorded = self._recorded.get(key)
        if recorded is None or not await self._write_again(recorded, event, message if combined else None):
            recorded = await self._write_first(event, message)
        recorded.used_s = now = self._kube.clock.monotonic()
        self._recorded[key] = recorded
        self._recorded.move_to_end(key)
        _forget(self._recorded, lambda recorded: recorded.used_s, now - EVENT_TTL_S)

    async def _write_again(self, recorded: _Recorded, event: _Event, message: str | None) -> bool:
        count = recorded.count + event.count
        body = {"count": count, "lastTimestamp": event.time} | ({"message": message} if message else {})
        try:
            await self._kube.patch(CORE_EVENTS, recorded.name, body, recorded.namespace)
        except NotFound:
            return False  # expired on the server
        recorded.count = count
        return True

    async def _write_first(self, event: _Event, message: str) -> _Recorded:
        namespace = event.about.namespace or "default"
        name = f"{event.about.name}.{self._next_instant():x}"
        try:
            await self._kube.create(CORE_EVENTS, self._body(name, namespace, event, message))
        except AlreadyExists:  # another process of this component wrote one in the same instant
            name = f"{event.about.name}.{self._next_instant():x}"
            await self._kube.create(CORE_EVENTS, self._body(name, namespace, event, message))
        return _Recorded(name, namespace, event.count)

    def _combines(self, event: _Event) -> bool:
        """Whether there are so many similar events that this one is written as one with them."""
        now, subject = self._kube.clock.monotonic(), event.subject
        similar = self._similar.get(subject)
        if similar is None or now - similar.used_s > SIMILAR_S:
            self._similar[subject] = _Similar({event.message}, now)
            self._similar.move_to_end(subject)
            _forget(self._similar, lambda similar: similar.used_s, now - SIMILAR_S)
            return False
        similar.used_s = now
        self._similar.move_to_end(subject)
        similar.messages.add(event.message)
        if len(similar.messages) < MAX_SIMILAR:
            return False
        similar.messages.discard(event.message)
        return True

    def _next_instant(self) -> int:
        """Nanoseconds, the last three digits the component's own: no two recorders make the same name."""
        self._instant = max(self._instant + 1, int(self._kube.clock.now().timestamp() * 1_000_000))
        return self._instant * 1000 + self._residue

    def _body(self, name: str, namespace: str, event: _Event, message: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        return {
            "metadata": metadata | ({"annotations": event.annotations} if event.annotations else {}),
            "involvedObject": {field: value for field, value in msgspec.to_builtins(event.about).items() if value},
            "reason": event.reason,
            "message": message,
            "source": {"component": self._component} | ({"host": event.host} if event.host else {}),
            "firstTimestamp": event.time,
            "lastTimestamp": event.time,
            "count": event.count,
            "type": event.severity,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": event.host,
        }

    def _allowed(self, key: tuple[str, ...]) -> bool:
        now = self._kube.clock.monotonic()
        tokens = self._tokens.get(key)
        if tokens is None:
            tokens = self._tokens[key] = TokenBucket.full(self._burst, 1.0 / self._refill, now)
        self._tokens.move_to_end(key)
        allowed = tokens.take(now)
        # Long enough that all tokens are back.
        _forget(self._tokens, lambda tokens: tokens.filled_s, now - self._burst * self._refill)
        return allowed


def _forget(memory: OrderedDict[tuple[str, ...], V], last_used_s: Callable[[V], float], before: float) -> None:
    """Drop what was last used `before`, and the oldest of what is too much; the memory is in order of use."""
    while memory and (last_used_s(next(iter(memory.values()))) < before or len(memory) > MAX_REMEMBERED):
        memory.popitem(last=False)
