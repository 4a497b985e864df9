"""News without a watch: a server in the same process tells of a change at once, decoded once for all who ask.

A transport that can do so has a method `feed`; whoever keeps a mirror asks `feed_of` and falls back to watching.
Where the server knows what is new about an object, the view of it is the view from before with that put in: nothing
is decoded, and what did not change stays the same Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from dovetail.kube.decode import decode
from dovetail.kube.transport import Transport

T = TypeVar("T")
#: What a mirror makes of a fresh view, given the one it holds.
Keep = Callable[[T, T | None], T]
#: New values by part of the object (metadata, spec, status) and field.
Difference = Mapping[str, Mapping[str, Any]]


class Mold:
    """What many objects are copies of; its views are made once."""

    __slots__ = ("_views", "obj", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.obj: dict[str, Any] = decode(raw, dict)
        self._views: dict[Any, Any] = {}

    def view(self, type: Any, keep: Keep[Any] | None) -> Any:
        found = self._views.get((type, keep))
        if found is None:
            found = decode(self.raw, type)
            found = self._views[type, keep] = found if keep is None else keep(found, None)
        return found


class News:
    """A change: the object's key and version, how to read it, whether it is gone. Views are frozen and shared.

    With a `difference` it is as the mold, or else as the state before under version `before`, but for that.
    """

    __slots__ = ("_before", "_difference", "_mold", "_read", "_views", "gone", "key", "version")

    def __init__(
        self, key: str, version: int, read: Callable[[], bytes], gone: bool = False, *,
        difference: Difference | None = None, mold: Mold | None = None, before: int = 0,
    ) -> None:  # fmt: skip
        self.key = key
        self.version = version
        self.gone = gone
        self._read = read
        self._difference = difference
        self._mold = mold
        self._before = str(before)
        self._views: dict[Any, Any] = {}

    @property
    def raw(self) -> bytes:
        return self._read()

    def view(self, type: type[T], held: T | None = None, keep: Keep[T] | None = None) -> T:
        """The object, as a mirror that holds `held` keeps it."""
        derived = self._derived(type, held, keep)
        if derived is not None:
            return derived
        found: T | None = self._views.get(type)
        if found is None:
            found = self._views[type] = decode(self.raw, type)
        return found if keep is None else keep(found, held)

    def _derived(self, type: type[T], held: Any, keep: Keep[T] | None) -> T | None:
        if self._difference is None or not issubclass(type, msgspec.Struct):
            return None
        try:
            if self._mold is not None:
                copy: T = amended(self._mold.view(type, keep), self._difference)
                return copy
            if held is None or held.metadata.resource_version != self._before:
                return None
            fresh: T = amended(held, self._difference)
        except msgspec.ValidationError:
            return None  # a null where the type has none: whoever decodes the whole object knows what it means
        return fresh if keep is None else keep(fresh, held)


def amended(base: T, difference: Difference) -> T:
    """A view with new values in its parts."""
    parts: dict[str, Any] = {}
    for part, values in difference.items():
        if values:
            held = getattr(base, part)
            parts[part] = msgspec.structs.replace(held, **_read(type(held), values))
    return msgspec.structs.replace(base, **parts)  # type: ignore[type-var]


def _read(type: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as attributes of a struct."""
    plain, composed = _attributes(type, tuple(values))
    read = {attribute: values[name] for name, attribute in plain}
    if composed:
        whole = msgspec.convert({name: values[name] for name, _ in composed}, type)
        for _, attribute in composed:
            read[attribute] = getattr(whole, attribute)
    return read


_PLAIN = (str, int, dict[str, str], Mapping[str, str])
_Attributes = list[tuple[str, str]]


@cache
def _attributes(type: Any, names: tuple[str, ...]) -> tuple[_Attributes, _Attributes]:
    """Fields and their attributes: those that hold what JSON holds, and those that are read into something."""
    plain: _Attributes = []
    composed: _Attributes = []
    for field in msgspec.structs.fields(type):
        if field.encode_name in names:
            (plain if field.type in _PLAIN else composed).append((field.encode_name, field.name))
    return plain, composed


Told = Callable[[News], None]
#: Ends a subscription.
Stop = Callable[[], None]


@runtime_checkable
class Feeding(Protocol):
    """A transport whose server tells by itself."""

    def feed(self, group: str, plural: str, told: Told) -> Stop: ...


def feed_of(transport: Transport) -> Callable[[str, str, Told], Stop] | None:
    """How to be told of changes, where that is possible."""
    return transport.feed if isinstance(transport, Feeding) else None
