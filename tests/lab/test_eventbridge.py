"""EventBridge in the lab: a notice reaches the queue only by a rule that is enabled, and if the queue admits it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.lab.aws import controller_access
from dovetail.lab.aws.account import AwsAccount, build, client
from dovetail.lab.aws.endpoint import AwsEndpoint
from dovetail.lab.aws.eventbridge import Bridge
from dovetail.lab.aws.offerings import LabOfferings


@pytest.fixture(scope="module")
def account() -> Iterator[tuple[AwsEndpoint, AwsAccount]]:
    endpoint = AwsEndpoint(LabOfferings("ap-northeast-2", frozenset({"m5"})))
    made = build(endpoint, "demo", version="1.34", api_url="https://127.0.0.1:6443", ca=b"ca")
    controller_access.grant(endpoint, made)
    yield endpoint, made
    endpoint.close()
    endpoint.forget()


def delivered(endpoint: AwsEndpoint, made: AwsAccount) -> int:
    """How many messages one state change puts on the queue."""

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        Bridge(endpoint, made.queue, clock, by_rules=True).state("i-1", "running")

    run_virtual(main())
    sqs = client(endpoint, "sqs")
    messages = sqs.receive_message(QueueUrl=made.queue_url, MaxNumberOfMessages=10).get("Messages", [])
    for message in messages:
        sqs.delete_message(QueueUrl=made.queue_url, ReceiptHandle=message["ReceiptHandle"])
    return len(messages)


def test_a_disabled_rule_and_a_closed_queue_stop_notices(account: tuple[AwsEndpoint, AwsAccount]) -> None:
    endpoint, made = account
    events, sqs = client(endpoint, "events"), client(endpoint, "sqs")
    assert delivered(endpoint, made) == 1
    events.disable_rule(Name="KarpenterStateChanges-demo")
    assert delivered(endpoint, made) == 0
    events.enable_rule(Name="KarpenterStateChanges-demo")
    policy = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=made.queue_url, Attributes={"Policy": policy.replace("events.", "other.")})
    assert delivered(endpoint, made) == 0
    sqs.set_queue_attributes(QueueUrl=made.queue_url, Attributes={"Policy": policy})
    assert delivered(endpoint, made) == 1


def test_a_queue_keeps_its_policy_where_other_attributes_are_set(account: tuple[AwsEndpoint, AwsAccount]) -> None:
    endpoint, made = account
    sqs = client(endpoint, "sqs")
    sqs.set_queue_attributes(QueueUrl=made.queue_url, Attributes={"MessageRetentionPeriod": "300"})
    attributes = sqs.get_queue_attributes(QueueUrl=made.queue_url, AttributeNames=["All"])["Attributes"]
    assert attributes["MessageRetentionPeriod"] == "300"
    assert "events.amazonaws.com" in attributes["Policy"]


def test_the_spot_role_has_ec2s_name(account: tuple[AwsEndpoint, AwsAccount]) -> None:
    iam = client(account[0], "iam")
    assert iam.get_role(RoleName="AWSServiceRoleForEC2Spot")["Role"]["Path"] == "/aws-service-role/spot.amazonaws.com/"
