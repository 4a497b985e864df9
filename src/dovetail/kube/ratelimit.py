"""Pacing: never more on the API server's plate than it can eat.

A burst of nodes means thousands of small writes. Sent all at once they queue inside the server, and the
one request that must not wait, the renewal of our lease, waits with them. So requests wait here, in order;
watches and clients with their own transport (the lease) do not.
"""

from __future__ import annotations

import asyncio

from dovetail.clock import Clock
from dovetail.kube.transport import Request, Response, Transport
from dovetail.runtime.token_bucket import TokenBucket

#: Requests on their way at once.
IN_FLIGHT = 40


class RateLimitedTransport:
    """A transport with at most `IN_FLIGHT` requests on their way, and `rate` a second after the first `burst`."""

    def __init__(self, inner: Transport, clock: Clock, rate: float, burst: float) -> None:
        self._inner = inner
        self._clock = clock
        self._tokens = TokenBucket.full(burst, rate, clock.monotonic())
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def send(self, request: Request) -> Response:
        if request.parameter("watch") is not None:
            return await self._inner.send(request)
        async with self._slots:
            pause = self._tokens.spend(self._clock.monotonic())
            if pause > 0:
                await asyncio.sleep(pause)
            return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()
