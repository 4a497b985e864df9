"""The API server is not given more than it can eat."""

from __future__ import annotations

import asyncio

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.ratelimit import IN_FLIGHT, RateLimitedTransport
from dovetail.kube.transport import Request, Response


class _Slow:
    """A server that takes a second for everything, and remembers how much it had at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def send(self, request: Request) -> Response:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1.0)
        self.now -= 1
        return Response(status=200)

    async def close(self) -> None:
        return None


def test_only_so_many_requests_are_on_their_way_and_watches_do_not_wait() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        server = _Slow()
        paced = RateLimitedTransport(server, clock, rate=1000.0, burst=1000.0)
        requests = [asyncio.ensure_future(paced.send(Request(method="GET", path="/"))) for _ in range(3 * IN_FLIGHT)]
        await asyncio.sleep(0.5)
        await paced.send(Request(method="GET", path="/", query=(("watch", "1"),)))
        assert clock.monotonic() == 1.5
        await asyncio.gather(*requests)
        assert server.most == IN_FLIGHT + 1
        assert clock.monotonic() == 3.0

    run_virtual(main())


def test_after_the_burst_the_rate_holds() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        paced = RateLimitedTransport(_Slow(), clock, rate=10.0, burst=5.0)
        await asyncio.gather(*(paced.send(Request(method="GET", path="/")) for _ in range(25)))
        assert 2.9 <= clock.monotonic() <= 3.1

    run_virtual(main())
