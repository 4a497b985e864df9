"""Interruption messages: what EventBridge puts on the queue, read so that garbage cannot block the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, is_not_found, message_of
from dovetail.cloud.provider import CloudError, Interruption, Remedy
from dovetail.language import source

WAIT = 20
VISIBLE_AFTER = 20
MOST = 10
#: A poll that is answered at once with nothing is no long poll: the next one comes so many seconds after it at least.
MIN_POLL_INTERVAL_S = 1.0

_EC2 = {
    "EC2 Spot Instance Interruption Warning": "spot-interruption",
    "EC2 Capacity Reservation Instance Interruption Warning": "reservation-interruption",
    "EC2 Instance Rebalance Recommendation": "rebalance",
}
_ENDING_STATES = {
    "stopping": "instance-stopped",
    "stopped": "instance-stopped",
    "shutting-down": "instance-terminated",
    "terminated": "instance-terminated",
}


def parse(body: str, receipt: str, now: datetime) -> Interruption:
    """What a message says. One that says nothing to us, or nothing at all, is a `no-op`: still to be taken away."""
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError):
        return Interruption(kind="no-op", provider_ids=(), received=now, detail="not JSON", receipt=receipt)
    if not isinstance(envelope, dict):
        return Interruption(kind="no-op", provider_ids=(), received=now, detail="no object", receipt=receipt)
    kind, ids = _read(envelope)
    return Interruption(kind=kind, provider_ids=ids, received=now, receipt=receipt, sent=_instant(envelope.get("time")))


def _instant(text: Any) -> datetime | None:
    """When EventBridge says that it happened, if it says it."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else None


def _read(envelope: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    source, kind, detail = envelope.get("source"), str(envelope.get("detail-type", "")), envelope.get("detail")
    if not isinstance(detail, dict):
        return "no-op", ()
    if source == "aws.health" and kind == "AWS Health Event":
        if detail.get("service") == "EC2" and detail.get("eventTypeCategory") == "scheduledChange":
            entities = detail.get("affectedEntities")
            affected = entities if isinstance(entities, list) else ()
            ids = tuple(str(e["entityValue"]) for e in affected if isinstance(e, dict) and e.get("entityValue"))
            return "scheduled-change", ids
        return "no-op", ()
    instance = detail.get("instance-id")
    if source != "aws.ec2" or not isinstance(instance, str):
        return "no-op", ()
    if kind == "EC2 Instance State-change Notification":
        return _ENDING_STATES.get(str(detail.get("state")), "no-op"), (instance,)
    return _EC2.get(kind, "no-op"), (instance,)


class InterruptionQueue:
    """Long-polls the queue. Messages are acknowledged only after they were acted upon."""

    def __init__(self, calls: Calls, clock: Clock, name: str, wait: int = WAIT) -> None:
        self._wait = wait
        self._calls = calls
        self._clock = clock
        self._name = name
        self._url: str | None = None

    async def receive(self) -> Sequence[Interruption]:
        """The messages of one long poll; none if it ended without."""
        began = self._clock.monotonic()
        answer = await self._call(
            "receive_message", MaxNumberOfMessages=MOST, WaitTimeSeconds=self._wait, VisibilityTimeout=VISIBLE_AFTER
        )
        messages, now = answer.get("Messages") or (), self._clock.now()
        if not messages:
            await asyncio.sleep(max(0.0, began + MIN_POLL_INTERVAL_S - self._clock.monotonic()))
        return [parse(m.get("Body", ""), m["ReceiptHandle"], now) for m in messages]

    async def acknowledge(self, messages: Sequence[Interruption]) -> None:
        entries = [{"Id": str(i), "ReceiptHandle": message.receipt} for i, message in enumerate(messages)]
        for start in range(0, len(entries), MOST):
            await self._call("delete_message_batch", Entries=entries[start : start + MOST])

    async def _call(self, operation: str, **arguments: Any) -> Any:
        """A queue that is missing is looked up by its name again: one made anew may have another address."""
        try:
            if self._url is None:
                self._url = str((await self._calls("sqs", "get_queue_url", QueueName=self._name))["QueueUrl"])
            return await self._calls("sqs", operation, QueueUrl=self._url, **arguments)
        except Exception as error:
            if is_not_found(error):
                self._url = None
                raise _missing(self._name, error) from error
            raise


def _missing(name: str, error: Exception) -> CloudError:
    return CloudError(
        "QueueNotFound",
        source(
            "SQS has no queue {name!r} in this account and region; create it, or correct --interruption-queue"
        ).format(name=name),
        Remedy.OPERATOR,
        detail=f"{code_of(error)}: {message_of(error)}",
    )
