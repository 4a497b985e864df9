"""The parts of an installation at AWS: roles, instance profile, queue, rules, discovery tags, access.

Each carries `OWNER_TAG`; what does not carry it is used where it fits, and never removed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from dovetail.cloud.aws.errors import code_of, is_not_found
from dovetail.install.iam import OWNER_TAG, QUEUE_RETENTION_S, Json
from dovetail.install.steps import ABSENT, EXISTS, Account, AwsCall, Change, StepStatus
from dovetail.language import message, source

DISCOVERY_TAG = "karpenter.sh/discovery"


async def optional(account: Account, service: str, operation: str, **arguments: Any) -> Any:
    """The answer; None where AWS says that there is no such thing."""
    try:
        return await account.calls(service, operation, **arguments)
    except Exception as error:  # everything but "not found" goes on
        if is_not_found(error) or code_of(error) in ("404", "ResourceNotFoundException"):
            return None
        raise


def _tags(rows: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in rows}


def _listed(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _policy(value: Any) -> Any:
    """IAM hands documents out as objects or as quoted text."""
    return json.loads(unquote(value)) if isinstance(value, str) else value


def _text(document: Json) -> str:
    return json.dumps(document, separators=(",", ":"))


#: Something of the same name that this installation did not make.
_USED = Change(StepStatus.EXISTS, why=source("was there before; used as it is"))
_LEFT = Change(StepStatus.LEAVE, why=source("was there before the installation"))


def _is_ours(there: Mapping[str, Any], owner: str) -> bool:
    return (there.get("tags") or {}).get(OWNER_TAG) == owner


def _removal(there: Any, owner: str, deletions: Callable[[Any], Iterable[AwsCall]]) -> Change:
    """Delete what this installation made, and leave what was there before it."""
    if there is None:
        return ABSENT
    return Change(StepStatus.REMOVE, tuple(deletions(there))) if _is_ours(there, owner) else _LEFT


class IamRole(msgspec.Struct, frozen=True, kw_only=True):
    """An IAM role with its trust, attached and inline policies."""

    name: str
    owner: str
    trust: Json
    attached: Sequence[str] = ()
    inline: Mapping[str, Json] = {}

    @property
    def title(self) -> str:
        return message("IAM role {name}", name=self.name)

    async def read(self, account: Account) -> Any:
        answer = await optional(account, "iam", "get_role", RoleName=self.name)
        if answer is None:
            return None
        role = answer["Role"]
        attached = await account.calls("iam", "list_attached_role_policies", RoleName=self.name)
        names = (await account.calls("iam", "list_role_policies", RoleName=self.name))["PolicyNames"]
        inline = {}
        for name in names:
            kept = await account.calls("iam", "get_role_policy", RoleName=self.name, PolicyName=name)
            inline[name] = _policy(kept["PolicyDocument"])
        return {
            "arn": role["Arn"],
            "trust": _policy(role["AssumeRolePolicyDocument"]),
            "tags": _tags(role.get("Tags", ())),
            "attached": [row["PolicyArn"] for row in attached["AttachedPolicies"]],
            "inline": inline,
        }

    def change(self, there: Any) -> Change:
        if there is not None and not _is_ours(there, self.owner):
            return _USED
        steps: list[AwsCall] = []
        if there is None:
            tags = _listed({OWNER_TAG: self.owner})
            steps.append(
                AwsCall(
                    "iam",
                    "create_role",
                    {"RoleName": self.name, "AssumeRolePolicyDocument": _text(self.trust), "Tags": tags},
                )
            )
        elif there["trust"] != self.trust:
            steps.append(
                AwsCall(
                    "iam", "update_assume_role_policy", {"RoleName": self.name, "PolicyDocument": _text(self.trust)}
                )
            )
        held, written = (there["attached"], there["inline"]) if there else ((), {})
        steps += [
            AwsCall("iam", "attach_role_policy", {"RoleName": self.name, "PolicyArn": arn})
            for arn in self.attached
            if arn not in held
        ]
        steps += [
            AwsCall(
                "iam", "put_role_policy", {"RoleName": self.name, "PolicyName": name, "PolicyDocument": _text(policy)}
            )
            for name, policy in self.inline.items()
            if written.get(name) != policy
        ]
        steps += [
            AwsCall("iam", "delete_role_policy", {"RoleName": self.name, "PolicyName": name})
            for name in written
            if name not in self.inline
        ]
        if there is None:
            return Change(StepStatus.CREATE, tuple(steps))
        return Change(StepStatus.CHANGE, tuple(steps)) if steps else EXISTS

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        for arn in there["attached"]:
            yield AwsCall("iam", "detach_role_policy", {"RoleName": self.name, "PolicyArn": arn})
        for name in there["inline"]:
            yield AwsCall("iam", "delete_role_policy", {"RoleName": self.name, "PolicyName": name})
        yield AwsCall("iam", "delete_role", {"RoleName": self.name})


class InstanceProfile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    role: str

    @property
    def title(self) -> str:
        return message("instance profile {name}", name=self.name)

    async def read(self, account: Account) -> Any:
        answer = await optional(account, "iam", "get_instance_profile", InstanceProfileName=self.name)
        if answer is None:
            return None
        profile = answer["InstanceProfile"]
        roles = [row["RoleName"] for row in profile.get("Roles", ())]
        return {"roles": roles, "tags": _tags(profile.get("Tags", ()))}

    def change(self, there: Any) -> Change:
        add = AwsCall("iam", "add_role_to_instance_profile", {"InstanceProfileName": self.name, "RoleName": self.role})
        if there is None:
            create = AwsCall(
                "iam",
                "create_instance_profile",
                {"InstanceProfileName": self.name, "Tags": _listed({OWNER_TAG: self.owner})},
            )
            return Change(StepStatus.CREATE, (create, add))
        if self.role in there["roles"]:
            return EXISTS
        if not _is_ours(there, self.owner):
            return _USED
        return Change(StepStatus.CHANGE, (add,))

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        for role in there["roles"]:
            arguments = {"InstanceProfileName": self.name, "RoleName": role}
            yield AwsCall("iam", "remove_role_from_instance_profile", arguments)
        yield AwsCall("iam", "delete_instance_profile", {"InstanceProfileName": self.name})


class OidcProvider(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's issuer, registered with IAM: without it no ServiceAccount can be a role."""

    arn: str
    issuer: str
    owner: str

    @property
    def title(self) -> str:
        return message("OIDC provider {issuer}", issuer=self.issuer)

    async def read(self, account: Account) -> Any:
        answer = await optional(account, "iam", "get_open_id_connect_provider", OpenIDConnectProviderArn=self.arn)
        return None if answer is None else {"tags": _tags(answer.get("Tags", ()))}

    def change(self, there: Any) -> Change:
        if there is not None:
            return EXISTS
        arguments = {
            "Url": f"https://{self.issuer}",
            "ClientIDList": ["sts.amazonaws.com"],
            "Tags": _listed({OWNER_TAG: self.owner}),
        }
        return Change(StepStatus.CREATE, (AwsCall("iam", "create_open_id_connect_provider", arguments),))

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        yield AwsCall("iam", "delete_open_id_connect_provider", {"OpenIDConnectProviderArn": self.arn})


class SqsQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of interruption notices, with the policy that lets EventBridge write to it."""

    name: str
    owner: str
    policy: Json

    @property
    def title(self) -> str:
        return message("SQS queue {name}", name=self.name)

    async def read(self, account: Account) -> Any:
        answer = await optional(account, "sqs", "get_queue_url", QueueName=self.name)
        if answer is None:
            return None
        url = answer["QueueUrl"]
        attributes = await account.calls("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        tags = await account.calls("sqs", "list_queue_tags", QueueUrl=url)
        policy = attributes.get("Attributes", {}).get("Policy")
        return {"url": url, "policy": json.loads(policy) if policy else None, "tags": tags.get("Tags", {})}

    def change(self, there: Any) -> Change:
        if there is None:
            attributes = {
                "MessageRetentionPeriod": str(QUEUE_RETENTION_S),
                "SqsManagedSseEnabled": "true",
                "Policy": _text(self.policy),
            }
            arguments = {"QueueName": self.name, "Attributes": attributes, "tags": {OWNER_TAG: self.owner}}
            return Change(StepStatus.CREATE, (AwsCall("sqs", "create_queue", arguments),))
        if not _is_ours(there, self.owner):
            return _USED
        if there["policy"] == self.policy:
            return EXISTS
        arguments = {"QueueUrl": there["url"], "Attributes": {"Policy": _text(self.policy)}}
        return Change(StepStatus.CHANGE, (AwsCall("sqs", "set_queue_attributes", arguments),))

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        yield AwsCall("sqs", "delete_queue", {"QueueUrl": there["url"]})


class EventRule(msgspec.Struct, frozen=True, kw_only=True):
    """An EventBridge rule that sends one kind of notice to the queue."""

    name: str
    owner: str
    arn: str
    pattern: Json
    target: str

    @property
    def title(self) -> str:
        return message("EventBridge rule {name}", name=self.name)

    async def read(self, account: Account) -> Any:
        rule = await optional(account, "events", "describe_rule", Name=self.name)
        if rule is None:
            return None
        targets = await account.calls("events", "list_targets_by_rule", Rule=self.name)
        tags = await account.calls("events", "list_tags_for_resource", ResourceARN=rule["Arn"])
        return {
            "pattern": json.loads(rule.get("EventPattern") or "null"),
            "targets": {row["Id"]: row["Arn"] for row in targets.get("Targets", ())},
            "tags": _tags(tags.get("Tags", ())),
        }

    def change(self, there: Any) -> Change:
        put = AwsCall(
            "events",
            "put_rule",
            {
                "Name": self.name,
                "EventPattern": _text(self.pattern),
                "State": "ENABLED",
                **({"Tags": _listed({OWNER_TAG: self.owner})} if there is None else {}),
            },
        )
        aim = AwsCall(
            "events", "put_targets", {"Rule": self.name, "Targets": [{"Id": "InterruptionQueue", "Arn": self.target}]}
        )
        if there is None:
            return Change(StepStatus.CREATE, (put, aim))
        if not _is_ours(there, self.owner):
            return _USED
        steps = [put] if there["pattern"] != self.pattern else []
        steps += [aim] if self.target not in there["targets"].values() else []
        return Change(StepStatus.CHANGE, tuple(steps)) if steps else EXISTS

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        if there["targets"]:
            yield AwsCall("events", "remove_targets", {"Rule": self.name, "Ids": list(there["targets"])})
        yield AwsCall("events", "delete_rule", {"Name": self.name})


class DiscoveryTag(msgspec.Struct, frozen=True, kw_only=True):
    """The tag by which an EC2NodeClass finds a subnet or security group. A second tag says that we set it."""

    kind: str
    resource: str
    owner: str

    @property
    def title(self) -> str:
        return message(
            "tag {discovery_tag} of {kind} {resource}",
            discovery_tag=DISCOVERY_TAG,
            kind=self.kind,
            resource=self.resource,
        )

    async def read(self, account: Account) -> Any:
        filters = [{"Name": "resource-id", "Values": [self.resource]}]
        rows = await account.calls.all("ec2", "describe_tags", "Tags", Filters=filters)
        return _tags([row for row in rows if row["ResourceId"] == self.resource])

    def change(self, there: Any) -> Change:
        if there.get(DISCOVERY_TAG) == self.owner:
            return EXISTS
        if DISCOVERY_TAG in there:
            why = message("belongs to {there!r}; the EC2NodeClass selects it by id", there=there[DISCOVERY_TAG])
            return Change(StepStatus.EXISTS, why=why)
        tags = _listed({DISCOVERY_TAG: self.owner, OWNER_TAG: self.owner})
        return Change(StepStatus.CREATE, (AwsCall("ec2", "create_tags", {"Resources": [self.resource], "Tags": tags}),))

    def removal(self, there: Any) -> Change:
        if there.get(OWNER_TAG) != self.owner:
            return _LEFT if DISCOVERY_TAG in there else ABSENT
        tags = _listed({DISCOVERY_TAG: self.owner, OWNER_TAG: self.owner})
        return Change(StepStatus.REMOVE, (AwsCall("ec2", "delete_tags", {"Resources": [self.resource], "Tags": tags}),))


class AccessEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Lets nodes of a role join, on clusters that authenticate by access entries."""

    cluster: str
    role_arn: str
    owner: str

    @property
    def title(self) -> str:
        return message("access entry of {rsplit}", rsplit=self.role_arn.rsplit("/", 1)[-1])

    async def read(self, account: Account) -> Any:
        answer = await optional(
            account, "eks", "describe_access_entry", clusterName=self.cluster, principalArn=self.role_arn
        )
        return None if answer is None else answer["accessEntry"]

    def change(self, there: Any) -> Change:
        if there is not None:
            if there.get("type") == "EC2_LINUX":
                return EXISTS
            why = message(
                "has the type {type}, with which nodes cannot join; delete it and repeat", type=there.get("type")
            )
            return Change(StepStatus.EXISTS, why=why)
        arguments = {
            "clusterName": self.cluster,
            "principalArn": self.role_arn,
            "type": "EC2_LINUX",
            "tags": {OWNER_TAG: self.owner},
        }
        return Change(StepStatus.CREATE, (AwsCall("eks", "create_access_entry", arguments),))

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        yield AwsCall("eks", "delete_access_entry", {"clusterName": self.cluster, "principalArn": self.role_arn})


class PodIdentityAssociation(msgspec.Struct, frozen=True, kw_only=True):
    """The association by which the ServiceAccount is the controller's role, where the cluster has Pod Identity."""

    cluster: str
    namespace: str
    service_account: str
    role_arn: str
    owner: str

    @property
    def title(self) -> str:
        return message(
            "Pod Identity association of {namespace}/{service_account}",
            namespace=self.namespace,
            service_account=self.service_account,
        )

    async def read(self, account: Account) -> Any:
        where = {"clusterName": self.cluster, "namespace": self.namespace, "serviceAccount": self.service_account}
        answer = await optional(account, "eks", "list_pod_identity_associations", **where)
        rows = (answer or {}).get("associations", ())
        if not rows:
            return None
        identifier = rows[0]["associationId"]
        described = await account.calls(
            "eks", "describe_pod_identity_association", clusterName=self.cluster, associationId=identifier
        )
        return described["association"]

    def change(self, there: Any) -> Change:
        if there is None:
            arguments = {
                "clusterName": self.cluster,
                "namespace": self.namespace,
                "tags": {OWNER_TAG: self.owner},
                "serviceAccount": self.service_account,
                "roleArn": self.role_arn,
            }
            return Change(StepStatus.CREATE, (AwsCall("eks", "create_pod_identity_association", arguments),))
        if there["roleArn"] == self.role_arn or not _is_ours(there, self.owner):
            return EXISTS
        arguments = {"clusterName": self.cluster, "associationId": there["associationId"], "roleArn": self.role_arn}
        return Change(StepStatus.CHANGE, (AwsCall("eks", "update_pod_identity_association", arguments),))

    def removal(self, there: Any) -> Change:
        return _removal(there, self.owner, self._deletions)

    def _deletions(self, there: Any) -> Iterator[AwsCall]:
        arguments = {"clusterName": self.cluster, "associationId": there["associationId"]}
        yield AwsCall("eks", "delete_pod_identity_association", arguments)
