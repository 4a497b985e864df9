"""Instances as machines: read back by tags and by id, ended in batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.errors import is_not_found
from dovetail.cloud.protocol import Machine, MachineNotFound

POOL_TAG = "karpenter.sh/nodepool"
CLAIM_TAG = "karpenter.sh/nodeclaim"
CLASS_TAG = "karpenter.k8s.aws/ec2nodeclass"
CLUSTER_TAG = "eks:eks-cluster-name"
UID_TAG = "dovetail.sh/claim-uid"

LIVING = ("pending", "running", "stopping", "stopped", "shutting-down")

#: How long a termination waits for others to go in the same call, in seconds.
GATHER = 0.1
MOST_IN_A_CALL = 500


def provider_id(zone: str, instance_id: str) -> str:
    return f"aws:///{zone}/{instance_id}"


def instance_id(provider: str) -> str:
    return provider.rsplit("/", 1)[-1]


def tags_of(row: Mapping[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in row.get("Tags", ())}


def capacity_type(row: Mapping[str, Any]) -> str:
    if row.get("SpotInstanceRequestId") or row.get("InstanceLifecycle") == "spot":
        return "spot"
    return "reserved" if row.get("CapacityReservationId") else "on-demand"


def machine(row: Mapping[str, Any]) -> Machine:
    """What EC2 knows of an instance. Capacity is the catalogue's business and stays empty here."""
    tags = tags_of(row)
    zone = row.get("Placement", {}).get("AvailabilityZone", "")
    groups = sorted(group["GroupId"] for group in row.get("SecurityGroups", ()))
    kind = capacity_type(row)
    return Machine(
        provider_id=provider_id(zone, row["InstanceId"]),
        instance_type=row["InstanceType"],
        zone=zone,
        capacity_type=kind,
        image_id=row.get("ImageId", ""),
        capacity={},
        allocatable={},
        labels={
            "node.kubernetes.io/instance-type": row["InstanceType"],
            "topology.kubernetes.io/zone": zone,
            "karpenter.sh/capacity-type": kind,
        },
        created=row["LaunchTime"],
        claim_uid=tags.get(UID_TAG),
        claim_name=tags.get(CLAIM_TAG),
        node_pool=tags.get(POOL_TAG),
        state=row.get("State", {}).get("Name", "running"),
        tags=tags,
        network={"subnet": row.get("SubnetId", ""), "security-groups": ",".join(groups)},
    )


class Machines:
    def __init__(self, calls: Calls, cluster: str) -> None:
        self._calls = calls
        self._cluster = cluster
        self._ending: dict[str, asyncio.Future[None]] = {}
        self._sweep: asyncio.Task[None] | None = None

    async def all(self) -> tuple[Machine, ...]:
        """Every living machine of this cluster that carries our tags."""
        asked = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": "tag-key", "Values": [POOL_TAG]},
            {"Name": "instance-state-name", "Values": list(LIVING)},
        ]
        rows = await self._calls.all("ec2", "describe_instances", "Reservations", Filters=asked)
        return tuple(
            machine(row)
            for reservation in rows
            for row in reservation["Instances"]
            if CLASS_TAG in tags_of(row)
        )

    async def get(self, provider: str) -> Machine:
        try:
            answer = await self._calls("ec2", "describe_instances", InstanceIds=[instance_id(provider)])
        except Exception as error:
            if is_not_found(error):
                raise MachineNotFound(provider) from error
            raise
        for reservation in answer["Reservations"]:
            for row in reservation["Instances"]:
                if row.get("State", {}).get("Name") != "terminated":
                    return machine(row)
        raise MachineNotFound(provider)

    async def end(self, provider: str) -> None:
        """Terminate; terminations asked for at about the same time go in one call."""
        name = instance_id(provider)
        if name not in self._ending:
            self._ending[name] = asyncio.get_running_loop().create_future()
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._end_gathered(), name="aws-terminate")
        try:
            await asyncio.shield(self._ending[name])
        except Exception as error:
            if is_not_found(error):
                raise MachineNotFound(provider) from error
            raise

    async def _end_gathered(self) -> None:
        await asyncio.sleep(GATHER)
        batch = dict(list(self._ending.items())[:MOST_IN_A_CALL])
        for name in batch:
            self._ending.pop(name)
        await self._terminate(list(batch), batch)
        if self._ending:
            self._sweep = asyncio.create_task(self._end_gathered(), name="aws-terminate")

    async def _terminate(self, names: Sequence[str], waiting: Mapping[str, asyncio.Future[None]]) -> None:
        """One call; where one bad id spoils it, each on its own."""
        try:
            await self._calls("ec2", "terminate_instances", InstanceIds=list(names))
        except Exception as error:  # every waiter is told; nothing is swallowed
            if len(names) > 1 and is_not_found(error):
                for name in names:
                    await self._terminate([name], waiting)
                return
            for name in names:
                waiting[name].set_exception(error)
                waiting[name].exception()  # seen: a waiter may have been cancelled meanwhile
            return
        for name in names:
            waiting[name].set_result(None)
