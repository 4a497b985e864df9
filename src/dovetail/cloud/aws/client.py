"""AWS calls: botocore in small pools of threads, one for each service, under token buckets of our own.

EC2 throttles by buckets per account and region that other tools share. We stay below a share of those for calls, so
that a burst of ours never stalls another tool; EC2 keeps further buckets for instances, whose size differs by account,
and those are respected once EC2 has really throttled. Botocore's parsing is slow Python: threads keep it off the event
loop, and a service that does not answer takes no thread from another. Botocore itself never repeats a call: we do, on
the loop's clock, and every repetition pays its token.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.cloud.aws.assumed_role import AssumedRole
from dovetail.cloud.aws.cloud_config import ServiceEndpoint
from dovetail.cloud.aws.errors import CREDENTIAL_CODES, THROTTLE_CODES, code_of, is_passing
from dovetail.cloud.aws.outage import Outage
from dovetail.cloud.aws.threads import DaemonThreads
from dovetail.runtime.token_bucket import TokenBucket

#: EC2's own buckets (capacity, refill a second): one for each call, of these sizes unless it is named here.
READING, WRITING = (100.0, 20.0), (50.0, 5.0)
EC2_BUCKETS: Mapping[str, tuple[float, float]] = {
    "create_tags": (100.0, 10.0),
    "terminate_instances": (100.0, 5.0),
}
#: And for instances, however many go in one call.
EC2_INSTANCE_BUCKETS: Mapping[str, tuple[float, float]] = {
    "create_fleet": (1000.0, 2.0),
    "terminate_instances": (1000.0, 20.0),
}
#: The share of EC2's buckets that we take, unless it is set; 0 is no limit of our own.
OUR_SHARE = 0.5
#: How long EC2's bucket for instances is respected after it throttled: it takes some eight minutes to fill.
ADAPTED_FOR_S = 600.0

#: Threads of a service; the others have OTHER_THREADS. One of SQS's is always in a long poll.
THREADS: Mapping[str, int] = {"ec2": 6, "sqs": 2}
OTHER_THREADS = 2

#: Where the token of the next page is: in the request, in the answer, and the flag that there is one.
_PAGING: Mapping[str, tuple[str, str]] = {"iam": ("Marker", "Marker"), "eks": ("nextToken", "nextToken")}

#: How often a call that failed in passing is made, and the first pause in between, in seconds; it doubles.
TRIES, PAUSE = 4, 0.5


def ec2_bucket(operation: str) -> tuple[float, float]:
    """The bucket EC2 keeps for a call: its size and what comes back each second."""
    return EC2_BUCKETS.get(operation, READING if operation.startswith("describe_") else WRITING)


class CallRecord(msgspec.Struct, frozen=True):
    """One call that was made, for counting and for tests; `instances` is how many it starts or ends.

    A `dry` one only asked whether it might. `status` is that of HTTP, 0 if there was no answer; `seconds` is what this
    attempt took, and `request_seconds` what all of them did, set on the last.
    """

    service: str
    operation: str
    at: float
    error: str = ""
    instances: int = 0
    dry: bool = False
    status: int = 200
    attempt: int = 1
    seconds: float = 0.0
    request_seconds: float | None = None


class Calls:
    """`await calls("ec2", "describe_subnets", SubnetIds=[…])`."""

    def __init__(
        self,
        clock: Clock,
        *,
        region: str,
        endpoint: str | None = None,
        endpoints: Mapping[str, ServiceEndpoint] | None = None,
        session: Any = None,
        chance: Chance | None = None,
        share: float = OUR_SHARE,
        role: AssumedRole | None = None,
        observe: Callable[[CallRecord], None] = lambda record: None,
    ) -> None:
        """A `session` that is handed in is kept; without one it is made anew whenever credentials ran out.

        `endpoints` of single services go before the `endpoint` of all.
        """
        self.region = region
        self.observers = [observe]
        self.outage = Outage(clock)
        self._clock = clock
        self._endpoint = endpoint
        self._endpoints = dict(endpoints or {})
        self._session = session
        self._given = session is not None
        self._chance = chance or Chance(0)
        self._share = share
        self._role = role
        self._pools: dict[str, DaemonThreads] = {}
        self._clients: dict[tuple[str, str], Any] = {}
        self._making = asyncio.Lock()
        self._buckets: dict[str, TokenBucket] = {}
        self._throttled: dict[str, float] = {}

    async def __call__(self, service: str, operation: str, *, region: str | None = None, **arguments: Any) -> Any:
        """One call, repeated if it failed in passing. Errors come out as botocore's; `errors.explain` reads them."""
        began = self._clock.monotonic()
        for attempt in itertools.count(1):
            record, answer = await self._once(service, operation, region or self.region, arguments)
            failed = isinstance(answer, Exception)
            over = attempt == TRIES or not (failed and is_passing(answer))
            whole = self._clock.monotonic() - began if over else None
            self._tell(msgspec.structs.replace(record, attempt=attempt, request_seconds=whole))
            if not failed:
                return answer
            if over:
                raise answer
            await asyncio.sleep(PAUSE * 2 ** (attempt - 1) * (1.0 + 0.2 * self._chance.random()))
        raise AssertionError("the last try returns or raises")

    def _tell(self, record: CallRecord) -> None:
        for observe in self.observers:
            observe(record)

    async def _once(
        self, service: str, operation: str, region: str, arguments: Mapping[str, Any]
    ) -> tuple[CallRecord, Any]:
        """What was called, and the answer or the error it came to."""
        buckets = self._buckets_of(operation, arguments) if service == "ec2" and self._share else ()
        for bucket, count in buckets:
            pause = bucket.spend(self._clock.monotonic(), count)
            if pause > 0:
                await asyncio.sleep(pause)
        instances, dry = _instances(operation, arguments), bool(arguments.get("DryRun"))
        record = CallRecord(service, operation, self._clock.monotonic(), instances=instances, dry=dry)
        answer: Any
        try:
            client = await self._client(service, region)
            answer = await self._run(service, getattr(client, operation), **arguments)
            status = _status(answer, 200)
        except Exception as error:  # every failure is counted, then goes on to the caller
            answer, status = error, _status(getattr(error, "response", None), 0)
            self._failed(operation, error, buckets)
            record = msgspec.structs.replace(record, error=code_of(error))
        if service == "ec2":
            self.outage.heard(answer if isinstance(answer, Exception) else None)
        seconds = self._clock.monotonic() - record.at
        return msgspec.structs.replace(record, status=status, seconds=seconds), answer

    def _failed(self, operation: str, error: Exception, buckets: Sequence[tuple[TokenBucket, float]]) -> None:
        code = code_of(error)
        if code in THROTTLE_CODES:
            self._throttled[operation] = self._clock.monotonic()
            for bucket, _ in buckets:
                bucket.drain(self._clock.monotonic())
        if code in CREDENTIAL_CODES and not self._given:
            self._session = None
            self._clients.clear()

    async def pages(
        self, service: str, operation: str, field: str, *, region: str | None = None, **arguments: Any
    ) -> AsyncIterator[Any]:
        """All elements of `field`, over all pages; a page that fails fails the whole."""
        asks, answers = _PAGING.get(service, ("NextToken", "NextToken"))
        token: dict[str, str] = {}
        while True:
            answer = await self(service, operation, region=region, **arguments, **token)
            for element in answer.get(field, ()):
                yield element
            if not answer.get(answers):
                return
            token = {asks: answer[answers]}

    async def all(self, service: str, operation: str, field: str, **arguments: Any) -> list[Any]:
        return [element async for element in self.pages(service, operation, field, **arguments)]

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown()
        for client in self._clients.values():
            client.close()

    async def _run(self, service: str, call: Callable[..., Any], **arguments: Any) -> Any:
        if service not in self._pools:
            self._pools[service] = DaemonThreads(THREADS.get(service, OTHER_THREADS), f"aws-{service}")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[service], lambda: call(**arguments))

    async def _client(self, service: str, region: str) -> Any:
        """One at a time is made: a session may be used by many threads, but makes clients for one of them only."""
        key = (service, region)
        async with self._making:
            if key not in self._clients:
                self._clients[key] = await self._run(service, lambda: self._make(service, region))
            return self._clients[key]

    def _make(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        if self._session is None:
            plain = boto3.session.Session(region_name=self.region)
            self._session = plain if self._role is None else self._role.session(plain, self._endpoint)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            max_pool_connections=THREADS.get(service, OTHER_THREADS),
            connect_timeout=10,
            read_timeout=60,
            user_agent_extra=f"dovetail/{__version__}",
        )
        own = self._endpoints.get(service)
        if own is not None:
            return self._session.client(service, region_name=own.signing_region, endpoint_url=own.url, config=config)
        return self._session.client(service, region_name=region, endpoint_url=self._endpoint, config=config)

    def _buckets_of(self, operation: str, arguments: Mapping[str, Any]) -> list[tuple[TokenBucket, float]]:
        """What a call costs: a token of its own bucket, one for each instance if EC2 throttled such calls lately."""
        buckets = [(self._bucket(operation, ec2_bucket(operation)), 1.0)]
        if operation in EC2_INSTANCE_BUCKETS and self._adapted(operation):
            instances = self._bucket(f"{operation} instances", EC2_INSTANCE_BUCKETS[operation])
            buckets.append((instances, float(_instances(operation, arguments))))
        return buckets

    def _adapted(self, operation: str) -> bool:
        since = self._throttled.get(operation)
        return since is not None and self._clock.monotonic() - since < ADAPTED_FOR_S

    def _bucket(self, name: str, theirs: tuple[float, float]) -> TokenBucket:
        """A bucket for instances is made after EC2 throttled, so it starts empty."""
        if name not in self._buckets:
            size, refill = theirs
            self._buckets[name] = TokenBucket.full(size * self._share, refill * self._share, self._clock.monotonic())
            if name.endswith(" instances"):
                self._buckets[name].drain(self._clock.monotonic())
        return self._buckets[name]


def _status(answer: Any, otherwise: int) -> int:
    """The HTTP status of an answer."""
    meta = answer.get("ResponseMetadata") if isinstance(answer, dict) else None
    return int((meta or {}).get("HTTPStatusCode", otherwise))


def _instances(operation: str, arguments: Mapping[str, Any]) -> int:
    """How many instances a call starts or ends."""
    if operation not in EC2_INSTANCE_BUCKETS or arguments.get("DryRun"):
        return 0
    target = arguments.get("TargetCapacitySpecification") or {}
    return len(arguments.get("InstanceIds", ())) or int(target.get("TotalTargetCapacity", 1))
