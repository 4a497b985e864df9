"""The local copy of a watched kind: objects by key, and by whatever an index says.

Objects are frozen and shared; they are never copied. Reading is synchronous, so a reader sees one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Generic, TypeVar

from dovetail.kube import decode

T = TypeVar("T")
Index = Callable[[T], Iterable[Hashable]]


def key_of(obj: Any) -> str:
    """`namespace/name`, or the name of a cluster-wide object; for structs and dicts."""
    metadata = meta(obj)
    return decode.key(metadata[0], metadata[1])


def meta(obj: Any) -> tuple[str, str, str, str]:
    """Namespace, name, uid and resourceVersion."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata") or {}
        return (
            metadata.get("namespace") or "",
            metadata.get("name") or "",
            metadata.get("uid") or "",
            metadata.get("resourceVersion") or "",
        )
    object_meta = obj.metadata
    return (
        object_meta.namespace or "",
        object_meta.name or "",
        object_meta.uid or "",
        object_meta.resource_version or "",
    )


class Store(Generic[T]):
    """Objects of one kind. `indices` name functions from an object to the values it is found by."""

    def __init__(self, indices: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[str, T] = {}
        self._indices: dict[str, Index[T]] = dict(indices or {})
        self._found: dict[str, dict[Hashable, dict[str, None]]] = {name: {} for name in self._indices}

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def all(self) -> ValuesView[T]:
        return self._objects.values()

    def keys(self) -> Iterable[str]:
        return self._objects.keys()

    def items(self) -> ItemsView[str, T]:
        return self._objects.items()

    def by(self, index: str, value: Hashable) -> list[T]:
        """The objects that `index` finds under `value`, in the order they came there."""
        return [self._objects[key] for key in self._found[index].get(value, ())]

    def count(self, index: str, value: Hashable) -> int:
        return len(self._found[index].get(value, ()))

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: str) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def put(self, key: str, obj: T) -> T | None:
        """Store; returns what was there. An object keeps its place in an index while it changes."""
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, index in self._indices.items():
            entries, values = self._found[name], tuple(index(obj))
            if old is not None:
                former = tuple(index(old))
                if former == values:
                    continue
                _forget(entries, key, (value for value in former if value not in values))
            for value in values:
                entries.setdefault(value, {})[key] = None
        return old

    def remove(self, key: str) -> T | None:
        old = self._objects.pop(key, None)
        if old is not None:
            for name, index in self._indices.items():
                _forget(self._found[name], key, index(old))
        return old


def _forget(entries: dict[Hashable, dict[str, None]], key: str, values: Iterable[Hashable]) -> None:
    for value in values:
        keys = entries.get(value)
        if keys is not None:
            keys.pop(key, None)
            if not keys:
                del entries[value]
