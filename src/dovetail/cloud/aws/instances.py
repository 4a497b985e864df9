"""Instances: read back by tags and by id, looked at and ended many in a call.

An instance launched together with others that carries no claim's name yet is assigned its claim when all are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.batcher import CallBatcher
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.create_fleet_batcher import Order, order_of_instance, orders_of
from dovetail.cloud.aws.errors import code_of, is_not_found, may_concern_one, message_of
from dovetail.cloud.provider import CloudError, Instance, InstanceNotFound, RebootRejected, Remedy
from dovetail.language import source
from dovetail.model import labels as keys

POOL_TAG = keys.NODEPOOL
CLAIM_TAG = "karpenter.sh/nodeclaim"
CLASS_TAG = keys.NODECLASS
CLUSTER_TAG = "eks:eks-cluster-name"
UID_TAG = "dovetail.sh/claim-uid"
NAME_TAG = "Name"

LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")

#: How many instances are ended in one call, and how many ids a filter takes.
MOST_ENDED, MOST_SEEN = 500, 200

#: What EC2 says of an instance that it will never reboot as it stands.
NOT_REBOOTED = frozenset({"IncorrectInstanceState", "IncorrectState", "UnsupportedOperation"})

#: Why instances end as soon as they start, by what EC2 says of it, and what to do.
_REMEDIES = {
    "Client.InternalError": source(
        "its volume's KMS key is likely denied: allow the key to the node's launch, or use another"
    ),
    "Client.InvalidSnapshot.NotFound": source("the image's snapshot is gone: pick another image"),
    "Server.InsufficientInstanceCapacity": source("there was no capacity after all"),
    "Client.VolumeLimitExceeded": source("raise the account's EBS volume quota"),
}


def provider_id(zone: str, instance_id: str) -> str:
    return f"aws:///{zone}/{instance_id}"


def instance_id(provider: str) -> str:
    return provider.rsplit("/", 1)[-1]


def tags_of(row: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}


def names(pool: str, claim: str) -> dict[str, str]:
    """Tags by which people find an instance. Karpenter's policy lets them be set after the launch, and no others."""
    return {NAME_TAG: f"{pool}/{claim}", CLAIM_TAG: claim}


def provisioner_names(pool: str, node_class: Mapping[str, Any]) -> dict[str, str]:
    """The name of instances of an AWSNodeTemplate, as Karpenter gave it then.

    IAM policies of that time allow the termination of instances whose name contains `karpenter`, and of no others.
    """
    owners = node_class["metadata"].get("ownerReferences") or ()
    derived = any(owner.get("kind") == "AWSNodeTemplate" for owner in owners)
    return {NAME_TAG: f"{keys.PROVISIONER_NAME}/{pool}"} if derived else {}


def pool_of(claim: Mapping[str, Any]) -> str:
    """The pool a claim is of; a claim made by hand has none."""
    pool: str = (claim["metadata"].get("labels") or {}).get(POOL_TAG, "")
    return pool


def named(instance: Instance) -> bool:
    return CLAIM_TAG in instance.tags


def capacity_type(row: Mapping[str, Any]) -> str:
    if row.get("SpotInstanceRequestId") or row.get("InstanceLifecycle") == "spot":
        return "spot"
    taken = (row.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference")
    planned = row.get("CapacityReservationId") and taken == "capacity-reservations-only"
    return "reserved" if planned else "on-demand"


def instance(row: Mapping[str, Any]) -> Instance:
    """What EC2 knows of an instance. Capacity is the catalogue's business and stays empty here."""
    tags = tags_of(row)
    zone = row.get("Placement", {}).get("AvailabilityZone", "")
    groups = sorted(group["GroupId"] for group in row.get("SecurityGroups", ()))
    kind = capacity_type(row)
    return Instance(
        provider_id=provider_id(zone, row["InstanceId"]),
        instance_type=row["InstanceType"],
        zone=zone,
        capacity_type=kind,
        image_id=row.get("ImageId", ""),
        capacity={},
        allocatable={},
        labels={
            keys.INSTANCE_TYPE: row["InstanceType"],
            keys.ZONE: zone,
            keys.CAPACITY_TYPE: kind,
            **({keys.RESERVATION: row["CapacityReservationId"]} if kind == "reserved" else {}),
            **_placed(row.get("Placement", {})),
        },
        created=row["LaunchTime"],
        claim_uid=tags.get(UID_TAG) or _together(tags).get(tags.get(CLAIM_TAG, "")),
        claim_name=tags.get(CLAIM_TAG),
        node_pool=tags.get(POOL_TAG),
        state=row.get("State", {}).get("Name", "running"),
        tags=tags,
        network={"subnet": row.get("SubnetId", ""), "security-groups": ",".join(groups)},
    )


def _placed(placement: Mapping[str, Any]) -> dict[str, str]:
    """The placement group an instance stands in, and which part of it."""
    values = {
        keys.PLACEMENT_GROUP: placement.get("GroupId"),
        keys.PLACEMENT_PARTITION: placement.get("PartitionNumber"),
    }
    return {key: str(value) for key, value in values.items() if value}


def _together(tags: Mapping[str, str]) -> dict[str, str]:
    return {order.name: order.uid for order in orders_of(tags)}


def with_owners(instances: Sequence[Instance]) -> tuple[Instance, ...]:
    """Instances launched together and not assigned yet get the claims of their request that have no instance."""
    groups: dict[tuple[Order, ...], list[Instance]] = {}
    for instance in instances:
        if orders := orders_of(instance.tags):
            groups.setdefault(orders, []).append(instance)
    order_of: dict[str, Order] = {}
    for orders, members in groups.items():
        served = {member.claim_uid for member in members}
        left = (instance_id(member.provider_id) for member in members if member.claim_uid is None)
        order_of |= order_of_instance(left, (order for order in orders if order.uid not in served))
    return tuple(_owned(instance, order_of.get(instance_id(instance.provider_id))) for instance in instances)


def _owned(instance: Instance, order: Order | None) -> Instance:
    if order is None:
        return instance
    return msgspec.structs.replace(instance, claim_uid=order.uid, claim_name=order.name)


def ended(row: Mapping[str, Any]) -> str:
    """Why a terminated instance ended, if EC2 says so, and the way out where one is known."""
    reason = row.get("StateReason") or {}
    code, message = reason.get("Code", ""), reason.get("Message", "") or row.get("StateTransitionReason", "")
    fix = _REMEDIES.get(code, "")
    return f"{message or 'terminated'}{f'; {fix}' if fix else ''}"


class Ec2Instances:
    def __init__(
        self, calls: Calls, cluster: str, observe: Callable[[str, int, float], None] = lambda name, size, seconds: None
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._seen: CallBatcher[Mapping[str, Any]] = CallBatcher(
            self._describe, MOST_SEEN, "describe_instances", observe=observe
        )
        self._ended: CallBatcher[str] = CallBatcher(
            self._terminate, MOST_ENDED, "terminate_instances", splits=may_concern_one, complete=True, observe=observe
        )

    async def all(self) -> tuple[Instance, ...]:
        """Every living instance of this cluster that carries our tags."""
        search = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": "tag-key", "Values": [POOL_TAG]},
            {"Name": "instance-state-name", "Values": list(LIVING)},
        ]
        rows = await self._calls.all("ec2", "describe_instances", "Reservations", Filters=search, MaxResults=1000)
        listed = (row for reservation in rows for row in reservation["Instances"])
        return with_owners([instance(row) for row in listed if self._is_listed(tags_of(row))])

    def _is_listed(self, tags: Mapping[str, str]) -> bool:
        """Whether tags are those asked for; EC2's filter alone is not enough, as orphans on the list are terminated."""
        return tags.get(CLUSTER_TAG) == self._cluster and POOL_TAG in tags and CLASS_TAG in tags

    def is_foreign(self, instance: Instance) -> bool:
        """Whether the tags say that another cluster owns an instance."""
        return instance.tags.get(CLUSTER_TAG, self._cluster) != self._cluster

    async def get(self, provider: str) -> Instance:
        row = await self._seen.get(instance_id(provider))
        if row is None:
            raise InstanceNotFound(provider)
        if row.get("State", {}).get("Name") == "terminated":
            raise InstanceNotFound(provider, ended(row))
        return instance(row)

    async def name(self, instance: Instance) -> None:
        """Give an instance that was launched together with others its claim's name."""
        tags = names(instance.node_pool or "", instance.claim_name or "")
        named = {key: value for key, value in tags.items() if key == CLAIM_TAG or key not in instance.tags}
        listed = [{"Key": key, "Value": value} for key, value in named.items()]
        await self._calls("ec2", "create_tags", Resources=[instance_id(instance.provider_id)], Tags=listed)

    async def end(self, provider: str) -> None:
        """Terminate; terminations asked for at about the same time go in one call."""
        try:
            state = await self._ended.get(instance_id(provider))
        except Exception as error:
            if is_not_found(error):
                raise InstanceNotFound(provider) from error
            raise
        if state is None:
            name = instance_id(provider)
            raise CloudError(
                "TerminationNotConfirmed", f"EC2 did not say that it ends {name}; it is asked again", Remedy.RETRY
            )

    async def restart(self, provider: str) -> None:
        """Reboot in place. A second reboot of an instance that is just going down changes nothing."""
        try:
            await self._calls("ec2", "reboot_instances", InstanceIds=[instance_id(provider)])
        except Exception as error:
            if is_not_found(error):
                raise InstanceNotFound(provider) from error
            if code_of(error) in NOT_REBOOTED:
                raise RebootRejected(f"{code_of(error)}: {message_of(error)}") from error
            raise

    async def _describe(self, names: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """By filter, which leaves out an id that does not exist, where a list of ids would fail for all."""
        search = [{"Name": "instance-id", "Values": list(names)}]
        rows = await self._calls.all("ec2", "describe_instances", "Reservations", Filters=search, MaxResults=1000)
        return {row["InstanceId"]: row for reservation in rows for row in reservation["Instances"]}

    async def _terminate(self, names: Sequence[str]) -> Mapping[str, str]:
        """The state each instance went to. EC2 ends none of a zone's instances where it may not end one of them."""
        answer = await self._calls("ec2", "terminate_instances", InstanceIds=list(names))
        rows = answer.get("TerminatingInstances") or ()
        return {row["InstanceId"]: (row.get("CurrentState") or {}).get("Name", "") for row in rows}
