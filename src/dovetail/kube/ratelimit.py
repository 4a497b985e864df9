"""Pacing: never more on the API server's plate than it can eat.

A burst of nodes means thousands of small writes. Sent all at once they queue inside the server, and the
one request that must not wait, the renewal of our lease, waits with them. So requests wait here, in order;
watches and clients with their own transport (the lease) do not.
"""

from __future__ import annotations

import asyncio

from dovetail.clock import Clock
from dovetail.kube.transport import Request, Response, Transport

#: Requests on their way at once.
IN_FLIGHT = 40


class Paced:
    """A transport with at most `IN_FLIGHT` requests on their way, and `rate` a second after the first `burst`."""

    def __init__(self, inner: Transport, clock: Clock, rate: float, burst: float) -> None:
        self._inner = inner
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = clock.monotonic()
        self._slots = asyncio.Semaphore(IN_FLIGHT)

    async def send(self, request: Request) -> Response:
        if request.parameter("watch") is not None:
            return await self._inner.send(request)
        async with self._slots:
            pause = self._take()
            if pause > 0:
                await asyncio.sleep(pause)
            return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()

    def _take(self) -> float:
        """Take a token; the seconds until it is really there."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate) - 1.0
        self._at = now
        return max(0.0, -self._tokens / self._rate)
