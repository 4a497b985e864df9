"""Instance types as nodes of an EC2NodeClass show them: labels, capacity for pods, and whether they can be launched."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws import capacity, ec2nodeclass
from dovetail.cloud.aws.ec2nodeclass import family_name
from dovetail.cloud.aws.instance_type_info import InstanceTypeSpec
from dovetail.cloud.aws.placement_groups import Ec2PlacementGroup
from dovetail.model.labels import ARCH, AWS_GROUP, INSTANCE_TYPE, OS, TENANCY, WINDOWS_BUILD

# What an EC2NodeClass makes of instance types: how much of them is left for pods, and which labels they have.


class NodeClassTraits(msgspec.Struct, frozen=True):
    """Instances of a class, whatever their type."""

    family: capacity.AmiFamilyCapacity
    kubelet: capacity.KubeletConfig
    disk: capacity.Disk
    settings: capacity.CapacitySettings

    def capacity(self, spec: InstanceTypeSpec) -> dict[str, int]:
        return capacity.capacity(spec, self.family, self.kubelet, self.disk, self.settings)

    def overhead(self, spec: InstanceTypeSpec) -> dict[str, int]:
        return capacity.overhead(spec, self.family, self.kubelet, self.disk, self.settings)

    def labels(self, spec: InstanceTypeSpec) -> dict[str, tuple[str, ...]]:
        """A type that the images are not made for has no operating system."""
        system = ("windows" if self.family.windows else "linux",) if self.family.runs_on(spec) else ()
        labels_ = labels(spec, system)
        if self.family.windows:
            labels_[WINDOWS_BUILD] = (WINDOWS_BUILDS[self.family.name.removeprefix("Windows")],)
        return labels_


def node_class_traits(node_class_spec: Mapping[str, Any], settings: capacity.CapacitySettings) -> NodeClassTraits:
    """`node_class_spec` is the class's spec, `settings` what holds for all classes."""
    interfaces = node_class_spec.get("networkInterfaces")
    own = [nic for nic in interfaces or () if nic.get("interfaceType") == "efa-only"]
    settings = msgspec.structs.replace(
        settings,
        efa_only_interfaces=sum(nic["networkCardIndex"] == 0 for nic in own),
        efa=None if interfaces is None else len(own),
    )
    return NodeClassTraits(
        ec2nodeclass.family(node_class_spec),
        ec2nodeclass.kubelet(node_class_spec),
        ec2nodeclass.disk(node_class_spec),
        settings,
    )


# Whether an instance type can be launched with all that a node class asks of its instances.
#
# A type that cannot is still a type, with labels and capacity; it is not offered to this class.


def is_compatible(
    spec: InstanceTypeSpec, node_class_spec: Mapping[str, Any], group: Ec2PlacementGroup | None = None
) -> bool:
    """`node_class_spec` is the class's spec, `group` the placement group that its instances stand in."""
    if group is not None and group.strategy not in spec.placement:
        return False
    if family_name(node_class_spec) == "AL2023" and spec.name.startswith("a1."):
        return False  # its first generation of arm64 is too old for the image
    if (node_class_spec.get("cpuOptions") or {}).get(
        "nestedVirtualization"
    ) == "enabled" and not spec.nested_virtualization:
        return False
    if node_class_spec.get("connectionTracking") is not None and spec.hypervisor != "nitro":
        return False
    interfaces = node_class_spec.get("networkInterfaces")
    return interfaces is None or _takes(spec, interfaces)


def _takes(spec: InstanceTypeSpec, interfaces: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the instance has the cards, and on each card the room, for these interfaces."""
    room = spec.card_interfaces or (spec.interfaces,) * spec.cards
    fabric = sum(interface["interfaceType"] == "efa-only" for interface in interfaces)
    return (
        spec.ena
        and fabric <= spec.efa
        and all(
            interface["networkCardIndex"] < len(room) and interface["deviceIndex"] < room[interface["networkCardIndex"]]
            for interface in interfaces
        )
    )


# The labels a node of an EC2 type carries, by Karpenter's names.

_NAME = re.compile(r"^([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
#: EC2's names of architectures, and Kubernetes'.
ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
#: Windows' own number of each release.
WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def labels(spec: InstanceTypeSpec, os: tuple[str, ...] = ("linux",)) -> dict[str, tuple[str, ...]]:
    """Label -> the values it may take. Zone and capacity type belong to offerings, not here."""
    family, _, size = spec.name.partition(".")
    aws: dict[str, str | None] = {
        "instance-family": family,
        "instance-size": size,
        "instance-capability-flex": "true" if "-flex" in family else "false",
        "instance-cpu": str(spec.vcpus),
        "instance-memory": str(spec.memory_mib),
        "instance-cpu-manufacturer": _kebab(spec.cpu_maker) or None,
        "instance-cpu-sustained-clock-speed-mhz": str(round((spec.clock_ghz or 0) * 1000)),
        "instance-ebs-bandwidth": _text(spec.ebs_mbps),
        "instance-network-bandwidth": _text(spec.network_mbps),
        "instance-local-nvme": str(spec.storage_gb) if spec.nvme and spec.storage_gb else None,
        "instance-hypervisor": spec.hypervisor,
        "instance-encryption-in-transit-supported": str(spec.encrypts_in_transit).lower(),
        "nitro-sandbox": str(spec.enclaves).lower(),
    }
    if match := _NAME.match(spec.name):
        aws["instance-category"], aws["instance-generation"] = match.groups()
    aws |= _devices(spec)
    return {
        **{f"{AWS_GROUP}/{key}": (value,) for key, value in aws.items() if value is not None},
        TENANCY: ("default", "dedicated"),
        INSTANCE_TYPE: (spec.name,),
        ARCH: tuple(ARCHES[a] for a in spec.arches),
        OS: os,
    }


def _devices(spec: InstanceTypeSpec) -> dict[str, str | None]:
    devices: dict[str, str | None] = {}
    if len(spec.gpus) == 1:
        gpu = spec.gpus[0]
        devices["instance-gpu-name"] = _kebab(gpu.name)
        devices["instance-gpu-manufacturer"] = _kebab(gpu.maker)
        devices["instance-gpu-count"] = str(gpu.count)
        devices["instance-gpu-memory"] = str(gpu.memory_mib)
    if len(spec.accelerators) == 1 and not spec.neurons:
        device = spec.accelerators[0]
        devices["instance-accelerator-name"] = _kebab(device.name)
        devices["instance-accelerator-manufacturer"] = _kebab(device.maker)
        devices["instance-accelerator-count"] = str(device.count)
    elif spec.neurons:
        devices["instance-accelerator-name"] = _kebab(spec.neurons[0].name)
        devices["instance-accelerator-manufacturer"] = "aws"
        devices["instance-accelerator-count"] = str(spec.neurons[0].count)
    return devices


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
