"""The Kubernetes interface: a request goes in, a response or a stream of bytes comes out.

The HTTP transport and the lab's API server both speak these types, so a client cannot tell a server
across the network from one in the same process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

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


@runtime_checkable
class Neighbour(Protocol):
    """A transport to a server in the same process, which takes what is done to many pods as it is, without a request.

    Each method may decline, and leaves no trace then: the request goes the usual way.
    """

    def cast(self, namespace: str, body: bytes, type: type[T]) -> T | None:
        """Make a pod from bytes that one was made from before."""

    def bind(self, namespace: str, name: str, node: str, uid: str | None) -> bool: ...

    def report(self, namespace: str, name: str, body: Mapping[str, Any]) -> bool:
        """A strategic patch of a pod's status."""
