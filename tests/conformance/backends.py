"""The API servers the suite runs on, each as a transport: the lab in process, the lab over HTTP, the real one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock
from dovetail.kube.inprocess import InProcess
from dovetail.kube.transport import Transport
from dovetail.lab.kubernetes import ADMIN_TOKEN


@asynccontextmanager
async def lab_in_process() -> AsyncIterator[Transport]:
    from dovetail.lab.apiserver.access import User
    from dovetail.lab.apiserver.server import ApiServer

    clock = Clock(asyncio.get_running_loop(), EPOCH)
    server = ApiServer(clock=clock, chance=Chance(1), tokens={ADMIN_TOKEN: User("admin", ("system:masters",), "admin")})
    yield InProcess(server, {"authorization": f"Bearer {ADMIN_TOKEN}"})
