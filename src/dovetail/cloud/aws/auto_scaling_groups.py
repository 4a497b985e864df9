"""Auto Scaling groups as node groups: found by name or tag, read into a cache, resized, cut instance by instance.

What is read is at most a minute old, and ten seconds old while a group waits for instances. A unit of desired
capacity that has no instance yet is shown as a placeholder, so that it can fail and be withdrawn like an instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import catalog, group_tags
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of, message_of
from dovetail.cloud.aws.group_tags import NodesFlag
from dovetail.cloud.aws.group_templates import GroupTemplates, mixed_policy, mixed_sizes
from dovetail.cloud.aws.managed_node_groups import ManagedNodeGroups
from dovetail.cloud.node_groups import (
    ErrorClass,
    GroupInitiatedTermination,
    GroupMember,
    GroupOptions,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeGroupError,
    NodeTemplate,
    SizeRefused,
)
from dovetail.kube.log import Log

log = Log(__name__)

REFRESH_S = 60.0
#: While a group waits for instances.
WAITING_REFRESH_S = 10.0
MAX_NAMES_PER_DESCRIBE = 100
PLACEHOLDER = "i-placeholder"
UNFULFILLABLE = "placeholder-cannot-be-fulfilled"
_FAILED_ACTIVITY = "Failed"
#: Before what AWS answers, which is long: statuses keep 500 characters of it.
NOT_ALLOWED = (
    "the role may not change this group (the policy of `dovetail iam --for cluster-autoscaler` is for groups with the "
    "tags k8s.io/cluster-autoscaler/enabled and k8s.io/cluster-autoscaler/CLUSTER)"
)
#: How AWS words the cause of an ending: to even out zones, and by a desired capacity that was lowered.
_REBALANCING = ("rebalanc", "to balance instances in zones")
_OWN_CHOICE = (*_REBALANCING, "was selected for termination", "shrinking the capacity")
_GONE = ("ValidationError", "InvalidInstanceID.NotFound")


class GroupDiscovery(msgspec.Struct, frozen=True, kw_only=True):
    """Which groups are under control: named ones with our own bounds, and those that have all the tags."""

    named: tuple[NodesFlag, ...] = ()
    tags: tuple[Mapping[str, str], ...] = ()


class AutoScalingGroups:
    """A `NodeGroupCloud` on AWS."""

    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        discovery: GroupDiscovery,
        defaults: GroupOptions | None = None,
        *,
        static_types: bool = False,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._discovery = discovery
        self._defaults = defaults or GroupOptions()
        self._templates = GroupTemplates(calls, clock, ManagedNodeGroups(calls, clock), static_types=static_types)
        self._started = clock.now()
        self._read_at: float | None = None
        self._groups: dict[str, NodeGroup] = {}
        self._raw: dict[str, Mapping[str, Any]] = {}
        self._group_of: dict[str, str] = {}
        #: When we last set a group's size: failures of before say nothing about it.
        self._resized: dict[str, datetime] = {}
        self._waiting = False
        self._terminated: set[str] = set()
        self._endings: list[GroupInitiatedTermination] = []

    # Reading

    async def refresh(self, *, force: bool = False) -> None:
        now = self._clock.monotonic()
        life = WAITING_REFRESH_S if self._waiting else REFRESH_S
        if not force and self._read_at is not None and now - self._read_at < life:
            return
        raw = await self._describe()
        groups: dict[str, NodeGroup] = {}
        for group_ in raw.values():
            group = await self._node_group(group_)
            groups[group.id] = group
        lost = self._lost(groups)
        self._raw, self._groups = raw, groups
        self._group_of = {instance.provider_id: group.id for group in groups.values() for instance in group.instances}
        self._waiting = any(_waits(group) for group in groups.values())
        self._read_at = now
        for name, provider_ids in lost.items():
            self._endings += await self._group_initiated(name, provider_ids)

    def _lost(self, groups: Mapping[str, NodeGroup]) -> dict[str, list[str]]:
        """Instances by group that were there, and have gone without a call of ours."""
        lost: dict[str, list[str]] = {}
        for name, group in self._groups.items():
            current = groups.get(name)
            living = _running(current) if current is not None else set()
            gone = sorted(_running(group) - living - self._terminated)
            if gone and current is not None:
                lost[name] = gone
        self._terminated &= {instance.provider_id for group in groups.values() for instance in group.instances}
        return lost

    async def _group_initiated(self, name: str, provider_ids: Sequence[str]) -> list[GroupInitiatedTermination]:
        """Those of the instances that the group itself chose to end, by its scaling activities."""
        endings: list[GroupInitiatedTermination] = []
        for activity in await self._activities(name):
            cause = str(activity.get("Cause") or "")
            for provider_id in provider_ids:
                ended = f"Terminating EC2 instance: {instance_id(provider_id)}" in str(
                    activity.get("Description") or ""
                )
                if ended and any(words in cause for words in _OWN_CHOICE):
                    rebalancing = any(words in cause for words in _REBALANCING)
                    endings.append(GroupInitiatedTermination(name, provider_id, cause, rebalancing))
        return endings

    def group_initiated_terminations(self) -> Sequence[GroupInitiatedTermination]:
        endings, self._endings = self._endings, []
        return endings

    async def _describe(self) -> dict[str, Mapping[str, Any]]:
        names = [spec.name for spec in self._discovery.named]
        rows: dict[str, Mapping[str, Any]] = {}
        for start in range(0, len(names), MAX_NAMES_PER_DESCRIBE):
            some = names[start : start + MAX_NAMES_PER_DESCRIBE]
            for group in await self._calls.all(
                "autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups", AutoScalingGroupNames=some
            ):
                rows[group["AutoScalingGroupName"]] = group
        if self._discovery.tags:
            for group in await self._calls.all(
                "autoscaling",
                "describe_auto_scaling_groups",
                "AutoScalingGroups",
                Filters=group_tags.discovery_filters(self._discovery.tags),
            ):
                rows.setdefault(group["AutoScalingGroupName"], group)
        return rows

    async def _node_group(self, described: Mapping[str, Any]) -> NodeGroup:
        name = described["AutoScalingGroupName"]
        named = next((spec for spec in self._discovery.named if spec.name == name), None)
        desired = int(described["DesiredCapacity"])
        instances = [_instance(instance) for instance in described.get("Instances") or ()]
        missing = desired - len(instances)
        if missing > 0:
            failure = await self._failure(name)
            zone = (described.get("AvailabilityZones") or ["unknown"])[0]
            for number in range(len(instances), desired):
                provider_id = f"aws:///{zone}/{PLACEHOLDER}-{name}-{number}"
                instances.append(GroupMember(provider_id, InstanceState.CREATING, failure))
        return NodeGroup(
            id=name,
            min_size=named.min_size if named else int(described["MinSize"]),
            max_size=named.max_size if named else int(described["MaxSize"]),
            target_size=desired,
            instances=tuple(instances),
            options=group_tags.options(group_tags.tag_map(described.get("Tags") or ()), self._defaults),
            mixed_sizes=mixed_sizes(mixed_policy(described.get("MixedInstancesPolicy"))),
        )

    async def _failure(self, name: str) -> InstanceError | None:
        """Why the group gets no instances, if AWS reported it since the size was set. Not knowing is no failure."""
        since = self._resized.get(name, self._started) - timedelta(seconds=1)
        for activity in await self._activities(name):
            if activity["StartTime"] < since:
                break
            if activity["StatusCode"] == _FAILED_ACTIVITY:
                cause = activity.get("StatusMessage") or activity.get("Cause") or ""
                message = "AWS cannot provision any more instances for this node group"
                return InstanceError(ErrorClass.OUT_OF_RESOURCES, UNFULFILLABLE, f"{message}: {cause}".rstrip(": "))
        return None

    async def _activities(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The newest scaling activities of a group; none where they cannot be read."""
        try:
            answer = await self._calls("autoscaling", "describe_scaling_activities", AutoScalingGroupName=name)
        except Exception as error:  # whatever boto3 raises: the group is read without it, and its instances waited for
            log.warning("scaling activities not read", group=name, problem=str(error))
            return ()
        return answer.get("Activities") or ()

    def groups(self) -> Sequence[NodeGroup]:
        return list(self._groups.values())

    def group_of(self, provider_id: str) -> NodeGroup | None:
        name = self._group_of.get(provider_id)
        return self._groups.get(name) if name is not None else None

    async def template(self, group: NodeGroup) -> NodeTemplate:
        raw = self._raw.get(group.id)
        if raw is None:
            raise NodeGroupError(f"group {group.id}: no Auto Scaling group of that name exists")
        return await self._templates.template(raw)

    # Acting

    async def increase(self, group: NodeGroup, delta: int) -> None:
        if delta <= 0:
            raise SizeRefused(f"group {group.id}: size increase must be positive, not {delta}")
        size = self._size(group)
        if size + delta > group.max_size:
            raise SizeRefused(
                f"group {group.id}: size increase too large - desired:{size + delta} max:{group.max_size}"
            )
        await self._set_size(group.id, size + delta)

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        if delta <= 0:
            raise SizeRefused(f"group {group.id}: size decrease must be positive, not {delta}")
        current = await self._read_one(group.id)
        size, real = int(current["DesiredCapacity"]), len(current.get("Instances") or ())
        if size - delta < real:
            raise SizeRefused(
                f"group {group.id}: attempt to delete existing nodes targetSize:{size} delta:{-delta} "
                f"existingNodes: {real}"
            )
        await self._set_size(group.id, size - delta)

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        if self._size(group) <= group.min_size:
            raise SizeRefused(f"group {group.id}: min size reached, nodes will not be deleted")
        strangers = [provider_id for provider_id in provider_ids if self._group_of.get(provider_id) != group.id]
        if strangers:
            raise NodeGroupError(f"group {group.id}: {', '.join(strangers)} belong to another group or to none")
        try:
            placeholders = [provider_id for provider_id in provider_ids if is_placeholder(provider_id)]
            if placeholders:
                await self._withdraw(group, len(placeholders))
            for provider_id in provider_ids:
                if not is_placeholder(provider_id):
                    await self._terminate(group, provider_id)
        finally:
            self._read_at = None  # what is known is wrong now, whatever came of it

    async def _withdraw(self, group: NodeGroup, count: int) -> None:
        """Lower the size by units without an instance. An instance that came meanwhile must not pay for it."""
        current = await self._read_one(group.id)
        size, real = int(current["DesiredCapacity"]), len(current.get("Instances") or ())
        new_size = max(size - count, real, group.min_size)
        if new_size < size:
            await self._set_size(group.id, new_size)

    async def _terminate(self, group: NodeGroup, provider_id: str) -> None:
        state = next((instance.state for instance in group.instances if instance.provider_id == provider_id), None)
        if state is InstanceState.DELETING:
            return
        try:
            await self._calls(
                "autoscaling",
                "terminate_instance_in_auto_scaling_group",
                InstanceId=instance_id(provider_id),
                ShouldDecrementDesiredCapacity=True,
            )
        except Exception as error:
            if code_of(error) in _GONE and "not found" in str(error).lower():
                return
            problem = f"group {group.id}: {instance_id(provider_id)} was not terminated: {_answer(error)}"
            raise NodeGroupError(problem) from error
        self._terminated.add(provider_id)
        self._remember(group.id, self._size(group) - 1, without=provider_id)

    async def _set_size(self, name: str, size: int) -> None:
        began = self._clock.now()
        try:
            await self._calls(
                "autoscaling",
                "set_desired_capacity",
                AutoScalingGroupName=name,
                DesiredCapacity=size,
                HonorCooldown=False,
            )
        except Exception as error:
            raise NodeGroupError(f"group {name}: its size was not set to {size}: {_answer(error)}") from error
        self._resized[name] = began
        self._remember(name, size)

    def _remember(self, name: str, size: int, without: str = "") -> None:
        """Our own change counts at once, before it is read back."""
        existing = self._groups.get(name)
        if existing is None:
            return
        instances = tuple(
            GroupMember(instance.provider_id, InstanceState.DELETING) if instance.provider_id == without else instance
            for instance in existing.instances
        )
        self._groups[name] = msgspec.structs.replace(existing, target_size=size, instances=instances)
        self._waiting = self._waiting or size > len(instances)

    def _size(self, group: NodeGroup) -> int:
        existing = self._groups.get(group.id)
        return existing.target_size if existing is not None else group.target_size

    async def _read_one(self, name: str) -> Mapping[str, Any]:
        try:
            answer = await self._calls("autoscaling", "describe_auto_scaling_groups", AutoScalingGroupNames=[name])
        except Exception as error:
            raise NodeGroupError(f"group {name}: it was not read: {_answer(error)}") from error
        groups: list[Mapping[str, Any]] = answer.get("AutoScalingGroups") or []
        if not groups:
            raise NodeGroupError(f"group {name}: no Auto Scaling group of that name exists")
        return groups[0]

    def prices(self) -> Mapping[str, float]:
        return _on_demand_prices(self._calls.region)

    def spot_prices(self) -> Mapping[str, float]:
        """Estimates: the program has no right to read the history of spot prices, and needs none."""
        return _spot_prices(self._calls.region)

    async def close(self) -> None:
        self._calls.close()


@cache
def _on_demand_prices(region: str) -> Mapping[str, float]:
    if region not in catalog.regions():
        return {}
    return {name: quote[0] for name in catalog.specs() if (quote := catalog.on_demand(region, name)) is not None}


@cache
def _spot_prices(region: str) -> Mapping[str, float]:
    if region not in catalog.regions():
        return {}
    return {
        name: catalog.spot_estimate(quote, name)[0]
        for name in catalog.specs()
        if (quote := catalog.on_demand(region, name)) is not None
    }


def _answer(error: Exception) -> str:
    """What AWS answered; for a call that is not allowed, the groups for which it is."""
    code = code_of(error)
    hint = f"{NOT_ALLOWED}; " if code == "AccessDenied" else ""
    return f"{hint}{code}: {message_of(error)}"


def instance_id(provider_id: str) -> str:
    return provider_id.rsplit("/", 1)[-1]


def is_placeholder(provider_id: str) -> bool:
    """Whether it stands for an instance that was asked for and has not come."""
    return instance_id(provider_id).startswith(PLACEHOLDER)


def _instance(described: Mapping[str, Any]) -> GroupMember:
    state = InstanceState.RUNNING
    if (
        str(described.get("LifecycleState", "")).startswith("Terminating")
        or described.get("LifecycleState") == "Terminated"
    ):
        state = InstanceState.DELETING
    return GroupMember(f"aws:///{described['AvailabilityZone']}/{described['InstanceId']}", state)


def _running(group: NodeGroup) -> set[str]:
    return {
        instance.provider_id
        for instance in group.instances
        if instance.state is InstanceState.RUNNING and not is_placeholder(instance.provider_id)
    }


def _waits(group: NodeGroup) -> bool:
    return any(
        is_placeholder(instance.provider_id) or instance.state is InstanceState.DELETING for instance in group.instances
    )
