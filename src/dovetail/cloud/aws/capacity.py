"""How much of an instance is left for pods: capacity and overhead of an EC2 instance type.

The formulas are Karpenter's, so that a fleet planned here and a fleet planned there fit the same pods.
`KubeletConfig` and `Disk` carry what an EC2NodeClass says; their defaults are those of AL2023 without
block device mappings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from dovetail.cloud.aws.instance_type_info import InstanceTypeSpec
from dovetail.model.instance_type import Resources

MI = 1 << 20
GI = 1 << 30

#: Share of an instance's memory that the hypervisor and the kernel keep, unless set otherwise.
VM_MEMORY_OVERHEAD = 0.075


class AmiFamilyCapacity(msgspec.Struct, frozen=True):
    """What an AMI family changes about capacity."""

    name: str
    eni_limited_pods: bool = True
    pods_per_core: bool = True
    eni_limited_memory: bool = True
    windows: bool = False
    default_disk: int = 20 * GI

    def runs_on(self, spec: InstanceTypeSpec) -> bool:
        """Windows is not made for arm64."""
        return not self.windows or "x86_64" in spec.arches


FAMILIES: Mapping[str, AmiFamilyCapacity] = {
    family.name: family
    for family in (
        AmiFamilyCapacity("AL2"),
        AmiFamilyCapacity("AL2023"),
        AmiFamilyCapacity("Bottlerocket", pods_per_core=False, eni_limited_memory=False),
        AmiFamilyCapacity("Custom"),
        AmiFamilyCapacity(
            "Windows2019", eni_limited_pods=False, eni_limited_memory=False, windows=True, default_disk=50 * GI
        ),
        AmiFamilyCapacity(
            "Windows2022", eni_limited_pods=False, eni_limited_memory=False, windows=True, default_disk=50 * GI
        ),
        AmiFamilyCapacity(
            "Windows2025", eni_limited_pods=False, eni_limited_memory=False, windows=True, default_disk=50 * GI
        ),
    )
}


class KubeletConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Resources are integers; an eviction threshold is in bytes, or a percentage if it is a float."""

    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_reserved: Resources = {}
    system_reserved: Resources = {}
    eviction_memory: int | float | None = None
    eviction_storage: int | float | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """The volume that holds pods' files: its size, or the instance's own disks striped together."""

    size: int | None = None
    raid0: bool = False


class CapacitySettings(msgspec.Struct, frozen=True, kw_only=True):
    memory_overhead: float = VM_MEMORY_OVERHEAD
    reserved_enis: int = 0
    efa_only_interfaces: int = 0
    efa: int | None = None  # interfaces configured for EFA; None leaves the type's own maximum


def eni_limited_pods(spec: InstanceTypeSpec, reserved: int = 0) -> int:
    """Pods by the addresses the default network card can hold."""
    interfaces = max(spec.interfaces - reserved, 0)
    return interfaces * (spec.ipv4_per_interface - 1) + 2 if interfaces else 0


def memory(spec: InstanceTypeSpec, overhead: float) -> int:
    """Bytes a kubelet would report: less what firmware takes on arm64, less the hypervisor's share."""
    mib = spec.memory_mib - (64 if spec.arches[:1] == ("arm64",) else 0)
    return (mib - math.ceil(mib * overhead)) * MI


def pods(spec: InstanceTypeSpec, family: AmiFamilyCapacity, kubelet: KubeletConfig, settings: CapacitySettings) -> int:
    if kubelet.max_pods is not None:
        count = kubelet.max_pods
    elif family.eni_limited_pods:
        count = eni_limited_pods(spec, settings.reserved_enis + settings.efa_only_interfaces)
    else:
        count = 110
    if kubelet.pods_per_core and family.pods_per_core:
        count = min(kubelet.pods_per_core * spec.vcpus, count)
    return count


def storage(spec: InstanceTypeSpec, family: AmiFamilyCapacity, disk: Disk) -> int:
    if disk.raid0 and spec.storage_gb:
        return spec.storage_gb * 10**9
    return disk.size if disk.size is not None else family.default_disk


def capacity(
    spec: InstanceTypeSpec,
    family: AmiFamilyCapacity = FAMILIES["AL2023"],
    kubelet: KubeletConfig = KubeletConfig(),  # noqa: B008  (frozen)
    disk: Disk = Disk(),  # noqa: B008
    settings: CapacitySettings = CapacitySettings(),  # noqa: B008
) -> dict[str, int]:
    """Everything the node will report. Kinds of which it has none are left out."""
    makers = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu", "Habana": "habana.ai/gaudi"}
    amounts = {
        "cpu": spec.vcpus * 1000,
        "memory": memory(spec, settings.memory_overhead),
        "ephemeral-storage": storage(spec, family, disk),
        "pods": pods(spec, family, kubelet, settings),
    }
    extra = {
        "vpc.amazonaws.com/pod-eni": spec.branch_interfaces,
        "vpc.amazonaws.com/efa": spec.efa if settings.efa is None else settings.efa,
        "aws.amazon.com/neuron": sum(n.count for n in spec.neurons),
        "aws.amazon.com/neuroncore": spec.neurons[0].count * spec.neurons[0].cores if spec.neurons else 0,
    }
    for gpu in spec.gpus:
        if gpu.maker in makers:
            extra[makers[gpu.maker]] = extra.get(makers[gpu.maker], 0) + gpu.count
    if family.runs_on(spec) and family.windows:
        extra["vpc.amazonaws.com/PrivateIPv4Address"] = max(spec.ipv4_per_interface - 1, 0)
    return amounts | {name: count for name, count in extra.items() if count}


#: Shares of successive slices of milli-CPU that the kubelet keeps for itself.
_CPU_SLICES = ((1000, 0.06), (1000, 0.01), (2000, 0.005), (1 << 60, 0.0025))


def kube_reserved_cpu(milli: int) -> int:
    """The kubelet's share of `milli` CPU, each slice cut to a whole number."""
    kept, left = 0, milli
    for width, share in _CPU_SLICES:
        kept += int(min(left, width) * share)
        left -= min(left, width)
    return kept


def overhead(
    spec: InstanceTypeSpec,
    family: AmiFamilyCapacity = FAMILIES["AL2023"],
    kubelet: KubeletConfig = KubeletConfig(),  # noqa: B008
    disk: Disk = Disk(),  # noqa: B008
    settings: CapacitySettings = CapacitySettings(),  # noqa: B008
) -> dict[str, int]:
    """What kubelet, system and eviction thresholds keep from pods."""
    counted = (
        eni_limited_pods(spec, settings.efa_only_interfaces)
        if family.eni_limited_memory
        else pods(spec, family, kubelet, settings)
    )
    kube = {
        "cpu": kube_reserved_cpu(spec.vcpus * 1000),
        "memory": (11 * counted + 255) * MI,
        "ephemeral-storage": GI,
    } | dict(kubelet.kube_reserved)
    room = storage(spec, family, disk)
    eviction = {
        "memory": _threshold(kubelet.eviction_memory, memory(spec, settings.memory_overhead), 100 * MI),
        "ephemeral-storage": _threshold(kubelet.eviction_storage, room, math.ceil(room / 10)),
    }
    names = kube.keys() | kubelet.system_reserved.keys() | eviction.keys()
    return {
        name: kube.get(name, 0) + kubelet.system_reserved.get(name, 0) + eviction.get(name, 0) for name in sorted(names)
    }


def _threshold(setting: int | float | None, total: int, default: int) -> int:
    if setting is None:
        return default
    if isinstance(setting, float):
        return 0 if setting >= 100 else math.ceil(total / 100 * setting)  # 100% turns the threshold off
    return setting
