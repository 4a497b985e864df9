"""Before this process may lead: EC2 answers, and it is the EC2 of the cluster's nodes."""

from __future__ import annotations

import pytest

from dovetail.cloud.aws.provider import Aws
from dovetail.cloud.aws.start_checks import (
    MAX_INSTANCES_ASKED,
    StartRefused,
    check_ec2_answers,
    check_identity,
    foreign_zones,
    sample,
)
from dovetail.cloud.provider import UNAUTHORIZED, CloudError
from dovetail.lab.aws.injected_errors import ErrorRule
from tests.cloud.aws.conftest import Account

ELSEWHERE = [f"aws:///ap-northeast-2{zone}/i-{number:017x}" for number, zone in enumerate("abcabc")]


def test_nodes_of_another_region_are_refused_with_what_differs_and_the_remedy(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        with pytest.raises(StartRefused) as refused:
            await check_identity(aws.calls, "demo", ["aws:///us-east-1a/i-1", "aws:///us-east-1b/i-2"])
        said = str(refused.value)
        for part in ("us-east-1a, us-east-1b", "'ap-northeast-2'", "account 123456789012", "AWS_REGION", "demo"):
            assert part in said

    account.run(talk)


@pytest.mark.parametrize(("code", "status"), [("AccessDenied", 403), ("InternalFailure", 500)])
def test_nodes_of_another_region_are_refused_though_sts_does_not_answer(
    account: Account, code: str, status: int
) -> None:
    account.endpoint.trouble.add(ErrorRule("sts", "GetCallerIdentity", code, "no", status=status))

    async def talk(aws: Aws) -> None:
        with pytest.raises(StartRefused, match=r"an account that STS does not name, region ap-northeast-2"):
            await check_identity(aws.calls, "demo", ["aws:///us-east-1a/i-1", "aws:///us-east-1b/i-2"])

    account.run(talk)


def test_an_account_that_knows_none_of_three_instances_is_refused(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        with pytest.raises(StartRefused, match="knows none of 3 instances"):
            await check_identity(aws.calls, "demo", [f"aws:///ap-northeast-2a/i-{n:017x}" for n in range(3)])

    account.run(talk)


def test_one_instance_that_ec2_knows_is_evidence_enough(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        order = await account.order(aws, "start-1", await account.ready(aws), "m5.large", kind="on-demand")
        instance = await aws.launch(order)
        await check_identity(aws.calls, "demo", [*ELSEWHERE, instance.provider_id])

    account.run(talk)


@pytest.mark.parametrize(
    "provider_ids",
    [[], ["aws:///ap-northeast-2a/i-1", "aws:///ap-northeast-2b/i-2"], ["kind://docker/kind/node"] * 5],
)
def test_too_little_to_judge_by_refuses_nothing(account: Account, provider_ids: list[str]) -> None:
    account.run(lambda aws: check_identity(aws.calls, "demo", provider_ids))


def test_a_question_that_ec2_does_not_answer_is_no_evidence(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        account.endpoint.trouble.add(ErrorRule("ec2", "DescribeInstances", "UnauthorizedOperation", "no"))
        with pytest.raises(CloudError) as caught:
            await check_identity(aws.calls, "demo", ELSEWHERE)
        assert caught.value.reason == UNAUTHORIZED

    account.run(talk)


def test_ec2_answers_a_dry_run_and_its_failure_is_classified(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        await check_ec2_answers(aws.calls)
        account.endpoint.trouble.add(ErrorRule("ec2", "DescribeInstanceTypes", "AuthFailure", "no"))
        with pytest.raises(CloudError) as caught:
            await check_ec2_answers(aws.calls)
        assert caught.value.reason == UNAUTHORIZED

    account.run(talk)


def test_zones_are_foreign_only_where_most_nodes_are_outside_the_region() -> None:
    inside, outside = "aws:///us-west-2-lax-1a/i-1", "aws:///us-east-1a/i-2"
    assert foreign_zones([inside, inside, outside], "us-west-2") == []
    assert foreign_zones([inside, outside, outside], "us-west-2") == ["us-east-1a"]


def test_of_many_instances_a_spread_sample_is_asked_for() -> None:
    names = sample([f"aws:///a/i-{number:05}" for number in range(5000)])
    assert 100 <= len(names) <= MAX_INSTANCES_ASKED
    assert (names[0], names[-1] > "i-04900") == ("i-00000", True)
