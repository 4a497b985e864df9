"""The HTTP transport: any API server across a socket, with aiohttp underneath.

Timeouts are real seconds even on a scaled loop: a server does not answer faster because our days are short.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import quote, urlencode
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp
from yarl import URL

from dovetail.kube.errors import Disconnected
from dovetail.kube.log import Log
from dovetail.kube.transport import Request, Response
from dovetail.language import message

log = Log(__name__)

_STREAMING = ("watch", "follow")
_FALSE = ("0", "false")


class Credentials(Protocol):
    """Headers that prove who we are; asked before every request, notified when the server did not accept them."""

    async def headers(self) -> Mapping[str, str]: ...

    def rejected(self) -> bool:
        """The server said 401. True if asking for headers again may bring better ones."""
        ...


class Anonymous:
    """No credentials, or those of the TLS client certificate."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    def rejected(self) -> bool:
        return False


class Bearer:
    """A fixed token."""

    def __init__(self, token: str, scheme: str = "Bearer") -> None:
        self._headers = {"authorization": f"{scheme} {token}"}

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    def rejected(self) -> bool:
        return False


class Http:
    """Sends requests to `server` (a URL); keeps connections alive between them."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | bool = True,
        credentials: Credentials | None = None,
        proxy: str | None = None,
        server_name: str | None = None,
        timeout: float = 30.0,
        connections: int = 200,
    ) -> None:
        self.server = server.rstrip("/")
        self._tls = tls
        self._credentials: Credentials = credentials or Anonymous()
        self.proxy = proxy or _environment_proxy(self.server)
        self._server_name = server_name
        self._timeout = timeout
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        response = await self._once(request)
        if response.status == 401 and self._credentials.rejected():
            response = await self._once(request)
        return response

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _once(self, request: Request) -> Response:
        merged = {**await self._credentials.headers(), **request.headers}
        headers = {name: value for name, value in merged.items() if value}
        try:
            answer = await self._trusted(request, headers)
            if _streams(request) and answer.status < 400 and answer.content_length is None:
                stream = _Stream(answer, self._where(request))
                return Response(status=answer.status, headers=_headers(answer), stream=stream)
            async with answer:
                body = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise Disconnected(
                message("{server} cannot be reached: {problem}", server=self.server, problem=problem), sent=False
            ) from problem
        except TimeoutError as problem:
            raise Disconnected(
                message("{where}: no answer within {timeout:g} s", where=self._where(request), timeout=self._timeout)
            ) from problem
        except (aiohttp.ClientError, OSError) as problem:
            raise Disconnected(
                message("{where}: the connection broke: {problem!r}", where=self._where(request), problem=problem)
            ) from problem
        return Response(status=answer.status, headers=_headers(answer), body=body)

    async def _trusted(self, request: Request, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Open a request. Where the strict profile refuses the server's certificate and the usual rules do not, go on
        with those: clusters make their own authorities, and some lack what RFC 5280 asks of one.
        """
        try:
            return await self._open(request, headers)
        except aiohttp.ClientConnectorCertificateError as refusal:
            tls = self._tls
            if not isinstance(tls, ssl.SSLContext) or not tls.verify_flags & ssl.VERIFY_X509_STRICT:
                raise
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
            try:
                answer = await self._open(request, headers)
            except aiohttp.ClientError:
                tls.verify_flags |= ssl.VERIFY_X509_STRICT
                raise
            log.warning(
                "certificate does not meet RFC 5280, verifying by the usual rules",
                server=self.server,
                problem=str(refusal.certificate_error),
            )
            return answer

    async def _open(self, request: Request, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        session = self._session or self._start()
        scaled = self._timeout * getattr(asyncio.get_running_loop(), "speed", 1.0)
        whole = None if _streams(request) else scaled
        return await session.request(
            request.method,
            _url(self.server, request),
            headers=headers,
            data=request.body or None,
            proxy=self.proxy,
            server_hostname=self._server_name,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=whole, sock_connect=scaled),
        )

    def _start(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=self._tls, limit=self._connections, keepalive_timeout=60, socket_factory=_keepalive_socket
        )
        self._session = aiohttp.ClientSession(
            connector=connector, skip_auto_headers=("User-Agent",), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self._session

    def _where(self, request: Request) -> str:
        return f"{request.method} {self.server}{request.path}"


def _url(server: str, request: Request) -> URL:
    query = f"?{urlencode(request.query)}" if request.query else ""
    return URL(f"{server}{quote(request.path, safe='/:@!$&()*+,;=~')}{query}", encoded=True)


def _streams(request: Request) -> bool:
    """By the rule of the API server: whatever does not say no says yes."""
    return any(name in _STREAMING and value.lower() not in _FALSE for name, value in request.query)


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Names in lower case. A header that comes several times has a line each: warnings contain commas."""
    return {name.lower(): "\n".join(answer.headers.getall(name)) for name in answer.headers}


def _environment_proxy(server: str) -> str | None:
    """What HTTPS_PROXY and NO_PROXY say about a server; never a proxy to this host itself."""
    url = URL(server)
    host = url.host or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    proxies = getproxies_environment()
    return proxies.get(url.scheme) or proxies.get("all")


class _Stream:
    """The body of a response as it arrives. Closing it gives the connection up, read or not."""

    def __init__(self, answer: aiohttp.ClientResponse, where: str) -> None:
        self._answer = answer
        self._chunks = answer.content.iter_any()
        self._where = where

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._chunks.__anext__()
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            raise Disconnected(
                message("{where}: the stream broke: {problem!r}", where=self._where, problem=problem)
            ) from problem

    async def aclose(self) -> None:
        self._answer.close()


def _keepalive_socket(
    address: tuple[socket.AddressFamily | int, socket.SocketKind | int, int, str, tuple[object, ...]],
) -> socket.socket:
    """Dead peers are noticed: a watch may be silent for minutes."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
