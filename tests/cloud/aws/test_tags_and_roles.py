"""Tags that an operator gives everything, and a role that is assumed for every call."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.assumed_role import AssumedRole
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.provider import Aws
from tests.cloud.aws.conftest import REGION, Account


def test_global_tags_are_on_everything_and_a_classs_own_go_before_them(account: Account) -> None:
    async def talk(plain: Aws) -> None:
        settings = msgspec.structs.replace(plain._settings, tags={"team": "infra", "stage": "prod"})
        aws = Aws(settings, plain._clock, plain.calls)
        node_class = await account.ready(aws, tags={"team": "shop"})
        instance = await aws.launch(await account.order(aws, "tags-1", node_class, "m5.large", kind="on-demand"))
        (seen,) = [each for each in await aws.instances() if each.provider_id == instance.provider_id]
        assert (seen.tags["team"], seen.tags["stage"]) == ("shop", "prod")
        answer = await aws.calls(
            "iam", "get_instance_profile", InstanceProfileName=node_class["status"]["instanceProfile"]
        )
        tags = {tag["Key"]: tag["Value"] for tag in answer["InstanceProfile"].get("Tags", ())}
        assert tags.get("stage", "prod") == "prod"
        rows = await aws.calls.all(
            "ec2", "describe_launch_templates", "LaunchTemplates", Filters=[{"Name": "tag:stage", "Values": ["prod"]}]
        )
        assert rows

    account.run(talk)


def test_calls_are_made_with_the_credentials_of_the_assumed_role(account: Account, monkeypatch: Any) -> None:
    made: list[dict[str, Any]] = []

    class Sts:
        def assume_role(self, **arguments: Any) -> dict[str, Any]:
            made.append(arguments)
            return {
                "Credentials": {
                    "AccessKeyId": "ASSUMED",
                    "SecretAccessKey": "secret",
                    "SessionToken": "token",
                    "Expiration": "2999-01-01T00:00:00Z",
                }
            }

    plain = boto3.session.Session(aws_access_key_id="lab", aws_secret_access_key="lab", region_name=REGION)
    original = plain.client
    monkeypatch.setattr(plain, "client", lambda name, **more: Sts() if name == "sts" else original(name, **more))
    role = AssumedRole("arn:aws:iam::1:role/Controller", 1800)
    session = role.session(plain, account.endpoint.url)
    assert session.get_credentials().get_frozen_credentials().access_key == "ASSUMED"
    assert (made[0]["RoleArn"], made[0]["DurationSeconds"]) == ("arn:aws:iam::1:role/Controller", 1800)
    assert session.region_name == REGION


def test_a_role_in_the_settings_is_assumed_by_the_clients_that_are_made(monkeypatch: Any) -> None:
    made: list[str] = []

    def session(self: AssumedRole, plain: Any, endpoint: str | None) -> Any:
        made.append(self.arn)
        return plain

    monkeypatch.setattr(AssumedRole, "session", session)

    async def main() -> None:
        calls = Calls(Clock(asyncio.get_running_loop()), region=REGION, role=AssumedRole("arn:r", 900))
        await calls._client("ec2", REGION)
        calls.close()

    asyncio.run(main())
    assert made == ["arn:r"]


def test_instances_of_an_awsnodetemplate_have_the_name_that_policies_of_its_time_allow_to_end(account: Account) -> None:
    async def talk(aws: Aws) -> None:
        node_class = await account.ready(aws)
        plain = await aws.launch(await account.order(aws, "name-1", node_class, "m5.large", kind="on-demand"))
        assert "karpenter" not in plain.tags["Name"]
        owner = {"apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "name": "default", "uid": "u"}
        derived = {**node_class, "metadata": {**node_class["metadata"], "ownerReferences": [owner]}}
        named = await aws.launch(await account.order(aws, "name-2", derived, "m5.large", kind="on-demand"))
        (seen,) = [each for each in await aws.instances() if each.provider_id == named.provider_id]
        assert seen.tags["Name"] == f"karpenter.sh/provisioner-name/{named.node_pool}"

    account.run(talk)
