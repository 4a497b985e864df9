"""The API servers the suite runs on, each as a transport: the lab in process, the lab over HTTP, the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock
from dovetail.kube.http import Bearer, Http
from dovetail.kube.transport import Transport
from dovetail.lab.apiserver.auth import User
from dovetail.lab.apiserver.http import HttpMount
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.lab.real_control_plane import ADMIN_TOKEN
from tests.conformance.scripted_webhooks import ScriptedWebhooks


def core() -> ApiServer:
    """A fresh server that knows one administrator, like the real one beside it."""
    clock = Clock(asyncio.get_running_loop(), EPOCH)
    admin = User("admin", ("system:masters", "system:authenticated"), "admin")
    server = ApiServer(clock=clock, chance=Chance(1), tokens={ADMIN_TOKEN: admin})
    seed_defaults(server, clock.now())
    return server


@asynccontextmanager
async def lab_in_process() -> AsyncIterator[tuple[Transport, ScriptedWebhooks]]:
    server, webhooks = core(), ScriptedWebhooks()
    server.post = webhooks.post
    yield InProcess(server, {"authorization": f"Bearer {ADMIN_TOKEN}"}), webhooks


@asynccontextmanager
async def lab_over_http() -> AsyncIterator[tuple[Transport, ScriptedWebhooks]]:
    mount = HttpMount(core())
    await mount.start()
    transport = Http(f"http://127.0.0.1:{mount.port}", credentials=Bearer(ADMIN_TOKEN))
    try:
        async with ScriptedWebhooks().serve() as webhooks:
            yield transport, webhooks
    finally:
        await transport.close()
        await mount.stop()
