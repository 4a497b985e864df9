"""POST requests to webhooks over TLS; failures in the words of Go's client."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dovetail.lab.apiserver.server_state import WebhookAnswer
from dovetail.lab.apiserver.webhooks.connection import EXPIRED, Unreachable

#: No answer may be longer.
MAX_ANSWER_BYTES = 3 * 2**20


class _Fixed(AbstractResolver):
    """A Service's name leads to its endpoint."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        address, actual = self._target
        return [ResolveResult(hostname=host, host=address, port=actual, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is open."""


async def post(
    url: str, body: bytes, *, authorities: bytes, server_name: str, target: tuple[str, int] | None
) -> WebhookAnswer:
    """A POST over a connection of its own; a redirect is followed as Go's client does, with its method changed."""
    try:
        context = ssl.create_default_context(cadata=authorities.decode() or None)
    except (ssl.SSLError, ValueError):
        raise Unreachable("tls: failed to verify certificate: x509: certificate signed by unknown authority") from None
    headers = {"content-type": "application/json", "accept": "application/json, */*"}
    if target is not None and target[0] == "localhost":
        target = ("127.0.0.1", target[1])
    connector = aiohttp.TCPConnector(ssl=context, resolver=None if target is None else _Fixed(target))
    try:
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=body, headers=headers, server_hostname=server_name or None) as response,
        ):
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > MAX_ANSWER_BYTES:
                    raise Unreachable(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
            return WebhookAnswer(response.status, bytes(content), response.headers.get("content-type", ""))
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable(_reason(error, url)) from error


def _reason(error: Exception, url: str) -> str:
    """A failed connection in the words of Go's client."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {_certificate(error.certificate_error, url)}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(error.os_error, ConnectionRefusedError):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error)


def _certificate(error: Exception, url: str) -> str:
    text = getattr(error, "verify_message", "") or str(error)
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return f"x509: certificate is not valid for {urlsplit(url).hostname}"
    if "expired" in text:
        return EXPIRED
    return "x509: certificate signed by unknown authority"
