"""AWS calls: botocore in a small pool of threads, under token buckets of our own.

EC2 throttles by buckets per account and region that other tools share. We stay below half of each, so
that a burst of ours never stalls a colleague's deployment. Botocore's parsing is slow Python: threads
keep it off the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.clock import Clock

#: EC2's own buckets (capacity, refill a second) for the calls we make; everything else has the last entry's.
EC2_BUCKETS: Mapping[str, tuple[float, float]] = {
    "create_fleet": (1000, 5),
    "run_instances": (1000, 2),
    "terminate_instances": (1000, 20),
    "create_launch_template": (100, 5),
    "delete_launch_template": (100, 5),
    "create_tags": (100, 10),
    "describe": (100, 20),
}
OUR_SHARE = 0.5


class Bucket:
    """Tokens that come back over time. `take` waits for one; waiting is fair, first come first served."""

    def __init__(self, clock: Clock, size: float, refill: float) -> None:
        self._clock = clock
        self._size = size
        self._refill = refill
        self._left = size
        self._at = clock.monotonic()
        self._gate = asyncio.Lock()

    async def take(self) -> None:
        async with self._gate:
            now = self._clock.monotonic()
            self._left = min(self._size, self._left + (now - self._at) * self._refill)
            self._at = now
            if self._left < 1:
                await asyncio.sleep((1 - self._left) / self._refill)
                self._left, self._at = 1.0, self._clock.monotonic()
            self._left -= 1


class Record(msgspec.Struct, frozen=True):
    """One call that was made, for counting and for tests."""

    service: str
    operation: str
    at: float
    error: str = ""


class Calls:
    """`await calls("ec2", "describe_subnets", SubnetIds=[…])`."""

    def __init__(
        self,
        clock: Clock,
        *,
        region: str,
        endpoint: str | None = None,
        workers: int = 6,
        session: Any = None,
        observe: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.region = region
        self._clock = clock
        self._endpoint = endpoint
        self._workers = workers
        self._session = session
        self._observe = observe
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="aws")
        self._clients: dict[tuple[str, str], Any] = {}
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, service: str, operation: str, *, region: str | None = None, **arguments: Any) -> Any:
        """One call. AWS errors come out as botocore raises them; `errors.explain` reads them."""
        if service == "ec2":
            await self._bucket(operation).take()
        client = await self._client(service, region or self.region)
        started = self._clock.monotonic()
        try:
            answer = await self._run(getattr(client, operation), **arguments)
        except Exception as error:  # every failure is counted, then goes on to the caller
            self._observe(Record(service, operation, started, type(error).__name__))
            raise
        self._observe(Record(service, operation, started))
        return answer

    async def pages(
        self, service: str, operation: str, field: str, *, region: str | None = None, **arguments: Any
    ) -> AsyncIterator[Any]:
        """All elements of `field`, over all pages; a page that fails fails the whole."""
        token: dict[str, str] = {}
        while True:
            answer = await self(service, operation, region=region, **arguments, **token)
            for element in answer.get(field, ()):
                yield element
            if not answer.get("NextToken"):
                return
            token = {"NextToken": answer["NextToken"]}

    async def all(self, service: str, operation: str, field: str, **arguments: Any) -> list[Any]:
        return [element async for element in self.pages(service, operation, field, **arguments)]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()

    async def _run(self, call: Callable[..., Any], **arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(**arguments))

    async def _client(self, service: str, region: str) -> Any:
        key = (service, region)
        if key not in self._clients:
            made = await self._run(lambda: self._make(service, region))
            self._clients.setdefault(key, made)
        return self._clients[key]

    def _make(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        if self._session is None:
            self._session = boto3.session.Session(region_name=self.region)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 3},
            max_pool_connections=self._workers,
            connect_timeout=10,
            read_timeout=60,
            user_agent_extra=f"dovetail/{__version__}",
        )
        return self._session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)

    def _bucket(self, operation: str) -> Bucket:
        name = operation if operation in EC2_BUCKETS else "describe"
        if name not in self._buckets:
            size, refill = EC2_BUCKETS[name]
            self._buckets[name] = Bucket(self._clock, size * OUR_SHARE, refill * OUR_SHARE)
        return self._buckets[name]
