"""News without a watch: a server in the same process tells of a change at once, decoded once for all who ask.

A transport that can do so has a method `feed`; whoever keeps a mirror asks `feed_of` and falls back to watching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from dovetail.kube.decode import decode
from dovetail.kube.transport import Transport

T = TypeVar("T")


class News:
    """A change: the object's bytes, and whether it is gone. Views are frozen and shared by everybody who is told."""

    __slots__ = ("_views", "gone", "raw")

    def __init__(self, raw: bytes, gone: bool) -> None:
        self.raw = raw
        self.gone = gone
        self._views: dict[Any, Any] = {}

    def view(self, type: type[T]) -> T:
        found: T | None = self._views.get(type)
        if found is None:
            found = self._views[type] = decode(self.raw, type)
        return found


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
