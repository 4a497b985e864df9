"""Calls of webhooks over the network: whole answers, and failures in the words of the real server's client."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from dovetail.clock import run_scaled
from dovetail.kube.certificates import make_certificate
from dovetail.lab.apiserver.server_state import WebhookAnswer
from dovetail.lab.apiserver.webhooks.connection import Unreachable
from dovetail.lab.apiserver.webhooks.https import MAX_ANSWER_BYTES, post

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer_of(handler: Handler, folder: Path, *, trusted: bool = True) -> WebhookAnswer:
    """What a call of a server on the loopback gives that answers with `handler`."""
    made = make_certificate(["localhost"], datetime.now(UTC))
    (folder / "cert").write_bytes(made.certificate)
    (folder / "key").write_bytes(made.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "cert", folder / "key")

    async def main() -> WebhookAnswer:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        authorities = made.authorities if trusted else b""
        try:
            url = f"https://localhost:{port}/hook?timeout=10s"
            return await post(url, b"{}", authorities=authorities, server_name="localhost", target=("localhost", port))
        finally:
            await runner.cleanup()

    return run_scaled(main())


def test_an_answer_in_many_parts_is_read_to_its_end(tmp_path: Path) -> None:
    """A patch that adds a sidecar is larger than what one read of the connection gives."""
    parts = [f'{{"number": {number:06}}}'.encode() * 2000 for number in range(20)]

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "application/json"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0)
        return response

    answer = answer_of(handler, tmp_path)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.body == b"".join(parts)


def test_an_answer_without_end_is_refused(tmp_path: Path) -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 2**16)
            sent += 2**16

    with pytest.raises(Unreachable, match="longer than"):
        answer_of(handler, tmp_path)
    assert sent >= MAX_ANSWER_BYTES


def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response()

    with pytest.raises(Unreachable, match="certificate signed by unknown authority"):
        answer_of(handler, tmp_path, trusted=False)
