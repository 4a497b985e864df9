"""Changes without a watch: a server in the same process delivers a change at once, decoded once for all subscribers.

The transport that does so is a `kube.transport.PushTransport`. Where the server knows which fields are new, the view
of the object is the view from before with those fields replaced: nothing is decoded, and what did not change stays
the same Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import fields, replace

from dovetail.kube.decode import decode

T = TypeVar("T")
View = TypeVar("View", bound=msgspec.Struct)
#: What a cache makes of a fresh view, given the one it holds.
Keep = Callable[[T, T | None], T]
#: New values by part of the object (metadata, spec, status) and field.
Parts = dict[str, dict[str, Any]]


class ObjectMold:
    """What many objects are copies of; its views are made once."""

    __slots__ = ("_views", "obj", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.obj: dict[str, Any] = decode(raw, dict)
        self._views: dict[Any, Any] = {}

    def view(self, type: Any, keep: Keep[Any] | None) -> Any:
        view = self._views.get((type, keep))
        if view is None:
            view = decode(self.raw, type)
            view = self._views[type, keep] = view if keep is None else keep(view, None)
        return view


class ViewDifference:
    """What is new about an object, to be put into whatever view of it a cache holds."""

    __slots__ = ("_parts", "_shape")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._shape = tuple([(part, *values) for part, values in parts.items()])

    def put_into(self, base: View) -> View:
        """A view with the new values in its parts."""
        amended: dict[str, Any] = {}
        for part, plain, composed in _plan(type(base), self._shape):
            values = self._parts[part]
            new = {}
            for attribute, name in plain:
                new[attribute] = values[name]
            for attribute, name, read in composed:
                new[attribute] = read(values[name])
            amended[part] = replace(getattr(base, part), **new)
        return replace(base, **amended)


class _Reader:
    """Reads the values of a type of field. Objects that are alike change one after the other: what is equal to the
    value before is read as that was."""

    __slots__ = ("_last", "_read", "_type")

    def __init__(self, type: Any) -> None:
        self._type = type
        self._last: Any = _NOTHING
        self._read: Any = None

    def __call__(self, value: Any) -> Any:
        if value != self._last:
            self._read = msgspec.convert(value, self._type)
            self._last = value
        return self._read


_NOTHING = object()
_reader = cache(_Reader)
#: Of fields that hold what JSON holds.
_PLAIN = (str, int, bool, str | None, int | None, dict[str, str], Mapping[str, str])
_Plan = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str, _Reader], ...]]


@cache
def _plan(type: Any, shape: tuple[tuple[str, ...], ...]) -> tuple[_Plan, ...]:
    """By part of a view the attributes that hold the fields of a difference: as they are, and as they are read."""
    parts = {field.name: field.type for field in fields(type)}
    plans = []
    for part, *names in shape:
        read_fields = [field for field in fields(parts[part]) if field.encode_name in names] if part in parts else []
        plain = tuple((field.name, field.encode_name) for field in read_fields if field.type in _PLAIN)
        composed = tuple(
            (field.name, field.encode_name, _reader(field.type)) for field in read_fields if field.type not in _PLAIN
        )
        if read_fields:
            plans.append((part, plain, composed))
    return tuple(plans)


class ObjectChange:
    """A change: the object's key and version, how to read it, whether it is gone. Views are frozen and shared.

    With a `difference` it is as the mold, or else as the state before under version `before`, but for that.
    """

    __slots__ = ("_before", "_difference", "_mold", "_read", "_views", "gone", "key", "version")

    def __init__(
        self,
        key: str,
        version: int,
        read: Callable[[], bytes],
        gone: bool = False,
        *,
        difference: ViewDifference | None = None,
        mold: ObjectMold | None = None,
        before: int = 0,
    ) -> None:
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

    def view(self, type: type[T], cached: T | None = None, keep: Keep[T] | None = None) -> T:
        """The object, as a cache that holds `cached` keeps it."""
        derived = self._derived(type, cached, keep)
        if derived is not None:
            return derived
        view: T | None = self._views.get(type)
        if view is None:
            view = self._views[type] = decode(self.raw, type)
        return view if keep is None else keep(view, cached)

    def _derived(self, type: type[T], cached: Any, keep: Keep[T] | None) -> T | None:
        difference = self._difference
        if difference is None or not issubclass(type, msgspec.Struct):
            return None
        try:
            if self._mold is not None:
                copy: T = difference.put_into(self._mold.view(type, keep))
                return copy
            if cached is None or cached.metadata.resource_version != self._before:
                return None
            fresh: T = difference.put_into(cached)
        except msgspec.ValidationError:
            return None  # a null where the type has none: decoding the whole object tells what it means
        return fresh if keep is None else keep(fresh, cached)
