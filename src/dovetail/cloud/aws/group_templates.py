"""Nodes of groups that have none: built from the group's instance type, its tags, and what EKS says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import catalog, group_tags
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.managed_node_groups import ManagedNodeGroups
from dovetail.cloud.node_groups import NodeGroupError, NodeTemplate
from dovetail.model.labels import ARCH, HOSTNAME, INSTANCE_TYPE, OS, REGION, ZONE
from dovetail.model.meta import Amount, Condition, ObjectMeta
from dovetail.model.nodes import Node, NodeSpec, NodeStatus
from dovetail.model.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements

EBS_ZONE = "topology.ebs.csi.aws.com/zone"
GPU = "nvidia.com/gpu"
DEFAULT_PODS = 110
MIB = 1 << 20
KUBE_PROXY_CPU = "100m"
DEFAULT_VERSION = "$Default"
LAUNCH_CACHE_S = 1200.0
#: As nodes of similar groups may differ.
MEMORY_TOLERANCE = 0.015
_LAUNCH_FIELDS = ("LaunchConfigurationName", "LaunchTemplate", "MixedInstancesPolicy")
_ARCHES = {"x86_64": "amd64", "i386": "amd64", "arm64": "arm64", "x86_64_mac": "amd64", "arm64_mac": "arm64"}


class TypeInfo(msgspec.Struct, frozen=True):
    """What a template needs to know of an instance type."""

    name: str
    vcpu: int
    memory_mib: int
    gpus: int = 0
    arch: str = "amd64"


class LaunchTemplateRef(msgspec.Struct, frozen=True):
    """A launch template by id or name; no version means its default one."""

    id: str = ""
    name: str = ""
    version: str = DEFAULT_VERSION


class MixedPolicy(msgspec.Struct, frozen=True):
    """A mixed instances policy: types in order, or requirements that select them."""

    launch_template: LaunchTemplateRef | None = None
    instance_types: tuple[str, ...] = ()
    requirements: Mapping[str, Any] | None = None


def launch_template_ref(reference: Mapping[str, Any] | None) -> LaunchTemplateRef | None:
    if not reference:
        return None
    return LaunchTemplateRef(
        reference.get("LaunchTemplateId") or "",
        reference.get("LaunchTemplateName") or "",
        reference.get("Version") or DEFAULT_VERSION,
    )


def mixed_policy(policy: Mapping[str, Any] | None) -> MixedPolicy | None:
    """The policy of an answer of DescribeAutoScalingGroups."""
    if not policy or not policy.get("LaunchTemplate"):
        return None
    template = policy["LaunchTemplate"]
    overrides = template.get("Overrides") or ()
    types = tuple(override["InstanceType"] for override in overrides if override.get("InstanceType"))
    requirements = next(
        (override["InstanceRequirements"] for override in overrides if override.get("InstanceRequirements")), None
    )
    return MixedPolicy(launch_template_ref(template.get("LaunchTemplateSpecification")), types, requirements)


def mixed_sizes(policy: MixedPolicy | None) -> str:
    """How far the sizes of a policy's types lie apart, if by more than the similarity of nodes allows.

    The smallest and the largest type, or the range of requirements that select the types.
    """
    if policy is not None and not policy.instance_types and policy.requirements is not None:
        return _required_sizes(policy.requirements)
    specs = catalog.specs()
    types = [specs[name] for name in (policy.instance_types if policy is not None else ()) if name in specs]
    if not types:
        return ""
    ordered = sorted(types, key=lambda spec: (spec.vcpus, spec.memory_mib))
    least, most = ordered[0], ordered[-1]
    memory = [spec.memory_mib for spec in types]
    if least.vcpus == most.vcpus and max(memory) - min(memory) <= MEMORY_TOLERANCE * max(memory):
        return ""
    return " and ".join(f"{spec.name} ({spec.vcpus} vCPU, {spec.memory_mib / 1024:g} GiB)" for spec in (least, most))


def _required_sizes(requirements: Mapping[str, Any]) -> str:
    cores, memory = (requirements.get(field) or {} for field in ("VCpuCount", "MemoryMiB"))
    least_cores, most_cores = cores.get("Min") or 0, cores.get("Max")
    least_memory, most_memory = memory.get("Min") or 0, memory.get("Max")
    alike = most_memory is not None and most_memory - least_memory <= MEMORY_TOLERANCE * most_memory
    if least_cores == most_cores and alike:
        return ""
    memory_gib = _range(least_memory / 1024, None if most_memory is None else most_memory / 1024)
    return f"InstanceRequirements with {_range(least_cores, most_cores)} vCPU and {memory_gib} GiB"


def _range(least: float, most: float | None) -> str:
    if most is None:
        return f"{least:g} or more"
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


class GroupLaunch(msgspec.Struct, frozen=True):
    """What a group launches: the type of its next instance, and its mixed instances policy if it has one."""

    instance_type: str
    policy: MixedPolicy | None = None


class GroupTemplates:
    """Finds the instance type of a group and builds its node. Types are asked of EC2 once."""

    def __init__(self, calls: Calls, clock: Clock, managed: ManagedNodeGroups, *, static_types: bool = False) -> None:
        self._calls = calls
        self._clock = clock
        self._managed = managed
        self._static = static_types
        self._types: dict[str, TypeInfo] = {}
        #: By group: when it was looked up, what the group said then, and what it launches.
        self._launches: dict[str, tuple[float, tuple[Any, ...], GroupLaunch]] = {}

    async def launch(self, group: Mapping[str, Any]) -> GroupLaunch:
        """What the group launches. `$Latest` may change behind the same name, so it is looked up again in time."""
        name = group["AutoScalingGroupName"]
        source = tuple(group.get(field) for field in _LAUNCH_FIELDS)
        now = self._clock.monotonic()
        cached = self._launches.get(name)
        if cached is not None and cached[1] == source and now - cached[0] < LAUNCH_CACHE_S:
            return cached[2]
        launch = await self._look_up_launch(group)
        self._launches[name] = now, source, launch
        return launch

    async def _look_up_launch(self, group: Mapping[str, Any]) -> GroupLaunch:
        """Configuration, template, policy: AWS's order of precedence."""
        name = group["AutoScalingGroupName"]
        if group.get("LaunchConfigurationName"):
            return GroupLaunch(await self._of_configuration(group["LaunchConfigurationName"]))
        plain = launch_template_ref(group.get("LaunchTemplate"))
        if plain is not None:
            return GroupLaunch((await self._of_template(plain, name))[0])
        policy = mixed_policy(group.get("MixedInstancesPolicy"))
        if policy is None:
            raise NodeGroupError(f"group {name}: it has neither a launch template nor a launch configuration")
        if policy.instance_types:
            return GroupLaunch(policy.instance_types[0], policy)
        if policy.requirements is not None:
            return GroupLaunch(await self._of_requirements(policy.requirements, policy.launch_template, name), policy)
        if policy.launch_template is None:
            raise NodeGroupError(f"group {name}: its mixed instances policy names no launch template")
        instance_type, data = await self._of_template(policy.launch_template, name)
        requirements = data.get("InstanceRequirements")
        return GroupLaunch(instance_type, msgspec.structs.replace(policy, requirements=requirements))

    async def _of_configuration(self, name: str) -> str:
        answer = await self._calls("autoscaling", "describe_launch_configurations", LaunchConfigurationNames=[name])
        configurations = answer.get("LaunchConfigurations") or []
        if not configurations:
            raise NodeGroupError(f"launch configuration {name} does not exist; give the group another one")
        return str(configurations[0]["InstanceType"])

    async def _of_template(self, ref: LaunchTemplateRef, group: str) -> tuple[str, Mapping[str, Any]]:
        named = {"LaunchTemplateId": ref.id} if ref.id else {"LaunchTemplateName": ref.name}
        answer = await self._calls("ec2", "describe_launch_template_versions", Versions=[ref.version], **named)
        versions = answer.get("LaunchTemplateVersions") or []
        if not versions:
            raise NodeGroupError(f"group {group}: launch template {ref.id or ref.name} has no version {ref.version}")
        data: Mapping[str, Any] = versions[0].get("LaunchTemplateData") or {}
        if data.get("InstanceType"):
            return str(data["InstanceType"]), data
        if data.get("InstanceRequirements"):
            return await self._of_requirements(data["InstanceRequirements"], ref, group), data
        raise NodeGroupError(f"group {group}: launch template {ref.id or ref.name} names no instance type")

    async def _of_requirements(self, requirements: Mapping[str, Any], ref: LaunchTemplateRef | None, group: str) -> str:
        arches, virtualizations = ["x86_64"], ["hvm"]
        if ref is not None:
            named = {"LaunchTemplateId": ref.id} if ref.id else {"LaunchTemplateName": ref.name}
            answer = await self._calls("ec2", "describe_launch_template_versions", Versions=[ref.version], **named)
            image = ((answer.get("LaunchTemplateVersions") or [{}])[0].get("LaunchTemplateData") or {}).get("ImageId")
            if image:
                images = (await self._calls("ec2", "describe_images", ImageIds=[image])).get("Images") or []
                arches = [str(described["Architecture"]) for described in images] or arches
                virtualizations = [
                    str(described["VirtualizationType"]) for described in images if described.get("VirtualizationType")
                ] or virtualizations
        answer = await self._calls(
            "ec2",
            "get_instance_types_from_instance_requirements",
            ArchitectureTypes=arches,
            VirtualizationTypes=virtualizations,
            InstanceRequirements=dict(requirements),
        )
        instance_types = answer.get("InstanceTypes") or []
        if not instance_types:
            raise NodeGroupError(f"group {group}: no instance type meets its InstanceRequirements; widen them")
        return str(instance_types[0]["InstanceType"])

    async def type_info(self, name: str) -> TypeInfo:
        """What EC2, or the packaged catalogue, says of a type."""
        cached = self._types.get(name)
        if cached is None:
            cached = self._types[name] = await self._look_up(name)
        return cached

    async def _look_up(self, name: str) -> TypeInfo:
        if not self._static:
            answer = await self._calls("ec2", "describe_instance_types", InstanceTypes=[name])
            instance_types = answer.get("InstanceTypes") or []
            if instance_types:
                return _from_ec2(instance_types[0])
        spec = catalog.specs().get(name)
        if spec is None:
            raise NodeGroupError(f"instance type {name} is not known; check the group's launch template")
        arch = "arm64" if spec.arches[:1] == ("arm64",) else "amd64"
        return TypeInfo(name, spec.vcpus, spec.memory_mib, sum(gpu.count for gpu in spec.gpus), arch)

    async def template(self, group: Mapping[str, Any]) -> NodeTemplate:
        """The node that the group would add."""
        zones: Sequence[str] = group.get("AvailabilityZones") or ()
        name = group["AutoScalingGroupName"]
        if not zones:
            raise NodeGroupError(f"group {name}: it has no availability zone; give it subnets")
        launch = await self.launch(group)
        info = await self.type_info(launch.instance_type)
        tags = group_tags.tag_map(group.get("Tags") or ())
        capacity = capacity_of(info, launch.policy)
        capacity.update(group_tags.resources(tags))
        labels = {**generic_labels(info, zones[0], f"{name}-asg-template"), **group_tags.labels(tags)}
        taints = group_tags.taints(tags)
        cluster, nodegroup = labels.get(group_tags.CLUSTER_NAME), labels.get(group_tags.NODEGROUP_NAME)
        if cluster and nodegroup:
            managed = await self._managed.get(cluster, nodegroup)
            labels.update(managed.labels)
            taints = (*taints, *managed.taints)
            capacity.update(group_tags.resources(managed.tags))
        node = Node(
            metadata=ObjectMeta(name=f"{name}-asg-template", labels=labels),
            spec=NodeSpec(taints=taints),
            status=NodeStatus(
                capacity=capacity,
                allocatable=capacity,
                conditions=(Condition(type="Ready", status="True"),),
            ),
        )
        return NodeTemplate(node, (kube_proxy(node.metadata.name),))


def capacity_of(info: TypeInfo, policy: MixedPolicy | None = None) -> dict[str, Amount]:
    """What a node of the type has; requirements without a list of types guarantee only their minima."""
    capacity: dict[str, Amount] = {
        "pods": str(DEFAULT_PODS),
        "cpu": str(info.vcpu),
        "memory": str(info.memory_mib * MIB),
        GPU: str(info.gpus),
    }
    if policy is None or policy.instance_types or policy.requirements is None:
        return capacity
    requirements = policy.requirements
    cores = (requirements.get("VCpuCount") or {}).get("Min")
    memory = (requirements.get("MemoryMiB") or {}).get("Min")
    if cores is not None:
        capacity["cpu"] = str(cores)
    if memory is not None:
        capacity["memory"] = str(memory * MIB)
    nvidia = "nvidia" in (requirements.get("AcceleratorManufacturers") or ())
    accelerators = (requirements.get("AcceleratorCount") or {}).get("Min")
    if nvidia and "gpu" in (requirements.get("AcceleratorTypes") or ()) and accelerators is not None:
        capacity[GPU] = str(accelerators)
    return capacity


def generic_labels(info: TypeInfo, zone: str, name: str) -> dict[str, str]:
    """Labels that every node has."""
    return {
        ARCH: info.arch,
        OS: "linux",
        INSTANCE_TYPE: info.name,
        REGION: zone[:-1],
        ZONE: zone,
        EBS_ZONE: zone,
        HOSTNAME: name,
    }


def kube_proxy(node: str) -> Pod:
    """The pod that comes with every node."""
    requests = ResourceRequirements(requests={"cpu": KUBE_PROXY_CPU})
    return Pod(
        metadata=ObjectMeta(
            name=f"kube-proxy-{node}",
            namespace="kube-system",
            uid=f"kube-proxy-{node}",
            annotations={"kubernetes.io/config.mirror": "template"},
        ),
        spec=PodSpec(containers=(Container(name="kube-proxy", resources=requests),)),
        status=PodStatus(phase="Running"),
    )


def _from_ec2(described: Mapping[str, Any]) -> TypeInfo:
    gpus = sum(int(gpu.get("Count", 0)) for gpu in (described.get("GpuInfo") or {}).get("Gpus", ()))
    arches = (described.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ["x86_64"]
    arch = next((_ARCHES[name] for name in arches if name in _ARCHES), "amd64")
    return TypeInfo(
        described["InstanceType"],
        int(described["VCpuInfo"]["DefaultVCpus"]),
        int(described["MemoryInfo"]["SizeInMiB"]),
        gpus,
        arch,
    )
