"""The HTTP transport against a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

import msgspec
import pytest
from aiohttp import web

from dovetail.clock import Clock, ScaledLoop, run_scaled
from dovetail.kube.client import Kube
from dovetail.kube.errors import Disconnected
from dovetail.kube.http import Bearer, Http
from dovetail.kube.resources import PODS
from dovetail.kube.transport import Request
from tests.kube.scripted import event, pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def serve(handler: Handler) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


def test_method_path_query_headers_and_body_arrive_as_sent() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            seen = {
                "path": request.path,
                "query": list(request.query.items()),
                "type": request.headers["content-type"],
                "token": request.headers["authorization"],
                "body": (await request.read()).decode(),
            }
            return web.json_response(seen, status=201)

        runner, url = await serve(handler)
        transport = Http(url + "/", credentials=Bearer("t"))
        sent = Request(
            method="PATCH",
            path="/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
            query=(("labelSelector", "a in (b,c),d!=é"), ("x", "1"), ("x", "2")),
            headers={"content-type": "application/merge-patch+json"},
            body=b"{}",
        )
        response = await transport.send(sent)
        await transport.close()
        await runner.cleanup()
        assert response.status == 201
        assert msgspec.json.decode(response.body) == {
            "path": sent.path,
            "query": [list(pair) for pair in sent.query],
            "type": "application/merge-patch+json",
            "token": "Bearer t",
            "body": "{}",
        }

    asyncio.run(main())


def test_a_watch_streams_and_leaving_it_frees_the_server() -> None:
    async def main() -> None:
        gone = asyncio.Event()

        async def handler(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                for n in range(3):
                    await response.write(msgspec.json.encode(event("ADDED", pod(f"p{n}", n))) + b"\n")
                await asyncio.sleep(60)
            finally:
                gone.set()
            return response

        runner, url = await serve(handler)
        kube = Kube(Http(url), Clock(asyncio.get_running_loop()))
        names = []
        async with aclosing(kube.watch(PODS)) as events:  # type: ignore[type-var]
            async for one in events:
                names.append(one.object["metadata"]["name"])
                if len(names) == 3:
                    break
        async with asyncio.timeout(5):
            await gone.wait()
        await kube.close()
        await runner.cleanup()
        assert names == ["p0", "p1", "p2"]

    asyncio.run(main())


def test_a_server_that_is_not_there_was_surely_not_reached() -> None:
    async def main() -> None:
        transport = Http("http://127.0.0.1:1")
        with pytest.raises(Disconnected, match="cannot be reached") as caught:
            await transport.send(Request(method="GET", path="/version"))
        assert not caught.value.sent
        await transport.close()

    asyncio.run(main())


def test_a_connection_that_breaks_may_have_reached_it() -> None:
    async def main() -> None:
        async def handler(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()

        runner, url = await serve(handler)
        transport = Http(url)
        with pytest.raises(Disconnected, match="connection broke") as caught:
            await transport.send(Request(method="POST", path="/api/v1/pods"))
        assert caught.value.sent
        await transport.close()
        await runner.cleanup()

    asyncio.run(main())


def test_a_rejected_token_is_asked_for_again_once() -> None:
    class Renewed:
        def __init__(self) -> None:
            self.token = 1

        async def headers(self) -> dict[str, str]:
            return {"authorization": f"Bearer {self.token}"}

        def rejected(self) -> bool:
            self.token += 1
            return True

    async def main() -> list[str]:
        seen: list[str] = []

        async def handler(request: web.Request) -> web.Response:
            seen.append(request.headers["authorization"])
            return web.Response(status=200 if seen[-1] == "Bearer 2" else 401)

        runner, url = await serve(handler)
        transport = Http(url, credentials=Renewed())
        assert (await transport.send(Request(method="GET", path="/api"))).status == 200
        await transport.close()
        await runner.cleanup()
        return seen

    assert asyncio.run(main()) == ["Bearer 1", "Bearer 2"]


def test_timeouts_are_real_seconds_on_a_fast_loop() -> None:
    """At speed 300 an answer after 50 ms comes 15 loop seconds late, and is still in time."""

    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ScaledLoop)

        async def handler(_: web.Request) -> web.Response:
            await asyncio.sleep(15)
            return web.Response()

        runner, url = await serve(handler)
        transport = Http(url, timeout=5)
        response = await transport.send(Request(method="GET", path="/api"))
        await transport.close()
        await runner.cleanup()
        return response.status

    assert run_scaled(main(), speed=300) == 200


def test_a_server_that_never_answers_is_given_up() -> None:
    async def main() -> None:
        async def handler(_: web.Request) -> web.Response:
            await asyncio.sleep(60)
            return web.Response()

        runner, url = await serve(handler)
        transport = Http(url, timeout=0.1)
        with pytest.raises(Disconnected, match=r"no answer within 0.1 s"):
            await transport.send(Request(method="GET", path="/api"))
        await transport.close()
        await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("server", "environ", "proxy"),
    [
        ("https://10.0.0.1:6443", {"https_proxy": "http://p:3128"}, "http://p:3128"),
        ("https://10.0.0.1:6443", {"https_proxy": "http://p:3128", "no_proxy": "10.0.0.1"}, None),
        ("https://127.0.0.1:6443", {"https_proxy": "http://p:3128"}, None),
        ("https://10.0.0.1:6443", {}, None),
    ],
)
def test_the_environment_s_proxy_counts_except_for_this_node(
    monkeypatch: pytest.MonkeyPatch, server: str, environ: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert Http(server).proxy == proxy
