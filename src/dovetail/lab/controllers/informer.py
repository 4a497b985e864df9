"""One watch a resource, shared by every controller of the process: a store, indices, listeners.

Controllers read their own writes: `seen(version)` waits until the store has caught up with a write, so no controller
acts twice on an old view. That replaces Kubernetes' expectations.

It is not `kube.reflector`, which follows any server for months: it has no unreadable objects to step over and no
silence to measure. And an object keeps its place in an index while it changes; the order in which the lab's
controllers act rests on that.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, BadRequest, Disconnected, Gone
from dovetail.kube.resources import Resource
from dovetail.kube.transport import OnChange, PushedChange, Stop, subscription_of
from dovetail.lab.pushed_changes import Keep

T = TypeVar("T")
Listener = Callable[[T | None, T | None], None]
#: What an object is filed under in an index.
Filing = Callable[[T], str | None]
_Index = dict[str, dict[str, T]]
_Places = list[str | None]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = "0"


class _Versioned(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()


def key_of(item: Any) -> str:
    """`namespace/name`, or the name of a cluster-wide object."""
    if isinstance(item, dict):
        metadata = item["metadata"]
        namespace = metadata.get("namespace")
        return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
    return str(item.metadata.key)


class Informer(Generic[T]):
    """The live store of one resource. Listeners get (old, new); old is None for new objects, new for gone ones."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        type: type[T],
        indices: Mapping[str, Filing[T]] | None = None,
        *,
        fields: str | None = None,
        namespace: str | None = None,
        keep: Keep[T] | None = None,
    ) -> None:
        self.resource = resource
        self.objects: dict[str, T] = {}
        self.synced = asyncio.Event()
        self.version = 0
        self._kube = kube
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type)
        self._type = type
        self._fields = fields
        self._namespace = namespace
        self._keep = keep
        self._listeners: list[Listener[T]] = []
        self._indices: dict[str, _Index[T]] = {name: {} for name in indices or {}}
        self._filings: list[Filing[T]] = list((indices or {}).values())
        #: Where every object is filed, index by index.
        self._places: dict[str, _Places] = {}
        self._nowhere: _Places = [None] * len(self._filings)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def listen(self, listener: Listener[T]) -> None:
        self._listeners.append(listener)

    def get(self, key: str) -> T | None:
        return self.objects.get(key)

    def all(self) -> Iterable[T]:
        return self.objects.values()

    def by(self, index: str, value: str) -> list[T]:
        return list(self._indices[index].get(value, {}).values())

    def count(self, index: str, value: str) -> int:
        return len(self._indices[index].get(value, ()))

    async def seen(self, version: str | int) -> None:
        """Wait until the store is at least as new as a write that answered with this resourceVersion."""
        wanted = int(version)
        if wanted <= self.version:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (wanted, id(future), future))
        await future

    async def run(self) -> None:
        """List, then watch for ever; a watch that breaks goes on where it was, or lists again."""
        subscribe = subscription_of(self._kube.transport)
        if subscribe is not None and self._fields is None and self._namespace is None:
            await self._follow_pushed(subscribe)
        pause = 0.0
        while True:
            try:
                await self._list()
                pause = 0.0
                while True:
                    await self._watch()
            except Gone:
                continue
            except BadRequest:
                raise  # asking the same again would be refused again
            except (Disconnected, ApiError):
                pause = min(30.0, pause * 2 or 0.8)
                await asyncio.sleep(pause)

    async def _list(self) -> None:
        listing = await self._kube.list(self.resource, self._namespace, fields=self._fields, type=self._type)
        listed = {key_of(item): item for item in listing.items}
        if self._keep is not None:
            listed = {key: self._keep(item, self.objects.get(key)) for key, item in listed.items()}
        for key in [key for key in self.objects if key not in listed]:
            self._put(key, None)
        for key, item in listed.items():
            if self.objects.get(key) != item:
                self._put(key, item)
        self._advance(int(listing.resource_version))
        self.synced.set()

    async def _follow_pushed(self, subscribe: Callable[[str, str, OnChange], Stop]) -> None:
        """In the process of the server, changes are delivered at once instead of watched."""
        await self._list()
        stop = subscribe(self.resource.group, self.resource.plural, self._deliver)
        try:
            await asyncio.Event().wait()
        finally:
            stop()

    def _deliver(self, change: PushedChange) -> None:
        item = change.view(self._type, self.objects.get(change.key), self._keep)
        self._put(change.key, None if change.gone else item, item)
        self._advance(change.version)

    async def _watch(self) -> None:
        watch = self._kube.watch_raw(
            self.resource, self._namespace, fields=self._fields, resource_version=str(self.version)
        )
        try:
            async for event in watch:
                if event.type == "BOOKMARK":
                    mark = msgspec.json.decode(event.object, type=_Versioned)
                    self._advance(int(mark.metadata.resource_version))
                    continue
                item = self._decoder.decode(event.object)
                key = key_of(item)
                if self._keep is not None:
                    item = self._keep(item, self.objects.get(key))
                self._put(key, None if event.type == "DELETED" else item, item)
                self._advance(_version_of(item))
        finally:
            await watch.aclose()
        await asyncio.sleep(0)

    def _put(self, key: str, new: T | None, last: T | None = None) -> None:
        old = self.objects.get(key)
        if new is not None:
            self.objects[key] = new
            if self._filings:
                self._file(key, new)
        elif old is not None:
            del self.objects[key]
            if self._filings:
                self._find_no_more(key)
            old = last or old
        else:
            return
        for listener in self._listeners:
            listener(old, new)

    def _file(self, key: str, new: T) -> None:
        """Find an object under what it says now, and no more under what it said before."""
        places = [filing(new) for filing in self._filings]
        before = self._places.get(key, self._nowhere)
        for index, old, place in zip(self._indices.values(), before, places, strict=True):
            if old != place and old is not None:
                _unfile(index, old, key)
            if place is not None:
                index.setdefault(place, {})[key] = new
        self._places[key] = places

    def _find_no_more(self, key: str) -> None:
        for index, place in zip(self._indices.values(), self._places.pop(key), strict=True):
            if place is not None:
                _unfile(index, place, key)

    def _advance(self, version: int) -> None:
        self.version = max(self.version, version)
        while self._waiting and self._waiting[0][0] <= self.version:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(None)


def _unfile(index: _Index[T], value: str, key: str) -> None:
    group = index.get(value)
    if group is not None:
        group.pop(key, None)
        if not group:
            del index[value]


def _version_of(item: Any) -> int:
    version = item["metadata"]["resourceVersion"] if isinstance(item, dict) else item.metadata.resource_version
    return int(version)
