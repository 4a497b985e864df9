"""A node role that is mapped nowhere: the controller looks into aws-auth and the access entries, and names the step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dovetail.kube.resources import CONFIGMAPS
from tests.controllers import aws_world
from tests.controllers.aws_world import Account, AwsWorld


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    yield from aws_world.account("m5")


def test_the_missing_mapping_is_named_in_an_event(account: Account) -> None:
    async def scenario(world: AwsWorld) -> None:
        await world.kube.patch(CONFIGMAPS, "aws-auth", {"data": {"mapRoles": "[]"}}, "kube-system")
        await world.node_class()
        await world.pool()
        await world.pods(1)
        world.start()
        await world.says("NodeNotJoined", "aws-auth", "KarpenterNodeRole-demo", within=300.0)
        assert world.count("describe_access_entry") >= 1

    aws_world.run_scenario(account, scenario)
