"""A class's launch tried by dry runs over real HTTP: which right is missing, what stands, when it is tried again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.cloud.aws import nodeclass_validation
from dovetail.cloud.aws.provider import Aws
from dovetail.lab.aws.injected_errors import ErrorRule
from dovetail.model.kinds.convert_v1alpha5 import LAUNCH_TEMPLATE_ANNOTATION
from tests.cloud.aws.conftest import Account

DENIED = (
    "You are not authorized to perform this operation. User: arn:aws:sts::1:assumed-role/karpenter is not authorized"
    " to perform: ec2:{} because no identity-based policy allows it."
)


def _pool(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "shop"}, "spec": {"template": {"spec": {"requirements": list(requirements)}}}}


def _types(*names: str) -> dict[str, Any]:
    return {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": list(names)}


async def _valid(aws: Aws, node_class: dict[str, Any], *pools: dict[str, Any]) -> tuple[str, str, str]:
    (found,) = [each for each in (await aws.resolve(node_class, pools)).conditions if each[0] == "ValidationSucceeded"]
    return found[1:]


def _dry(account: Account) -> list[str]:
    return [record.operation for record in account.records if record.dry]


@pytest.mark.parametrize("right", ["CreateLaunchTemplate", "CreateFleet", "RunInstances"])
def test_a_missing_right_is_named_before_any_caller_needs_it(account: Account, right: str) -> None:
    account.endpoint.trouble.add(ErrorRule("ec2", right, "UnauthorizedOperation", DENIED.format(right), status=403))

    async def talk(aws: Aws) -> None:
        status, reason, words = await _valid(aws, account.node_class(context=right))
        assert (status, reason) == ("False", f"{right}AuthCheckFailed")
        assert words.startswith(f"Controller isn't authorized to call ec2:{right}: UnauthorizedOperation: ")
        assert "no identity-based policy" in words and "IAM policy (UNAUTHORIZED)" in words

    account.run(talk, dry_runs=True)
    assert not [i for i in account.endpoint.instances() if i.state == "running"], "a dry run launches nothing"


def test_what_was_found_is_believed_for_a_while_and_sooner_tried_again_if_it_was_bad(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = account.node_class()
        rule = ErrorRule("ec2", "CreateFleet", "UnauthorizedOperation", "no", status=403)
        account.endpoint.trouble.add(rule)
        assert (await _valid(aws, node_class))[0] == "False"
        account.endpoint.trouble.remove(rule)
        assert (await _valid(aws, node_class))[0] == "False" and _dry(account) == ["create_fleet"]
        await asyncio.sleep(nodeclass_validation.BAD + 1)
        assert (await _valid(aws, node_class))[0] == "True"
        tried = len(_dry(account))
        await asyncio.sleep(nodeclass_validation.BAD + 1)
        assert (await _valid(aws, node_class))[0] == "True" and len(_dry(account)) == tried
        await asyncio.sleep(nodeclass_validation.GOOD)
        assert (await _valid(aws, node_class))[0] == "True" and len(_dry(account)) == 2 * tried - 1

    account.run(talk, dry_runs=True)


def test_to_annotate_a_class_or_to_change_it_is_to_ask_for_another_try(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = account.node_class()
        for change in ({}, {"note": "again"}, {"note": "again", "karpenter.k8s.aws/ec2nodeclass-hash": "1"}):
            node_class["metadata"]["annotations"] = change
            await _valid(aws, node_class)
        assert _dry(account).count("run_instances") == 2, "our own marks are no news"
        await _valid(aws, account.node_class(detailedMonitoring=True))
        assert _dry(account).count("run_instances") == 3

    account.run(talk, dry_runs=True)


@pytest.mark.parametrize("known", [True, False])
def test_where_aws_does_not_answer_what_was_known_stands(account: Account, known: bool) -> None:
    account.endpoint.trouble.add(ErrorRule("ec2", "RunInstances", "RequestLimitExceeded", "slow down", status=503))

    async def talk(aws: Aws) -> None:
        node_class = account.node_class()
        node_class["metadata"]["generation"] = 3
        before = {
            "type": "ValidationSucceeded",
            "status": "True",
            "reason": "ValidationSucceeded",
            "message": "",
            "observedGeneration": 3 if known else 2,
        }
        node_class["status"] = {"conditions": [before]}
        status, reason, _ = await _valid(aws, node_class)
        assert (status, reason) == (("True", "ValidationSucceeded") if known else ("Unknown", "RequestLimitExceeded"))

    account.run(talk, dry_runs=True)


def test_one_subnet_in_which_a_instance_may_run_is_enough(account: Account) -> None:
    account.endpoint.trouble.add(ErrorRule("ec2", "RunInstances", "UnauthorizedOperation", "not here", times=1))

    async def talk(aws: Aws) -> None:
        assert (await _valid(aws, account.node_class()))[0] == "True"
        assert _dry(account).count("run_instances") == 2

    account.run(talk, dry_runs=True)


def test_a_launch_that_would_fail_for_another_reason_tells_it(account: Account) -> None:
    words = "User data is limited to 16384 bytes"
    account.endpoint.trouble.add(ErrorRule("ec2", "CreateLaunchTemplate", "InvalidParameterValue", words))

    async def talk(aws: Aws) -> None:
        status, reason, reported = await _valid(aws, account.node_class(userData="echo long"))
        assert (status, reason) == ("False", "UserDataSizeLimitExceeded") and words in reported

    account.run(talk, dry_runs=True)


def test_without_dry_runs_nothing_is_tried(account: Account) -> None:
    account.endpoint.trouble.add(ErrorRule("ec2", "CreateFleet", "UnauthorizedOperation", "no", status=403))

    async def talk(aws: Aws) -> None:
        assert (await _valid(aws, account.node_class()))[0] == "True"

    account.run(talk)
    assert _dry(account) == []


DEDICATED = {"key": "karpenter.k8s.aws/instance-tenancy", "operator": "In", "values": ["default", "dedicated"]}
CARD = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


@pytest.mark.parametrize(
    ("change", "pools"),
    [
        ({}, [_pool(DEDICATED)]),
        ({"networkInterfaces": [CARD]}, []),
        ({"amiSelectorTerms": [{"alias": "windows2022@latest"}]}, [_pool(_types("c5.large"))]),
        ({"userData": None}, []),
    ],
)
def test_classes_of_every_sort_can_be_tried(
    account: Account, change: dict[str, Any], pools: list[dict[str, Any]]
) -> None:
    async def talk(aws: Aws) -> None:
        node_class = account.node_class(**change)
        if "userData" in change:  # of the first generation, with a launch template of its own
            data = {"ImageId": "ami-1", "SecurityGroupIds": ["sg-1"]}
            await aws.calls("ec2", "create_launch_template", LaunchTemplateName="mine", LaunchTemplateData=data)
            node_class["metadata"]["annotations"] = {LAUNCH_TEMPLATE_ANNOTATION: "mine"}
        assert await _valid(aws, node_class, *pools) == ("True", "ValidationSucceeded", "")
        assert _dry(account) == ["create_fleet", "run_instances"]

    account.run(talk, dry_runs=True)


@pytest.mark.parametrize(
    ("pools", "name"),
    [
        ([], "m5.large"),
        ([_pool(_types("r5.large", "c5.large"))], "c5.large"),
        ([_pool(_types("x1.none"))], "m5.large"),
        ([_pool(_types("r5.xlarge")), _pool(_types("c5.xlarge"))], "c5.xlarge"),
    ],
)
def test_it_is_tried_with_a_type_that_a_pool_of_the_class_takes(
    account: Account, pools: list[dict[str, Any]], name: str
) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        options = nodeclass_validation.candidates(await aws.instance_types({}, node_class), pools, node_class)
        assert {each.instance_type.name for each in options} == {name}

    account.run(talk, dry_runs=True)
