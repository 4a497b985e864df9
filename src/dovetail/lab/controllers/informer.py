"""A reflector that every controller of the process shares: one watch a resource, several listeners.

Controllers read their own writes: `seen(version)` waits until the store has caught up with a write, so no controller
acts twice on an old view. That replaces Kubernetes' expectations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, ValuesView
from typing import Generic, TypeVar

from dovetail.kube.client import Kube
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import Resource
from dovetail.kube.store import Index
from dovetail.lab.pushed_changes import Keep

T = TypeVar("T")
Listener = Callable[[T | None, T | None], None]
#: What an object is filed under in an index.
Filing = Callable[[T], str | None]


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
        self._reflector: Reflector[T] = Reflector(
            kube,
            resource,
            type,
            on_event=self._changed,
            keep=keep,
            indices={name: _index(filing) for name, filing in (indices or {}).items()},
            fields=fields,
            namespace=namespace,
        )
        self._store = self._reflector.store
        self._listeners: list[Listener[T]] = []
        self.resource = resource
        self.synced = self._reflector.synced

    async def run(self) -> None:
        await self._reflector.run()

    def listen(self, listener: Listener[T]) -> None:
        self._listeners.append(listener)

    def get(self, key: str) -> T | None:
        return self._store.get(key)

    def all(self) -> ValuesView[T]:
        return self._store.all()

    def items(self) -> Iterable[tuple[str, T]]:
        return self._store.items()

    def __len__(self) -> int:
        return len(self._store)

    def by(self, index: str, value: str) -> list[T]:
        return self._store.by(index, value)

    def count(self, index: str, value: str) -> int:
        return self._store.count(index, value)

    async def seen(self, version: str | int) -> None:
        """Wait until the store is at least as new as a write that answered with this resourceVersion."""
        await self._reflector.seen(version)

    def _changed(self, change: CacheChange[T]) -> None:
        for listener in self._listeners:
            listener(change.old, change.new)


def _index(filing: Filing[T]) -> Index[T]:
    def values(item: T) -> tuple[Hashable, ...]:
        value = filing(item)
        return () if value is None else (value,)

    return values
