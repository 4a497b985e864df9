"""Equal purchases in one call: as many instances as there are claims that ask for the same, dealt out one each.

EC2's bucket for CreateFleet is small, and a burst is mostly the same instance many times. An instance that is launched
alone carries its claim from the start. Instances that are launched together carry all the claims of the request,
and order says whose is which: the instances by id, the claims by UID. A reader after a crash assigns them as the
launcher would have, so nothing is launched twice; once assigned, each gets its claim's name as a tag of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.create_fleet import FleetInstance, RefusedOffering

#: How long an order waits for another like it, and for all of them, in seconds.
GATHER, LONGEST = 0.04, 0.5
#: How many tags may name claims, and how long EC2 lets a tag be.
MOST_TAGS, LONGEST_TAG = 4, 256
_TAG = "dovetail.sh/claims-"
MAX_REMEMBERED_ATTEMPTS = 10_000


class Order(msgspec.Struct, frozen=True, order=True):
    """A claim that wants an instance."""

    uid: str
    name: str


class OrderResult(msgspec.Struct, frozen=True):
    """What came of an order, and what was refused on the way."""

    launched: FleetInstance | None
    refusals: tuple[RefusedOffering, ...] = ()


LaunchAll = Callable[[Sequence[Order]], Awaitable[tuple[Sequence[FleetInstance], tuple[RefusedOffering, ...]]]]


def tags_of(orders: Iterable[Order]) -> dict[str, str]:
    """The claims of one call as tags, as many to a tag as it holds."""
    written: list[str] = []
    for order in sorted(orders):
        item = f"{order.name}:{order.uid}"
        if written and len(written[-1]) + 1 + len(item) <= LONGEST_TAG:
            written[-1] += f" {item}"
        else:
            written.append(item)
    return {f"{_TAG}{number}": value for number, value in enumerate(written, start=1)}


def orders_of(tags: Mapping[str, str]) -> tuple[Order, ...]:
    """The claims that an instance was launched for together with others; none if it was launched alone."""
    items = (item for key, value in tags.items() if key.startswith(_TAG) for item in value.split(" "))
    return tuple(sorted(Order(uid, name) for name, _, uid in (item.partition(":") for item in items)))


def order_of_instance(instances: Iterable[str], orders: Iterable[Order]) -> dict[str, Order]:
    """Whose instance is which, by the instance's id."""
    return dict(zip(sorted(instances), sorted(orders), strict=False))


class Attempts:
    """The client tokens of launches: one for each attempt.

    EC2 answers a token that it has seen with what it answered before, failures included, and refuses it for another
    request. So the token of a launch changes once EC2 refused it, and with everything that is asked for. It stays where
    the answer was lost: then the same request returns the instance that it may have launched. Instances of another
    request for the same claim are found by their tags, before anything is launched.
    """

    def __init__(self) -> None:
        self._refused: dict[str, int] = {}

    def token(self, orders: Sequence[Order], request: Mapping[str, Any]) -> str:
        numbered = [(order.uid, self._refused.get(order.uid, 0)) for order in sorted(orders)]
        return hashlib.sha256(msgspec.json.encode((numbered, request), order="sorted")).hexdigest()

    def refused(self, orders: Iterable[Order]) -> None:
        """EC2 answered, and launched nothing for these."""
        for order in orders:
            self._refused[order.uid] = self._refused.pop(order.uid, 0) + 1
        while len(self._refused) > MAX_REMEMBERED_ATTEMPTS:
            del self._refused[next(iter(self._refused))]

    def launched(self, order: Order) -> None:
        self._refused.pop(order.uid, None)


class FleetBatcher:
    """Brings equal orders together. The first waits a moment for the others, and launches for all."""

    def __init__(self) -> None:
        self._open: dict[bytes, dict[Order, asyncio.Future[OrderResult]]] = {}

    async def order(self, request_key: bytes, order: Order, launch_all: LaunchAll) -> OrderResult:
        """`goods` says what is launched, to the letter; equal requests share one call."""
        others = self._open.get(request_key)
        if others is not None and len(tags_of([*others, order])) <= MOST_TAGS:
            others[order] = asyncio.get_running_loop().create_future()
            return await others[order]
        joined: dict[Order, asyncio.Future[OrderResult]] = {order: asyncio.get_running_loop().create_future()}
        self._open[request_key] = joined
        try:
            await self._gathered(request_key, joined)
            launched, refusals = await launch_all(sorted(joined))
        except BaseException as error:
            _fail_all(joined.values(), error)
            raise
        order_of = order_of_instance((instance.instance_id for instance in launched), joined)
        got = {order_of[instance.instance_id]: instance for instance in launched if instance.instance_id in order_of}
        for claim_order, waiting in joined.items():
            if not waiting.done():
                waiting.set_result(OrderResult(got.get(claim_order), refusals))
        return joined[order].result()

    async def _gathered(self, request_key: bytes, joined: Mapping[Order, object]) -> None:
        """Until no more come. From then on no request joins."""
        count = 0
        try:
            async with asyncio.timeout(LONGEST):
                while len(joined) > count:
                    count = len(joined)
                    await asyncio.sleep(GATHER)
        except TimeoutError:
            return
        finally:
            if self._open.get(request_key) is joined:
                del self._open[request_key]


def _fail_all(orders: Iterable[asyncio.Future[OrderResult]], error: BaseException) -> None:
    """Every waiting request gets the failure; waiting for a cancelled request is cancelled too."""
    for waiting in orders:
        if waiting.done():
            continue
        if isinstance(error, Exception):
            waiting.set_exception(error)
            waiting.exception()  # seen: a waiter may have gone meanwhile
        else:
            waiting.cancel()
