"""The Kubernetes interface: a request goes in, a response or a stream of bytes comes out.

The HTTP transport and the lab's API server both speak these types, so a client cannot tell a server
across the network from one in the same process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

T = TypeVar("T")
#: The header in which a lab says what time it is there, where its time is not the wall's.
LAB_TIME = "x-dovetail-time"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One API request. `query` keeps order and repeats; header names are lower case."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    body: bytes = b""

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter."""
        return next((value for key, value in self.query if key == name), None)


class Response(msgspec.Struct, kw_only=True):
    """Either `body`, or `stream`: chunks of bytes that arrive over time (a watch, a followed log).

    The caller that takes a response with a stream closes the stream (`aclose`).
    """

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""
    stream: AsyncIterator[bytes] | None = None


class Transport(Protocol):
    """Carries requests to an API server."""

    async def send(self, request: Request) -> Response: ...

    async def close(self) -> None: ...


class PushedChange(Protocol):
    """A change of one object, delivered by a call: its key and version, how to read it, whether the object is gone."""

    key: str
    version: int
    gone: bool

    @property
    def raw(self) -> bytes: ...

    def view(self, type: type[T], cached: T | None = None, keep: Callable[[T, T | None], T] | None = None) -> T:
        """The object as `type`, given the view that the cache holds."""


OnChange = Callable[[PushedChange], None]
#: Ends a subscription.
Stop = Callable[[], None]


@runtime_checkable
class PushTransport(Protocol):
    """A transport that delivers changes by calls, so that a cache above it needs no watch."""

    def subscribe(self, group: str, plural: str, on_change: OnChange) -> Stop: ...


def subscription_of(transport: Transport) -> Callable[[str, str, OnChange], Stop] | None:
    """How to subscribe to changes, where the transport delivers them."""
    return transport.subscribe if isinstance(transport, PushTransport) else None
