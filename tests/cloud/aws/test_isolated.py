"""Where IAM and the price list are out of reach or forbidden, a class with an instance profile works."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from dovetail.cloud.aws.provider import Aws
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account


@pytest.fixture
def no_iam(account: Account) -> Iterator[Account]:
    account.endpoint.trouble.add(ErrorRule("iam", "*", "AccessDenied", "not authorized"))
    account.endpoint.trouble.add(ErrorRule("pricing", "*", "AccessDeniedException", "not authorized"))
    yield account


def _isolate(aws: Aws) -> Aws:
    return Aws(msgspec.structs.replace(aws._settings, isolated_vpc=True), aws._clock, aws.calls)


def test_a_class_with_an_instance_profile_is_ready_without_any_right_in_iam(no_iam: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = no_iam.node_class(instanceProfile="nodes")
        del node_class["spec"]["role"]
        found = await aws.resolve(node_class)
        assert found.conditions and {status for _, status, *_ in found.conditions} == {"True"}
        assert found.status["instanceProfile"] == "nodes"
        assert await aws.node_role(node_class | {"status": dict(found.status)}) is None
        await aws.release(node_class)

    no_iam.run(talk)


def test_an_isolated_vpc_asks_nothing_of_iam_and_of_the_price_list(no_iam: Account) -> None:
    async def talk(plain: Aws) -> None:
        aws = _isolate(plain)
        node_class = no_iam.node_class(instanceProfile="nodes")
        del node_class["spec"]["role"]
        found = await aws.resolve(node_class)
        assert {status for _, status, *_ in found.conditions} == {"True"}
        node_class |= {"status": dict(found.status)}
        assert await aws.node_role(node_class) is None
        await aws.refresh()
        await aws.release(node_class)
        asked = {record.service for record in no_iam.records}
        assert "ec2" in asked and not asked & {"iam", "pricing"}

    no_iam.run(talk)


def test_a_class_with_a_role_in_an_isolated_vpc_says_what_to_write_instead(account: Account) -> None:
    async def talk(plain: Aws) -> None:
        found = await _isolate(plain).resolve(account.node_class())
        reported = {kind: (status, message) for kind, status, _, message in found.conditions}
        status, message = reported["InstanceProfileReady"]
        assert status == "False" and "spec.instanceProfile" in message and "--isolated-vpc" in message
        assert not {record.service for record in account.records} & {"iam"}

    account.run(talk)
