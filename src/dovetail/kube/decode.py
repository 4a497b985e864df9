"""From bytes to objects: one cached decoder a type, and the few fields every object has."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from dovetail.model.meta import view

T = TypeVar("T")

#: The type of callers that want the object as it came.
AS_DICT: Any = dict


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Head(msgspec.Struct, frozen=True):
    """Who an object is."""

    metadata: Meta = Meta()


class ListMeta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "continue_": "continue"}):
    resource_version: str = ""
    continue_: str = ""


class Envelope(msgspec.Struct, frozen=True):
    """A list whose items are still bytes, so that one that is odd does not spoil the rest."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {dict: msgspec.json.Decoder(dict[str, Any])}


def decode(data: bytes | msgspec.Raw, type: type[T]) -> T:
    decoder = _decoders.get(type)
    if decoder is None:
        decoder = _decoders[type] = msgspec.json.Decoder(type)
    try:
        decoded: T = decoder.decode(data)
    except msgspec.ValidationError:
        return view(msgspec.json.decode(data), type)  # a server writes null where Go has no list: it means none
    return decoded


def key(namespace: str | None, name: str) -> str:
    """How stores and messages call an object: `namespace/name`, or the name of a cluster-wide one."""
    return f"{namespace}/{name}" if namespace else name


def key_of_raw(raw: bytes | msgspec.Raw) -> str:
    """The key of an object that does not decode otherwise."""
    try:
        head = decode(raw, Head)
    except msgspec.DecodeError:
        return "(an object without readable metadata)"
    return key(head.metadata.namespace, head.metadata.name)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection while many objects are made that all stay: it would look through them in vain."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
