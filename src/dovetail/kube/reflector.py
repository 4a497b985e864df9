"""A reflector keeps a `Store` equal to what the server holds, for ever.

List, then watch from there; resume where the stream broke; when the server no longer remembers that
point (410), list again and tell the listeners about whatever vanished unseen. An object that does not
decode is left out and reported; it never stops the others. With `streams` the present state is read by the
watch itself, object by object from the server's cache; a server that cannot is asked for a list.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar

from dovetail.kube.backoff import Retries
from dovetail.kube.client import Kube, RawEvent
from dovetail.kube.decode import AS_DICT, Head, decode, key_of_raw
from dovetail.kube.errors import (
    ApiError,
    BadObject,
    BadRequest,
    Disconnected,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
)
from dovetail.kube.log import Log
from dovetail.kube.resources import Resource
from dovetail.kube.store import Index, Store, key_of, meta
from dovetail.kube.transport import PushedChange, subscription_of

T = TypeVar("T", default=dict[str, Any])
log = Log(__name__)

#: A server ends a watch after this many seconds (plus up to as much again), and we ask anew.
WATCH_SECONDS = 300
#: Silence for so long past the end of the watch means that the peer is gone.
GRACE_SECONDS = 30.0
#: The annotation of the bookmark that ends the present state in a watch.
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class CacheChange(msgspec.Struct, Generic[T], frozen=True):
    """One step of the cache. `old` is what the store held, `new` what it holds now."""

    kind: Literal["added", "modified", "deleted"]
    key: str
    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        """The object the change is about: the new state, or the last known one of a deleted object."""
        state = self.new if self.new is not None else self.old
        assert state is not None
        return state


class Reflector(Generic[T]):
    """Runs until cancelled. `synced` is set once the first list is in the store.

    `keep` says what to store of a new object, given the stored one; returning the stored one means no change.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        type: type[T] = AS_DICT,
        *,
        on_event: Callable[[CacheChange[T]], None] | None = None,
        on_bad: Callable[[BadObject], None] | None = None,
        keep: Callable[[T, T | None], T] | None = None,
        indices: Mapping[str, Index[T]] | None = None,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        page: int = 500,
        streams: bool = False,
        backoff: Retries | None = None,
    ) -> None:
        """`streams` reads the present state by a watch where the server can send it so."""
        self.resource = resource
        self.store: Store[T] = Store(indices)
        self.synced = asyncio.Event()
        self.version = ""
        self._expected: list[tuple[int, int, asyncio.Future[None]]] = []
        self.failure: KubeError | None = None
        #: Whether its owner does without it: then a kind that we may not read is no alarm of the watch.
        self.optional = False
        self.heard = kube.clock.monotonic()
        self._kube = kube
        self._type = type
        self._on_event = on_event
        self._on_bad = on_bad
        self._keep = keep
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._streams = streams and subscription_of(kube.transport) is None
        self._backoff = backoff or Retries(base=0.5, cap=30.0)
        self._chance = kube.chance.child("reflector", resource.name, namespace or "", labels or "", fields or "")

    async def seen(self, version: str | int) -> None:
        """Wait until the store is at least as new as a write that answered with this resourceVersion."""
        if int(version) <= int(self.version or 0):
            return
        caught_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._expected, (int(version), id(caught_up), caught_up))
        await caught_up

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if not self.version and self._streams and await self._stream():
                    failures = 0
                    continue
                if not self.version:
                    await self._relist()
                await self._follow_pushed()
                if await self._follow():
                    failures = 0
                    continue
                failures += 1
            except Gone:
                log.info("watch too old, listing again", resource=self.resource.name)
                self.version = ""
                failures = min(failures + 1, 3)
            except (KubeError, msgspec.DecodeError) as problem:
                failures += 1
                self._note(problem, failures)
            await asyncio.sleep(self._pause(failures))

    async def _relist(self) -> None:
        listing = await self._kube.list(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            type=self._type,
            limit=self._page,
            trim=self._trimmed if self._keep is not None else None,
        )
        for bad in listing.bad:
            self._report(bad)
        fresh = {key_of(obj): obj for obj in listing.items}
        unreadable = {bad.key for bad in listing.bad}
        stored_keys = self.store.keys()
        for key in [key for key in stored_keys if key not in fresh and key not in unreadable]:
            self._remove(key)
        for key, obj in fresh.items():
            self._put(key, obj, trimmed=True)
        self._reach(listing.resource_version)
        self._alive()
        self.synced.set()

    async def _stream(self) -> bool:
        """The present state and what follows it, by one watch to its end; False where the server cannot send it."""
        seconds = WATCH_SECONDS + int(self._chance.random() * WATCH_SECONDS)
        events = self._kube.watch_raw(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            timeout=seconds,
            initial=True,
            quiet=seconds + GRACE_SECONDS,
        )
        sent: set[str] | None = set() if len(self.store) else None
        complete = False
        try:
            async with aclosing(events):
                async for event in events:
                    if complete:
                        self._take(event)
                    elif event.type != "BOOKMARK":
                        if sent is not None:
                            sent.add(key_of_raw(event.object))
                        self._accept(event.object, event.type == "DELETED")
                    elif INITIAL_EVENTS_END in ((head := decode(event.object, Head)).metadata.annotations or ()):
                        complete = True
                        self._complete(sent, head.metadata.resource_version)
        except (Invalid, BadRequest) as refusal:
            log.debug("state is not sent by watch, listing", resource=self.resource.name, problem=str(refusal))
        finally:
            if not complete:
                self.version = ""  # what came so far is no point to go on from
        self._streams = complete
        return complete

    def _complete(self, sent: set[str] | None, version: str) -> None:
        """The present state has been sent: what was not among it is gone."""
        stored_keys = self.store.keys()
        for key in [key for key in stored_keys if key not in sent] if sent is not None else ():
            self._remove(key)
        self._reach(version)
        self._alive()
        self.synced.set()

    async def _follow_pushed(self) -> None:
        """Follow the changes that the transport delivers by itself, if it does: then there is nothing to watch."""
        subscribe = subscription_of(self._kube.transport)
        if subscribe is None or self._namespace or self._labels or self._fields:
            return
        stop = subscribe(self.resource.group, self.resource.plural, self._on_pushed)
        try:
            await asyncio.Event().wait()
        finally:
            stop()

    async def _follow(self) -> bool:
        """One watch, to its end. False if the server ended it at once and said nothing."""
        began, version = self._kube.clock.monotonic(), self.version
        seconds = WATCH_SECONDS + int(self._chance.random() * WATCH_SECONDS)
        events = self._kube.watch_raw(
            self.resource,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=self.version,
            timeout=seconds,
            quiet=seconds + GRACE_SECONDS,
            opened=self._alive,
        )
        async with aclosing(events):
            async for event in events:
                self._take(event)
        self._alive()
        return self.version != version or self._kube.clock.monotonic() - began >= 1.0

    def _take(self, event: RawEvent) -> None:
        self._alive()
        if event.type == "BOOKMARK":
            self._reach(decode(event.object, Head).metadata.resource_version)
        else:
            self._reach(self._accept(event.object, event.type == "DELETED"))

    def _on_pushed(self, change: PushedChange) -> None:
        """A delivered change is always the newest."""
        self._alive()
        try:
            obj = change.view(self._type, self.store.get(change.key), self._keep)
        except msgspec.ValidationError as problem:
            self._pass_over(change.raw, problem)
        else:
            if change.gone:
                self._remove(change.key, obj)
            else:
                self._put(change.key, obj, trimmed=True)
        self._reach(str(change.version))

    def _accept(self, raw: msgspec.Raw, gone: bool) -> str:
        """Put an event's object into the store, or out of it; returns its resourceVersion."""
        try:
            obj = decode(raw, self._type)
        except msgspec.ValidationError as problem:
            return self._pass_over(raw, problem)
        namespace, name, uid, version = meta(obj)
        key = f"{namespace}/{name}" if namespace else name
        if gone:
            self._remove(key, obj)
        elif not self._known_better(key, uid, version):
            self._put(key, obj)
        return version

    def _pass_over(self, raw: bytes | msgspec.Raw, problem: msgspec.ValidationError) -> str:
        """An object that does not decode is reported, and no more; returns its resourceVersion."""
        self._report(BadObject(self.resource.name, key_of_raw(raw), str(problem)))
        return decode(raw, Head).metadata.resource_version

    def _reach(self, version: str) -> None:
        """The store is as new as this; those that wait for one of their writes go on."""
        self.version = version
        while self._expected and self._expected[0][0] <= int(version):
            caught_up = heapq.heappop(self._expected)[2]
            if not caught_up.done():
                caught_up.set_result(None)

    def _known_better(self, key: str, uid: str, version: str) -> bool:
        """Whether a writer of ours has already put a newer state of the object into the store."""
        stored = self.store.get(key)
        if stored is None:
            return False
        _, _, stored_uid, newest = meta(stored)
        return stored_uid == uid and int(newest or 0) > int(version)

    def _trimmed(self, obj: T) -> T:
        """What is kept of a listed object: of pods that is a fraction, and all of them are listed at once."""
        assert self._keep is not None
        old = self.store.get(key_of(obj))
        return self._keep(obj, old if old is not None and meta(old)[2] == meta(obj)[2] else None)

    def _put(self, key: str, obj: T, trimmed: bool = False) -> None:
        old = self.store.get(key)
        if old is not None:
            before, now = meta(old), meta(obj)
            if before[2] != now[2]:
                self._remove(key)
                old = None
            elif before[3] == now[3]:
                return
        if self._keep is not None and not trimmed:
            obj = self._keep(obj, old)
        if obj is old:
            return
        self.store.put(key, obj)
        self._notify(CacheChange("added" if old is None else "modified", key, old, obj))

    def _remove(self, key: str, last: T | None = None) -> None:
        """`last` is the state the server sent along; without one, what we knew."""
        stored = self.store.remove(key)
        if stored is not None:
            self._notify(CacheChange("deleted", key, stored if last is None else last, None))

    def _notify(self, change: CacheChange[T]) -> None:
        if self._on_event is not None:
            self._on_event(change)

    def _report(self, bad: BadObject) -> None:
        log.error("object skipped", resource=bad.resource, object=bad.key, problem=bad.problem)
        if self._on_bad is not None:
            self._on_bad(bad)

    def _alive(self) -> None:
        self.heard = self._kube.clock.monotonic()
        self.failure = None

    def _note(self, problem: Exception, failures: int) -> None:
        self.failure = problem if isinstance(problem, KubeError) else Disconnected(f"unreadable stream: {problem}")
        absent = isinstance(problem, NotFound)  # a kind that is not served yet may be one day: no alarm
        absent |= self.optional and isinstance(problem, Forbidden)
        speak = log.debug if absent else log.warning if failures > 2 else log.info
        speak("watch interrupted", resource=self.resource.name, problem=str(problem), failures=failures)

    def _pause(self, failures: int) -> float:
        retry_after = self.failure.retry_after if isinstance(self.failure, ApiError) else None
        return max(retry_after or 0.0, self._backoff.pause(max(failures, 1), self._chance))
