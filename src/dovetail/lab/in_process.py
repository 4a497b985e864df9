"""The transport of simulations: the API server is in the same process, and a request is a function call.

Bytes cross the border in both directions, so neither side can change the other's objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from dovetail.kube.transport import Request, Response


class Handler(Protocol):
    """A server core: what the lab's API server offers."""

    async def handle(self, request: Request) -> Response: ...


class InProcess:
    """Calls a server core. `headers` are added to every request (an `authorization`, say)."""

    def __init__(self, server: Handler, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._headers = dict(headers or {})

    async def send(self, request: Request) -> Response:
        if self._headers:
            request = msgspec.structs.replace(request, headers={**self._headers, **request.headers})
        return await self._server.handle(request)

    async def close(self) -> None:
        """Nothing to close: the server belongs to the code that started it."""
