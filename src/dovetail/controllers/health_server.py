"""`/metrics`, `/healthz`, `/readyz`: for monitoring and the kubelet.

Alive is not ready: ready means that a pending pod would get a node now, or that another replica leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dovetail.controllers.metrics.definitions import Metrics
from dovetail.runtime.http_log import http_log

#: What is wrong, as texts; empty when all is well.
Problems = Callable[[], list[str]]


@asynccontextmanager
async def serving(
    metrics: Metrics,
    problems: Problems,
    metrics_port: int,
    health_port: int,
    remarks: Problems = list,
    unrecovered: Problems = list,
) -> AsyncIterator[None]:
    """Serve both ports while the block runs; port 0 serves nothing. `remarks` are shown by a ready process, too.

    `unrecovered` is what only a restart of the process may help.
    """
    runners = []
    try:
        for port, routes in ((metrics_port, _metrics(metrics)), (health_port, _health(problems, remarks, unrecovered))):
            if port:
                app = web.Application()
                app.add_routes(routes)
                runner = web.AppRunner(app, access_log=None, logger=http_log)
                await runner.setup()
                runners.append(runner)
                await web.TCPSite(runner, None, port).start()  # every address, IPv4 and IPv6
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


def _metrics(metrics: Metrics) -> list[web.RouteDef]:
    async def answer(request: web.Request) -> web.StreamResponse:
        """In pieces: the loop has other work while a large fleet is written."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
        await response.prepare(request)
        for piece in metrics.pieces():
            await response.write(piece)
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    return [web.get("/metrics", answer)]


def _health(problems: Problems, remarks: Problems, unrecovered: Problems) -> list[web.RouteDef]:
    async def alive(_: web.Request) -> web.Response:
        dead = unrecovered()
        return web.Response(status=503 if dead else 200, text="\n".join(dead or ["ok"]))

    async def ready(_: web.Request) -> web.Response:
        reported = problems()
        return web.Response(status=503 if reported else 200, text="\n".join(reported or ["ok", *remarks()]))

    return [web.get("/healthz", alive), web.get("/readyz", ready)]
