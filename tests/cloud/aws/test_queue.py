"""The interruption queue: whatever SQS answers, the caller gets a classified error and the queue recovers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.aws.sqs import MIN_POLL_INTERVAL_S, InterruptionQueue
from dovetail.cloud.provider import UNAUTHORIZED, CloudError, Remedy
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account


async def _next(aws: Aws) -> list[str]:
    async for batch in aws.interruptions():
        await aws.acknowledge(batch)
        return [message.kind for message in batch]
    raise AssertionError("the queue ended")


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", "QueueNotFound", Remedy.OPERATOR),
        ("AccessDeniedException", UNAUTHORIZED, Remedy.OPERATOR),
        ("ExpiredToken", UNAUTHORIZED, Remedy.OPERATOR),
        ("ThrottlingException", "RequestLimitExceeded", Remedy.RETRY),
        ("SomethingNew", "LaunchFailed", Remedy.RETRY),
    ],
)
@pytest.mark.parametrize("operation", ["GetQueueUrl", "ReceiveMessage"])
def test_every_sqs_error_is_classified_and_the_queue_is_read_again_afterwards(
    account: Account, operation: str, code: str, reason: str, remedy: Remedy
) -> None:
    """A raw botocore error from the queue would end the controller, and with it provisioning."""

    async def talk(aws: Aws) -> None:
        account.endpoint.trouble.add(ErrorRule("sqs", operation, code, "no"))
        with pytest.raises(CloudError) as caught:
            await _next(aws)
        assert (caught.value.reason, caught.value.remedy) == (reason, remedy)
        account.endpoint.trouble.clear()
        Bridge(account.endpoint, account.world.queue, aws._clock).state("i-1", "terminated")
        assert "instance-terminated" in await _next(aws)

    account.run(talk)


def test_an_unreachable_sqs_is_a_cloud_error(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(aws: Aws) -> None:
        monkeypatch.setattr(aws.calls, "_endpoint", "http://127.0.0.1:9")
        with pytest.raises(CloudError, match=r"127\.0\.0\.1:9"):
            await _next(aws)

    account.run(talk)


def test_the_address_of_a_missing_queue_is_asked_for_again(account: Account) -> None:
    """A queue that is deleted and made anew may have another address."""

    async def talk(aws: Aws) -> None:
        before = account.endpoint.trouble.calls.get(("sqs", "GetQueueUrl"), 0)
        account.endpoint.trouble.add(
            ErrorRule("sqs", "ReceiveMessage", "AWS.SimpleQueueService.NonExistentQueue", "gone", times=1)
        )
        with pytest.raises(CloudError, match="--interruption-queue"):
            await _next(aws)
        Bridge(account.endpoint, account.world.queue, aws._clock).state("i-1", "terminated")
        await _next(aws)
        assert account.endpoint.trouble.calls["sqs", "GetQueueUrl"] == before + 2

    account.run(talk)


def test_polls_that_are_answered_at_once_with_nothing_are_paced() -> None:
    """Something in front of SQS may not wait: the poll was repeated without a pause, for ever."""
    polls: list[float] = []

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop())

        async def calls(service: str, operation: str, **arguments: Any) -> dict[str, Any]:
            if operation == "receive_message":
                polls.append(clock.monotonic())
            return {"QueueUrl": "https://sqs/q"}

        queue = InterruptionQueue(calls, clock, "q")
        for _ in range(3):
            assert await queue.receive() == []

    run_virtual(main())
    assert [later - earlier for earlier, later in pairwise(polls)] == [MIN_POLL_INTERVAL_S] * 2
