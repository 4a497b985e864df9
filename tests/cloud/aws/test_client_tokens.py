"""CreateFleet's client token as EC2 treats it: a seen one is answered as before, or refused for another request."""

from __future__ import annotations

import boto3
import pytest
from botocore.exceptions import ClientError

from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.provider import CloudError, InsufficientCapacity
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import REGION, Account, offered


def test_a_launch_that_failed_succeeds_as_soon_as_its_cause_is_gone(account: Account) -> None:
    """With one token for all attempts EC2 would answer every later one with the first failure."""

    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "t-1", await account.ready(aws), "m5.large", kind="on-demand")
        account.endpoint.market.refuse(("m5.large", "*", "*"))
        with pytest.raises(InsufficientCapacity):
            await aws.launch(order)
        account.endpoint.market.allow()
        assert (await aws.launch(order)).claim_uid == "t-1"

    account.run(talk)


def test_a_launch_with_other_offerings_is_no_replay(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "t-2", await account.ready(aws), "m5.large", "c5.large", kind="on-demand")
        account.endpoint.market.refuse(("*", "*", "*"))
        with pytest.raises(InsufficientCapacity):
            await aws.launch(offered(order, options=tuple(o for o in order.options if "c5" in o.instance_type.name)))
        account.endpoint.market.allow()
        assert (await aws.launch(order)).instance_type == "c5.large"

    account.run(talk)


def test_a_launch_whose_answer_is_lost_launches_nothing_twice(account: Account) -> None:
    """Here the next attempt finds the instance by the claim's UID among its tags."""

    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "t-3", await account.ready(aws), "m5.large", kind="on-demand")
        original = aws._launcher._joint.order

        async def lost(*arguments: object) -> object:
            await original(*arguments)
            raise TimeoutError("the answer is lost")

        aws._launcher._joint.order = lost  # type: ignore[assignment,method-assign]
        with pytest.raises(CloudError):
            await aws.launch(order)
        aws._launcher._joint.order = original  # type: ignore[method-assign]
        await aws.launch(order)
        assert [m.claim_uid for m in await aws.instances()].count("t-3") == 1

    account.run(talk)


def test_repetitions_of_one_attempt_carry_one_token(account: Account) -> None:
    """EC2 may have launched before it failed: the repetition must be a replay."""

    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "t-4", await account.ready(aws), "m5.large", kind="on-demand")
        account.endpoint.trouble.add(ErrorRule("ec2", "CreateFleet", "InternalError", "oops", times=2, status=500))
        await aws.launch(order)
        assert [m.claim_uid for m in await aws.instances()].count("t-4") == 1

    account.run(talk)


def test_the_labs_ec2_replays_a_token_and_refuses_it_for_another_request(account: Account) -> None:
    ec2 = boto3.client(
        "ec2",
        region_name=REGION,
        endpoint_url=account.endpoint.url,
        aws_access_key_id="lab",
        aws_secret_access_key="lab",
    )
    template = ec2.create_launch_template(
        LaunchTemplateName="token-test", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "m5.large"}
    )["LaunchTemplate"]["LaunchTemplateName"]
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]

    def ask(count: int, token: str) -> list[str]:
        answer = ec2.create_fleet(
            Type="instant",
            ClientToken=token,
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                    "Overrides": [{"InstanceType": "m5.large", "SubnetId": subnet}],
                }
            ],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": "on-demand"},
        )
        return [name for row in answer["Instances"] for name in row["InstanceIds"]]

    first = ask(1, "token-a")
    assert first and ask(1, "token-a") == first and ask(1, "token-b") != first
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ask(2, "token-a")
