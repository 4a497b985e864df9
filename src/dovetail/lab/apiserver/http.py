"""The HTTP mount: aiohttp.web around the core, on the loopback."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from aiohttp import web

from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.responses import JSON_HEADERS
from dovetail.lab.apiserver.status_errors import StatusError, bad_request, internal_error
from dovetail.runtime.http_log import http_log

_log = logging.getLogger("dovetail.apiserver")

MAX_BODY = 3 * 1024 * 1024


class Core(Protocol):
    """What is served: a request in, a response out. It receives the address it got."""

    address: str

    async def handle(self, request: Request) -> Response: ...


class HttpMount:
    """Serves a core over HTTP until closed."""

    def __init__(
        self, server: Core, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
    ) -> None:
        self.server = server
        self.host = host
        self.port = port
        self.context = context
        #: Handlers beside the API, tried first (the dashboard, fault injection).
        self.before: Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]] | None = None
        self._runner: web.ServerRunner | None = None

    async def start(self) -> None:
        serving = web.Server(self._answer, request_factory=_request, access_log=None, logger=http_log)
        self._runner = web.ServerRunner(serving, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, ssl_context=self.context)
        await site.start()
        sockets = site._server.sockets if isinstance(site._server, asyncio.Server) else []
        if sockets:
            self.port = sockets[0].getsockname()[1]
        self.server.address = f"{self.host}:{self.port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, incoming: web.BaseRequest) -> web.StreamResponse:
        if self.before is not None:
            taken = await self.before(incoming)
            if taken is not None:
                return taken
        try:
            body = await incoming.read() if incoming.body_exists else b""
        except (web.RequestPayloadError, ConnectionResetError) as problem:  # wrongly encoded, or cut off by the client
            return self._complete(_failed(bad_request(f"the body of the request cannot be read: {problem}")))
        if len(body) > MAX_BODY:
            return self._complete(_too_large())
        request = Request(
            method=incoming.method,
            path=incoming.rel_url.path,
            query=tuple(incoming.rel_url.query.items()),
            headers={name.lower(): _text(value) for name, value in incoming.headers.items()},
            body=body,
        )
        try:
            response = await self.server.handle(request)
        except Exception:  # the client gets a Status, the log the traceback
            _log.exception("request failed: %s %s", incoming.method, incoming.rel_url)
            failed = internal_error("the lab's API server failed; its log says where")
            response = Response(status=500, headers=JSON_HEADERS, body=msgspec.json.encode(failed.status()))
        if response.stream is not None:
            return await self._stream(incoming, response)
        return self._complete(response)

    def _complete(self, response: Response) -> web.Response:
        """An answer in one piece; never compressed, for on the loopback that only costs both sides time."""
        out = web.Response(status=response.status, body=response.body)
        _headers(out, response)
        return out

    async def _stream(self, incoming: web.BaseRequest, response: Response) -> web.StreamResponse:
        out = web.StreamResponse(status=response.status)
        _headers(out, response)
        out.enable_chunked_encoding()
        await out.prepare(incoming)
        assert response.stream is not None
        try:
            async for chunk in response.stream:
                await out.write(chunk)
            await out.write_eof()
        except (ConnectionResetError, asyncio.CancelledError):
            pass  # the watcher disconnected
        finally:
            close = getattr(response.stream, "aclose", None)
            if close is not None:
                await close()
        return out


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]) -> web.BaseRequest:
    """A request without aiohttp's own limit: the API server has one, and its own words for it."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=0)


def _text(value: str) -> str:
    """A header's value; bytes that are no UTF-8 are marked, for they can be neither written nor logged."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _too_large() -> Response:
    return _failed(StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}"))


def _failed(error: StatusError) -> Response:
    return Response(status=error.code, headers=JSON_HEADERS, body=msgspec.json.encode(error.status()))


def _headers(out: web.StreamResponse, response: Response) -> None:
    for name, value in response.headers.items():
        if name == "warning":
            for line in value.split("\n"):
                out.headers.add("Warning", line)
        elif name == "content-type":
            out.headers["Content-Type"] = value
        else:
            out.headers[name.title()] = value
