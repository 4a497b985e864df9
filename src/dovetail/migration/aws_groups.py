"""The node groups of a cluster at AWS: managed node groups, and Auto Scaling groups tagged for the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws import group_tags
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import code_of
from dovetail.cloud.aws.group_templates import launch_template_ref, mixed_policy
from dovetail.cloud.aws.managed_node_groups import described
from dovetail.install.steps import AwsCall
from dovetail.language import message
from dovetail.migration.groups import Group, GroupBusy, Sizes
from dovetail.migration.proposals import image_family
from dovetail.model.labels import ON_DEMAND, SPOT

_GONE = ("ValidationError", "InvalidInstanceID.NotFound")
#: EKS carries out one update of a node group at a time, an Auto Scaling group one scaling activity.
_BUSY = ("ResourceInUseException", "ScalingActivityInProgress")
_METADATA_FIELDS = {
    "HttpEndpoint": "httpEndpoint",
    "HttpProtocolIpv6": "httpProtocolIPv6",
    "HttpPutResponseHopLimit": "httpPutResponseHopLimit",
    "HttpTokens": "httpTokens",
}


class AwsGroups:
    """`GroupCalls` on AWS. What does not change with the size of a group is read once."""

    def __init__(self, calls: Calls, cluster: str) -> None:
        self._calls = calls
        self._cluster = cluster
        self._managed: dict[str, Mapping[str, Any]] | None = None
        self._templates: dict[tuple[str, str], Mapping[str, Any]] = {}

    async def groups(self) -> Sequence[Group]:
        if self._managed is None:
            self._managed = await self._read_managed()
        rows = await self._calls.all("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups")
        tag = f"kubernetes.io/cluster/{self._cluster}"
        mine = [
            row
            for row in rows
            if row["AutoScalingGroupName"] in self._managed or tag in group_tags.tag_map(row.get("Tags") or ())
        ]
        return [await self._group(row) for row in sorted(mine, key=lambda row: str(row["AutoScalingGroupName"]))]

    async def _read_managed(self) -> dict[str, Mapping[str, Any]]:
        """Managed node groups by the name of their Auto Scaling group."""
        by_group: dict[str, Mapping[str, Any]] = {}
        for name in await self._calls.all("eks", "list_nodegroups", "nodegroups", clusterName=self._cluster):
            answer = await self._calls("eks", "describe_nodegroup", clusterName=self._cluster, nodegroupName=str(name))
            nodegroup = answer["nodegroup"]
            for row in (nodegroup.get("resources") or {}).get("autoScalingGroups") or ():
                by_group[row["name"]] = nodegroup
        return by_group

    async def _group(self, row: Mapping[str, Any]) -> Group:
        name = str(row["AutoScalingGroupName"])
        managed = (self._managed or {}).get(name)
        template = await self._template(row)
        tags = group_tags.tag_map(row.get("Tags") or ())
        eks = described(managed) if managed is not None else None
        instances = row.get("Instances") or ()
        living = [item for item in instances if not str(item.get("LifecycleState", "")).startswith("Terminat")]
        leaving = [item for item in instances if item not in living and item.get("LifecycleState") != "Terminated"]
        return Group(
            name=name,
            managed=str(managed["nodegroupName"]) if managed is not None else "",
            sizes=Sizes(int(row["MinSize"]), int(row["MaxSize"]), int(row["DesiredCapacity"])),
            instances=tuple(map(_provider_id, living)),
            leaving=tuple(map(_provider_id, leaving)),
            instance_types=_instance_types(row, managed, template),
            capacity_types=_capacity_types(row, managed),
            zones=tuple(row.get("AvailabilityZones") or ()),
            subnets=tuple(filter(None, str(row.get("VPCZoneIdentifier") or "").split(","))),
            security_groups=_security_groups(template),
            family=image_family(str(managed.get("amiType") or "")) if managed is not None else "",
            labels={**group_tags.labels(tags), **(eks.labels if eks is not None else {})},
            taints=(*group_tags.taints(tags), *(eks.taints if eks is not None else ())),
            node_class_fields=_node_class_fields(template, managed),
            suspended=frozenset(str(process["ProcessName"]) for process in row.get("SuspendedProcesses") or ()),
            notes=_notes(managed, template),
        )

    async def _template(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data of the group's launch template; empty where it has none."""
        policy = mixed_policy(row.get("MixedInstancesPolicy"))
        ref = launch_template_ref(row.get("LaunchTemplate")) or (policy.launch_template if policy else None)
        if ref is None:
            return {}
        key = (ref.id or ref.name, ref.version)
        if key not in self._templates:
            named = {"LaunchTemplateId": ref.id} if ref.id else {"LaunchTemplateName": ref.name}
            answer = await self._calls("ec2", "describe_launch_template_versions", Versions=[ref.version], **named)
            versions = answer.get("LaunchTemplateVersions") or [{}]
            self._templates[key] = versions[0].get("LaunchTemplateData") or {}
        return self._templates[key]

    # Acting

    async def set_sizes(self, group: Group, sizes: Sizes) -> None:
        call = self._set_sizes(group, sizes)
        try:
            await self._calls(call.service, call.operation, **call.arguments)
        except Exception as error:
            if code_of(error) in _BUSY:
                raise GroupBusy(message("group {group} is being updated", group=group.title)) from error
            raise

    def set_sizes_command(self, group: Group, sizes: Sizes) -> str:
        if group.managed:
            text = f"minSize={sizes.least},maxSize={sizes.most},desiredSize={sizes.desired}"
            names = f"--cluster-name {shlex.quote(self._cluster)} --nodegroup-name {shlex.quote(group.managed)}"
            return f"aws eks update-nodegroup-config {names} --scaling-config {text}"
        return self._set_sizes(group, sizes).command

    def _set_sizes(self, group: Group, sizes: Sizes) -> AwsCall:
        if group.managed:
            scaling = {"minSize": sizes.least, "maxSize": sizes.most, "desiredSize": sizes.desired}
            arguments = {"clusterName": self._cluster, "nodegroupName": group.managed, "scalingConfig": scaling}
            return AwsCall("eks", "update_nodegroup_config", arguments)
        return AwsCall(
            "autoscaling",
            "update_auto_scaling_group",
            {
                "AutoScalingGroupName": group.name,
                "MinSize": sizes.least,
                "MaxSize": sizes.most,
                "DesiredCapacity": sizes.desired,
            },
        )

    async def suspend(self, group: Group, processes: Sequence[str]) -> None:
        await self._set_processes("suspend_processes", group, processes)

    async def resume(self, group: Group, processes: Sequence[str]) -> None:
        await self._set_processes("resume_processes", group, processes)

    async def _set_processes(self, operation: str, group: Group, processes: Sequence[str]) -> None:
        try:
            await self._calls(
                "autoscaling", operation, AutoScalingGroupName=group.name, ScalingProcesses=list(processes)
            )
        except Exception as error:
            if code_of(error) in _BUSY or code_of(error) == "ResourceInUse":
                raise GroupBusy(message("group {group} is being updated", group=group.title)) from error
            raise

    def suspend_command(self, group: Group, processes: Sequence[str]) -> str:
        return _processes_command("suspend-processes", group, processes)

    def resume_command(self, group: Group, processes: Sequence[str]) -> str:
        return _processes_command("resume-processes", group, processes)

    async def terminate(self, group: Group, provider_id: str) -> None:
        try:
            await self._calls(
                "autoscaling",
                "terminate_instance_in_auto_scaling_group",
                InstanceId=_instance_id(provider_id),
                ShouldDecrementDesiredCapacity=True,
            )
        except Exception as error:
            if code_of(error) in _GONE and "not found" in str(error).lower():
                return
            raise

    def terminate_command(self, group: Group, provider_id: str) -> str:
        return (
            "aws autoscaling terminate-instance-in-auto-scaling-group "
            f"--instance-id {_instance_id(provider_id)} --should-decrement-desired-capacity"
        )


def _processes_command(command: str, group: Group, processes: Sequence[str]) -> str:
    name = shlex.quote(group.name)
    return f"aws autoscaling {command} --auto-scaling-group-name {name} --scaling-processes {' '.join(processes)}"


def _provider_id(instance: Mapping[str, Any]) -> str:
    return f"aws:///{instance['AvailabilityZone']}/{instance['InstanceId']}"


def _instance_id(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]


def _instance_types(
    row: Mapping[str, Any], managed: Mapping[str, Any] | None, template: Mapping[str, Any]
) -> tuple[str, ...]:
    policy = mixed_policy(row.get("MixedInstancesPolicy"))
    types = list(policy.instance_types) if policy is not None else []
    types += list((managed or {}).get("instanceTypes") or ())
    types += [str(item["InstanceType"]) for item in row.get("Instances") or () if item.get("InstanceType")]
    if not types and template.get("InstanceType"):
        types = [str(template["InstanceType"])]
    return tuple(dict.fromkeys(types))


def _capacity_types(row: Mapping[str, Any], managed: Mapping[str, Any] | None) -> tuple[str, ...]:
    """By the managed node group, or by the shares of the mixed instances policy."""
    if managed is not None and managed.get("capacityType"):
        return (SPOT,) if managed["capacityType"] == "SPOT" else (ON_DEMAND,)
    distribution = (row.get("MixedInstancesPolicy") or {}).get("InstancesDistribution")
    if not distribution:
        return (ON_DEMAND,)
    share = int(distribution.get("OnDemandPercentageAboveBaseCapacity", 100))
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    if share >= 100:
        return (ON_DEMAND,)
    return (SPOT,) if share == 0 and base == 0 else (ON_DEMAND, SPOT)


def _security_groups(template: Mapping[str, Any]) -> tuple[str, ...]:
    interfaces = template.get("NetworkInterfaces") or [{}]
    return tuple(interfaces[0].get("Groups") or template.get("SecurityGroupIds") or ())


def _node_class_fields(template: Mapping[str, Any], managed: Mapping[str, Any] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    devices = [_device(row) for row in template.get("BlockDeviceMappings") or () if row.get("Ebs")]
    if not devices and (managed or {}).get("diskSize"):
        size = int((managed or {})["diskSize"])
        devices = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": f"{size}Gi", "volumeType": "gp3"}}]
    if devices:
        fields["blockDeviceMappings"] = devices
    options = template.get("MetadataOptions") or {}
    metadata = {ours: options[theirs] for theirs, ours in _METADATA_FIELDS.items() if options.get(theirs) is not None}
    if metadata:
        fields["metadataOptions"] = metadata
    return fields


def _device(row: Mapping[str, Any]) -> dict[str, Any]:
    ebs = row["Ebs"]
    shown: dict[str, Any] = {"volumeType": ebs.get("VolumeType") or "gp3"}
    if ebs.get("VolumeSize"):
        shown["volumeSize"] = f"{int(ebs['VolumeSize'])}Gi"
    for theirs, ours in (("Encrypted", "encrypted"), ("Iops", "iops"), ("Throughput", "throughput")):
        if ebs.get(theirs) is not None:
            shown[ours] = ebs[theirs]
    for theirs, ours in (("KmsKeyId", "kmsKeyID"), ("SnapshotId", "snapshotID")):
        if ebs.get(theirs):
            shown[ours] = ebs[theirs]
    return {"deviceName": row.get("DeviceName") or "/dev/xvda", "ebs": shown}


def _notes(managed: Mapping[str, Any] | None, template: Mapping[str, Any]) -> tuple[str, ...]:
    """A self-managed group always has user data: its bootstrap. Of a managed one it is an addition."""
    own_template = managed is not None and (managed.get("launchTemplate") or {}).get("id")
    if not own_template or not template.get("UserData"):
        return ()
    return (message("the user data of the launch template is not taken over; put it into the EC2NodeClass"),)


async def cluster_security_groups(calls: Calls, cluster: str) -> tuple[str, ...]:
    """What EKS gives to nodes of managed node groups without a launch template."""
    network = (await calls("eks", "describe_cluster", name=cluster))["cluster"].get("resourcesVpcConfig") or {}
    own = network.get("clusterSecurityGroupId")
    return (str(own),) if own else tuple(network.get("securityGroupIds") or ())


def with_security_groups(groups: Sequence[Group], names: tuple[str, ...]) -> list[Group]:
    """Groups whose launch template names none have those of the cluster."""
    return [
        group if group.security_groups else msgspec.structs.replace(group, security_groups=names) for group in groups
    ]
