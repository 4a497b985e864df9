"""Instance profiles that no class uses any more are deleted, over all pages of IAM's list."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.clock import Clock, run_virtual
from dovetail.cloud.aws.instance_profiles import IDLE_S, Profiles
from dovetail.cloud.aws.provider import Aws
from tests.cloud.aws.conftest import Account


def _profiles(account: Account) -> set[str]:
    return {profile.name for profile in account.endpoint.backend("iam", "aws").instance_profiles.values()}


def test_the_profile_of_a_role_that_a_class_no_longer_names_is_deleted_once_no_instance_carries_it(
    account: Account,
) -> None:
    async def talk(aws: Aws) -> None:
        old = await account.ready(aws)
        instance = await aws.launch(await account.order(aws, "p-1", old, "m5.large", kind="on-demand"))
        account.endpoint.backend("iam", "aws").create_role(
            role_name="OtherRole",
            assume_role_policy_document="{}",
            path="/",
            permissions_boundary=None,
            description="",
            tags=[],
            max_session_duration="3600",
        )
        profiles = aws._profiles
        await profiles.sweep()
        current = (await account.ready(aws, role="OtherRole"))["status"]["instanceProfile"]
        assert current != old["status"]["instanceProfile"]
        await asyncio.sleep(IDLE_S + 1)
        current = (await account.ready(aws, role="OtherRole"))["status"]["instanceProfile"]
        await profiles.sweep()
        assert {old["status"]["instanceProfile"], current} <= _profiles(account), "an instance still carries it"
        await aws.terminate(instance.provider_id)
        await profiles.sweep()
        assert current in _profiles(account) and old["status"]["instanceProfile"] not in _profiles(account)

    account.run(talk)


def test_every_page_of_a_classs_profiles_is_released() -> None:
    class Iam:
        """Two pages, as IAM tells them: by Marker."""

        region = "eu-west-1"

        def __init__(self) -> None:
            self.deleted: list[str] = []

        async def all(self, service: str, operation: str, field: str, **asked: Any) -> list[Any]:
            from dovetail.cloud.aws.client import Calls

            return [row async for row in Calls.pages(self, service, operation, field, **asked)]

        async def __call__(self, service: str, operation: str, **asked: Any) -> Any:
            if operation == "delete_instance_profile":
                self.deleted.append(asked["InstanceProfileName"])
                return {}
            second = asked.get("Marker") == "more"
            row = {"InstanceProfileName": "b" if second else "a", "Path": asked["PathPrefix"], "Roles": []}
            return {"InstanceProfiles": [row], "IsTruncated": not second} | ({} if second else {"Marker": "more"})

    async def main() -> list[str]:
        iam: Any = Iam()
        await Profiles(iam, Clock(asyncio.get_running_loop()), "demo").release("uid")
        deleted: list[str] = iam.deleted
        return deleted

    assert run_virtual(main()) == ["a", "b"]
