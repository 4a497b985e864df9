"""AWS calls: botocore in a small pool of threads, under token buckets of our own.

EC2 throttles by buckets per account and region that other tools share. We stay below half of each, so
that a burst of ours never stalls a colleague's deployment. Botocore's parsing is slow Python: threads
keep it off the event loop. Botocore itself never repeats a call: we do, on the loop's clock, and every
repetition pays its token.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.aws.errors import CREDENTIAL_CODES, THROTTLE_CODES, code_of, is_passing

#: EC2's own buckets (capacity, refill a second): one for each call, of these sizes unless it is named here.
READING, WRITING = (100.0, 20.0), (50.0, 5.0)
EC2_BUCKETS: Mapping[str, tuple[float, float]] = {
    "create_tags": (100.0, 10.0),
    "terminate_instances": (100.0, 5.0),
}
#: And for machines, however many go in one call.
EC2_MACHINES: Mapping[str, tuple[float, float]] = {
    "create_fleet": (1000.0, 2.0),
    "terminate_instances": (1000.0, 20.0),
}
OUR_SHARE = 0.5

#: How often a call that failed in passing is made, and the first pause in between, in seconds; it doubles.
TRIES, PAUSE = 4, 0.5


def ec2_bucket(operation: str) -> tuple[float, float]:
    """The bucket EC2 keeps for a call: its size and what comes back each second."""
    return EC2_BUCKETS.get(operation, READING if operation.startswith("describe_") else WRITING)


class Bucket:
    """Tokens that come back over time. `take` waits for them; waiting is fair, first come first served."""

    def __init__(self, clock: Clock, size: float, refill: float) -> None:
        self._clock = clock
        self._size = size
        self._refill = refill
        self._left = size
        self._at = clock.monotonic()
        self._gate = asyncio.Lock()

    async def take(self, count: float = 1.0) -> None:
        async with self._gate:
            self._fill()
            if self._left < count:
                await asyncio.sleep((count - self._left) / self._refill)
                self._left, self._at = count, self._clock.monotonic()
            self._left -= count

    def drain(self) -> None:
        """AWS says there is nothing left for us: others took more than we thought."""
        self._fill()
        self._left = min(self._left, 0.0)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._left = min(self._size, self._left + (now - self._at) * self._refill)
        self._at = now


class Record(msgspec.Struct, frozen=True):
    """One call that was made, for counting and for tests; `machines` is how many it starts or ends.

    A `dry` one only asked whether it might.
    """

    service: str
    operation: str
    at: float
    error: str = ""
    machines: int = 0
    dry: bool = False


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
        chance: Chance | None = None,
        observe: Callable[[Record], None] = lambda record: None,
    ) -> None:
        """A `session` that is handed in is kept; without one it is made anew whenever credentials ran out."""
        self.region = region
        self._clock = clock
        self._endpoint = endpoint
        self._workers = workers
        self._session = session
        self._given = session is not None
        self._chance = chance or Chance(0)
        self._observe = observe
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="aws")
        self._clients: dict[tuple[str, str], Any] = {}
        self._making = asyncio.Lock()
        self._buckets: dict[str, Bucket] = {}

    async def __call__(self, service: str, operation: str, *, region: str | None = None, **arguments: Any) -> Any:
        """One call, repeated if it failed in passing. Errors come out as botocore's; `errors.explain` reads them."""
        for attempt in itertools.count(1):
            try:
                return await self._once(service, operation, region or self.region, arguments)
            except Exception as error:
                if attempt == TRIES or not is_passing(error):
                    raise
            await asyncio.sleep(PAUSE * 2 ** (attempt - 1) * (1.0 + 0.2 * self._chance.random()))
        raise AssertionError("the last try returns or raises")

    async def _once(self, service: str, operation: str, region: str, arguments: Mapping[str, Any]) -> Any:
        buckets = self._buckets_of(operation, arguments) if service == "ec2" else ()
        for bucket, count in buckets:
            await bucket.take(count)
        client = await self._client(service, region)
        machines, dry = _machines(operation, arguments), bool(arguments.get("DryRun"))
        record = Record(service, operation, self._clock.monotonic(), machines=machines, dry=dry)
        try:
            answer = await self._run(getattr(client, operation), **arguments)
        except Exception as error:  # every failure is counted, then goes on to the caller
            self._failed(error, buckets)
            self._observe(msgspec.structs.replace(record, error=code_of(error)))
            raise
        self._observe(record)
        return answer

    def _failed(self, error: Exception, buckets: Sequence[tuple[Bucket, float]]) -> None:
        code = code_of(error)
        if code in THROTTLE_CODES:
            for bucket, _ in buckets:
                bucket.drain()
        if code in CREDENTIAL_CODES and not self._given:
            self._session = None
            self._clients.clear()

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
        """One at a time is made: a session may be used by many threads, but makes clients for one of them only."""
        key = (service, region)
        async with self._making:
            if key not in self._clients:
                self._clients[key] = await self._run(lambda: self._make(service, region))
            return self._clients[key]

    def _make(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        if self._session is None:
            self._session = boto3.session.Session(region_name=self.region)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=self._workers,
            connect_timeout=10,
            read_timeout=60,
            user_agent_extra=f"dovetail/{__version__}",
        )
        return self._session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)

    def _buckets_of(self, operation: str, arguments: Mapping[str, Any]) -> list[tuple[Bucket, float]]:
        """What a call costs: a token of its own bucket, and one for each machine it starts or ends."""
        found = [(self._bucket(operation, ec2_bucket(operation)), 1.0)]
        if operation in EC2_MACHINES:
            machines = self._bucket(f"{operation} machines", EC2_MACHINES[operation])
            found.append((machines, float(_machines(operation, arguments))))
        return found

    def _bucket(self, name: str, theirs: tuple[float, float]) -> Bucket:
        if name not in self._buckets:
            size, refill = theirs
            self._buckets[name] = Bucket(self._clock, size * OUR_SHARE, refill * OUR_SHARE)
        return self._buckets[name]


def _machines(operation: str, arguments: Mapping[str, Any]) -> int:
    """How many machines a call starts or ends."""
    if operation not in EC2_MACHINES or arguments.get("DryRun"):
        return 0
    target = arguments.get("TargetCapacitySpecification") or {}
    return len(arguments.get("InstanceIds", ())) or int(target.get("TotalTargetCapacity", 1))
