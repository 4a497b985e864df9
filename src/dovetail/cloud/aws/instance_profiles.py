"""Instance profiles: the door through which an instance gets its IAM role.

Made for a node class that names a role, under a path that carries the class's UID, so that they can be
found again and taken away with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, is_not_found
from dovetail.cloud.aws.ttl_cache import TtlCache
from dovetail.cloud.provider import CloudError, Remedy
from dovetail.language import source
from dovetail.model.labels import REGION

#: How long a profile may be of no use to any class before it is deleted, in seconds.
IDLE_S = 3600.0


class Profiles:
    def __init__(self, calls: Calls, clock: Clock, cluster: str) -> None:
        self._calls = calls
        self._clock = clock
        self._cluster = cluster
        self._used: dict[str, float] = {}
        self._known: TtlCache[str] = TtlCache(clock, 15 * 60.0)

    def path(self, class_uid: str) -> str:
        return f"/karpenter/{self._calls.region}/{self._cluster}/{class_uid}/"

    def name(self, class_name: str, class_uid: str, role: str) -> str:
        """The same class and role, the same name: a crash between two calls leaves nothing to guess."""
        digest = hashlib.sha256(f"{self._calls.region}/{class_name}/{class_uid}/{role}".encode()).hexdigest()
        return f"{self._cluster}_{int(digest[:16], 16)}"

    async def ensure(self, class_name: str, class_uid: str, role: str, tags: Mapping[str, str]) -> str:
        """The name of a profile that carries `role`, made if need be."""
        bare = role.rsplit("/", 1)[-1]
        name = self.name(class_name, class_uid, bare)
        self._used[name] = self._clock.monotonic()

        async def ask() -> str:
            roles = await self._roles(name)
            if roles is None:
                await self._create(name, class_uid, tags)
            role_names = [role["RoleName"] for role in roles or ()]
            for other in role_names:
                if other != bare:
                    await self._calls(
                        "iam", "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=other
                    )
            if bare not in role_names:
                await self._add(name, bare)
            return name

        return await self._known.get(name, ask)

    async def release(self, class_uid: str) -> None:
        """Take away every profile of a class, and none of another's: some servers do not look at the prefix."""
        self._known.forget()
        path = self.path(class_uid)
        for profile in await self._calls.all("iam", "list_instance_profiles", "InstanceProfiles", PathPrefix=path):
            if profile.get("Path") == path:
                await self._delete(profile)

    async def sweep(self) -> None:
        """Delete profiles of this cluster that no class has used for a while and no instance carries.

        A class whose `spec.role` changed leaves the profile of its old role behind.
        """
        now, path = self._clock.monotonic(), f"/karpenter/{self._calls.region}/{self._cluster}/"
        for profile in await self._calls.all("iam", "list_instance_profiles", "InstanceProfiles", PathPrefix=path):
            name = profile["InstanceProfileName"]
            if not str(profile.get("Path", "")).startswith(path):
                continue
            used = self._used.setdefault(name, now)  # one from an earlier life gets its full idle time
            if now - used > IDLE_S and not await self._is_in_use(profile["Arn"]):
                await self._delete(profile)

    async def _is_in_use(self, arn: str) -> bool:
        """Whether an instance that is not terminated has this profile."""
        search = [{"Name": "iam-instance-profile.arn", "Values": [arn]}]
        rows = await self._calls.all("ec2", "describe_instances", "Reservations", Filters=search, MaxResults=1000)
        return any(
            (instance.get("IamInstanceProfile") or {}).get("Arn") == arn
            and (instance.get("State") or {}).get("Name") != "terminated"
            for reservation in rows
            for instance in reservation["Instances"]
        )

    async def _delete(self, profile: Mapping[str, Any]) -> None:
        name = profile["InstanceProfileName"]
        for role in profile.get("Roles", ()):
            await self._ignore_not_found(
                "remove_role_from_instance_profile", InstanceProfileName=name, RoleName=role["RoleName"]
            )
        await self._ignore_not_found("delete_instance_profile", InstanceProfileName=name)
        self._used.pop(name, None)

    async def exists(self, name: str) -> bool:
        return await self._roles(name) is not None

    async def role_arn(self, name: str) -> str | None:
        """The role behind a profile; None if there is no such profile or no role in it."""
        roles = await self._roles(name)
        return str(roles[0]["Arn"]) if roles else None

    async def _roles(self, name: str) -> Sequence[Mapping[str, Any]] | None:
        """The roles in a profile; None if there is no such profile."""
        try:
            answer = await self._calls("iam", "get_instance_profile", InstanceProfileName=name)
        except Exception as error:
            if is_not_found(error):
                return None
            raise
        roles: Sequence[Mapping[str, Any]] = answer["InstanceProfile"].get("Roles", ())
        return roles

    async def _create(self, name: str, class_uid: str, tags: Mapping[str, str]) -> None:
        """With the region among its tags: IAM knows none, and Karpenter's policy lets each region make its own only."""
        tags = {**tags, REGION: self._calls.region}
        try:
            await self._calls(
                "iam",
                "create_instance_profile",
                InstanceProfileName=name,
                Path=self.path(class_uid),
                Tags=[{"Key": key, "Value": value} for key, value in sorted(tags.items())],
            )
        except Exception as error:
            if code_of(error) != "EntityAlreadyExists":
                raise

    async def _add(self, name: str, role: str) -> None:
        try:
            await self._calls("iam", "add_role_to_instance_profile", InstanceProfileName=name, RoleName=role)
        except Exception as error:
            if is_not_found(error):
                raise CloudError(
                    "InstanceProfileNotReady",
                    source("spec.role: IAM has no role {role!r}; create it, or name the role your nodes use").format(
                        role=role
                    ),
                    Remedy.OPERATOR,
                ) from error
            raise

    async def _ignore_not_found(self, operation: str, **arguments: str) -> None:
        """A deletion that finds nothing has done its work."""
        try:
            await self._calls("iam", operation, **arguments)
        except Exception as error:
            if not is_not_found(error):
                raise
