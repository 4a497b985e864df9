"""The autoscaler's processes in a lab: one, or several that stand for election; killed and stalled on request.

A process that is killed comes back soon after with nothing but what the cluster and the cloud know. The requests
of one that stalls arrive late, also those whose sender has given up by then: the network does not know that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.provider import Cloud
from dovetail.controllers import logs
from dovetail.controllers.manager import CONTROLLERS, Autoscaler, MakeController
from dovetail.controllers.settings import Settings
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response, Transport, subscription_of

#: Seconds between a kill and the restart.
AWAY = 5.0


_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class CrashInjection:
    """Kills the processes right after so many of their mutating calls, to the API server or the cloud."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._left = 0

    def set(self, calls: int) -> None:
        self._left = calls

    async def count_call(self) -> None:
        """A mutating call was made. After the last one its caller never learns the answer."""
        if not self._left:
            return
        self._left -= 1
        if not self._left:
            self._kill()
            await asyncio.Event().wait()


class ReplicaConnection:
    """A replica's connection to the API server, which can stall."""

    def __init__(self, inner: Transport, crash_injection: CrashInjection) -> None:
        self._inner = inner
        self._crash_injection = crash_injection
        #: Requests by method; a watch counts once.
        self.requests: Counter[str] = Counter()
        subscribe = subscription_of(inner)
        if subscribe is not None:
            self.subscribe = subscribe
        self._open = asyncio.Event()
        self._open.set()

    def hold(self, seconds: float) -> None:
        self._open.clear()
        asyncio.get_running_loop().call_later(seconds, self._open.set)

    async def send(self, request: Request) -> Response:
        self.requests[request.method] += 1
        if self._open.is_set():
            response = await self._inner.send(request)
        else:
            response = await asyncio.shield(asyncio.ensure_future(self._late(request)))
        if request.method in _MUTATING:
            await self._crash_injection.count_call()
        return response

    async def _late(self, request: Request) -> Response:
        await self._open.wait()
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


class Watch(Clock):
    """A process's own clock, which can be wrong; time passes on it at the same rate."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(asyncio.get_running_loop(), clock.now())
        self.off = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.off)


class Replica:
    """One process and its next lives."""

    def __init__(
        self,
        number: int,
        transport: Transport,
        cloud: Cloud,
        clock: Clock,
        chance: Chance,
        settings: Settings,
        write: Callable[[str], None],
        crash_injection: CrashInjection,
        controllers: Sequence[MakeController] = CONTROLLERS,
    ) -> None:
        self._controllers = controllers
        self.connection = ReplicaConnection(transport, crash_injection)
        #: Set to kill it.
        self.killed = asyncio.Event()
        self.autoscaler: Autoscaler | None = None
        self._name = f"karpenter-{number}"
        self._cloud = cloud
        self.clock = Watch(clock)
        self._chance = chance.child("replica", str(number)) if number else chance
        self._settings = settings
        self._log = logs.logger(self.clock, write=write)

    @property
    def leading(self) -> bool:
        election = self.autoscaler.election if self.autoscaler is not None else None
        return self.autoscaler is not None and (election is None or election.leading)

    async def run(self) -> None:
        restarts = 0
        while True:
            chance = self._chance.child("life", str(restarts)) if restarts else self._chance
            kube = Kube(
                self.connection, self.clock, chance=chance.child("client"), manager="karpenter", user_agent="karpenter"
            )
            self.autoscaler = Autoscaler(
                kube,
                self._cloud,
                self.clock,
                chance,
                self._settings,
                log=self._log,
                identity=f"{self._name}-{restarts}",
                controllers=self._controllers,
            )
            await self._live(self.autoscaler)
            self.killed.clear()
            restarts += 1
            await asyncio.sleep(AWAY)

    async def _live(self, autoscaler: Autoscaler) -> None:
        process = asyncio.ensure_future(autoscaler.run())
        killed = asyncio.ensure_future(self.killed.wait())
        try:
            await asyncio.wait({process, killed}, return_when=asyncio.FIRST_COMPLETED)
            if not killed.done():
                await process
        finally:
            killed.cancel()
            process.cancel()
            await asyncio.gather(process, killed, return_exceptions=True)
