"""What the provider reports of itself."""

from __future__ import annotations

import pytest

from dovetail.cloud.aws.client import CallRecord
from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, InsufficientCapacity
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account


class Book:
    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.refused: list[tuple[str, str, str, str]] = []
        self.failed: list[tuple[str, str]] = []
        self.batches: list[tuple[str, int]] = []

    def call(self, record: CallRecord) -> None:
        self.calls.append(record)

    def launch_refused(self, zone: str, zone_id: str, capacity_type: str, reason: str) -> None:
        self.refused.append((zone, zone_id, capacity_type, reason))

    def termination_failed(self, zone: str, zone_id: str) -> None:
        self.failed.append((zone, zone_id))

    def batch(self, batcher: str, size: int, seconds: float) -> None:
        self.batches.append((batcher, size))


def test_refused_offerings_failed_terminations_and_batches_are_reported(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        book = Book()
        aws.observe(book)
        node_class = await account.ready(aws)
        instance = await aws.launch(await account.order(aws, "o-1", node_class, "m5.large", kind="on-demand"))
        account.endpoint.market.refuse(("m5.large", "*", "*"))
        with pytest.raises(InsufficientCapacity):
            await aws.launch(await account.order(aws, "o-2", node_class, "m5.large", kind="on-demand"))
        assert book.refused and {refusal[3] for refusal in book.refused} == {"InsufficientInstanceCapacity"}
        assert {refusal[2] for refusal in book.refused} == {"on-demand"}
        assert all(zone and zone_id for zone, zone_id, *_ in book.refused)
        account.endpoint.trouble.add(ErrorRule("ec2", "TerminateInstances", "OperationNotPermitted", "protected"))
        with pytest.raises(CloudError):
            await aws.terminate(instance.provider_id)
        assert [zone for zone, _ in book.failed] == [instance.zone]
        assert {"create_fleet", "describe_instances", "terminate_instances"} <= {name for name, _ in book.batches}
        assert "create_fleet" in {record.operation for record in book.calls}

    account.run(talk)
