"""Kubernetes events: what happened to an object, for `kubectl describe`.

Saying the same thing again raises a count on the event that is there; saying too much about one object is
cut off. Recording never waits and never fails the caller: a writer task does the talking, and what it could
not say is counted in `dropped`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError, NotFound
from dovetail.kube.log import Log
from dovetail.kube.resources import CORE_EVENTS, Resource
from dovetail.kube.store import meta
from dovetail.model.meta import stamp

log = Log(__name__)

_REMEMBERED = 4096
#: How long the server keeps an event that is not written again, in seconds.
_LIFE = 3600.0
_BACKLOG = 1000


class Reference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


def reference(resource: Resource, obj: Any) -> Reference:
    namespace, name, uid, _ = meta(obj)
    return Reference(resource.kind, name, namespace, uid, resource.api_version)


class _Said(msgspec.Struct):
    """An event that is on the server."""

    name: str
    namespace: str
    count: int
    at: float = 0.0


class Tokens(msgspec.Struct):
    """So many at once, then one every so often."""

    left: float
    at: float

    def take(self, now: float, burst: float, every: float) -> bool:
        """Whether there is one; it is taken. One comes back `every` so many seconds, up to `burst`."""
        self.left = min(burst, self.left + (now - self.at) / every)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


_Key = tuple[Reference, str, str, str]


class EventRecorder:
    """`burst` events at once about one object, then one every `refill` seconds.

    Each has a queue of its own. Several of one component have a `subject` each, which tells their events apart.
    One that is `silent` (a dry run's) writes nothing and counts nothing.
    """

    def __init__(
        self,
        kube: Kube,
        component: str,
        *subject: str,
        burst: int = 25,
        refill: float = 300.0,
        on_drop: Callable[[], None] | None = None,
        silent: bool = False,
    ) -> None:
        self._kube = kube
        self._component = component
        self._burst = burst
        self._refill = refill
        self._queue: asyncio.Queue[tuple[_Key, Mapping[str, str]]] = asyncio.Queue(_BACKLOG)
        self._said: OrderedDict[_Key, _Said] = OrderedDict()
        self._tokens: OrderedDict[Reference, Tokens] = OrderedDict()
        self._chance = kube.chance.child("events", component, *subject)
        self.dropped = 0
        self._on_drop = on_drop
        self._silent = silent

    def record(
        self,
        about: Reference,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        """Say it soon. False if it is too much already. `annotations` go on the event when it is first said."""
        if self._silent:
            return False
        if not self._allowed(about):
            self._drop()
            return False
        try:
            self._queue.put_nowait(((about, kind, reason, message[:1024]), annotations or {}))
        except asyncio.QueueFull:
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        self.dropped += 1
        if self._on_drop is not None:
            self._on_drop()

    async def run(self) -> None:
        while True:
            await self._write(*await self._queue.get())
            self._queue.task_done()

    async def flush(self) -> None:
        """Until all that was recorded is written."""
        await self._queue.join()

    async def _write(self, key: _Key, annotations: Mapping[str, str]) -> None:
        try:
            said = self._said.get(key)
            if said is None or not await self._again(said):
                said = await self._first(key, annotations)
            self._remember(key, said)
        except KubeError as problem:
            self._drop()
            log.warning("event not written", reason=key[2], object=key[0].name, problem=str(problem))

    async def _again(self, said: _Said) -> bool:
        body = {"count": said.count + 1, "lastTimestamp": stamp(self._kube.clock.now())}
        try:
            await self._kube.patch(CORE_EVENTS, said.name, body, said.namespace)
        except NotFound:
            return False  # expired on the server
        said.count += 1
        return True

    async def _first(self, key: _Key, annotations: Mapping[str, str]) -> _Said:
        about, kind, reason, message = key
        now = stamp(self._kube.clock.now())
        namespace = about.namespace or "default"
        name = f"{about.name}.{self._chance.getrandbits(64):016x}"
        body = {
            "metadata": {"name": name, "namespace": namespace} | ({"annotations": annotations} if annotations else {}),
            "involvedObject": msgspec.to_builtins(about),
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": "",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._kube.create(CORE_EVENTS, body)
        return _Said(name, namespace, 1)

    def _remember(self, key: _Key, said: _Said) -> None:
        said.at = now = self._kube.clock.monotonic()
        self._said[key] = said
        self._said.move_to_end(key)
        _forget(self._said, now - _LIFE)

    def _allowed(self, about: Reference) -> bool:
        now = self._kube.clock.monotonic()
        tokens = self._tokens.setdefault(about, Tokens(float(self._burst), now))
        self._tokens.move_to_end(about)
        allowed = tokens.take(now, self._burst, self._refill)
        _forget(self._tokens, now - self._burst * self._refill)  # long enough that all of them are back
        return allowed


def _forget(memory: OrderedDict[Any, Any], before: float) -> None:
    """Drop what was last of use `before`, and the oldest of what is too much; the memory is in order of use."""
    while memory and (next(iter(memory.values())).at < before or len(memory) > _REMEMBERED):
        memory.popitem(last=False)
