"""What EC2 says of an instance type, cut down to what decides labels and capacity.

An `InstanceTypeSpec` comes from a live DescribeInstanceTypes answer or from the packaged catalogue; everything
after it is the same code. Two facts no EC2 call tells well: how many branch interfaces a type's trunk
holds, and the baseline network bandwidth. Both come with the package (`InstanceTypeLimits`); a type that is not in
its tables is not assumed to have any branch interface.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class Gpu(msgspec.Struct, frozen=True):
    name: str
    maker: str
    count: int
    memory_mib: int


class Neuron(msgspec.Struct, frozen=True):
    name: str
    count: int
    cores: int


class Accelerator(msgspec.Struct, frozen=True):
    name: str
    maker: str
    count: int


class InstanceTypeLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts no EC2 call tells."""

    branch_interfaces: int = 0
    network_mbps: int | None = None


class InstanceTypeSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    vcpus: int
    memory_mib: int
    arches: tuple[str, ...] = ("x86_64",)
    cpu_maker: str = ""
    clock_ghz: float | None = None
    hypervisor: str = ""
    bare_metal: bool = False
    usage_classes: tuple[str, ...] = ("on-demand", "spot")
    gpus: tuple[Gpu, ...] = ()
    neurons: tuple[Neuron, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    storage_gb: int = 0
    storage_disks: int = 0
    nvme: bool = False
    interfaces: int = 0  # on the default network card
    cards: int = 1
    card_interfaces: tuple[int, ...] = ()  # on each network card; where not known, as on the default one
    ipv4_per_interface: int = 0
    efa: int = 0
    ena: bool = True
    ebs_mbps: int | None = None
    ebs_volumes: int | None = None
    ebs_shared: bool = True
    encrypts_in_transit: bool = False
    enclaves: bool = False
    nested_virtualization: bool = False
    placement: tuple[str, ...] = ()
    branch_interfaces: int = 0
    network_mbps: int | None = None


def from_ec2(record: Mapping[str, Any], limits: InstanceTypeLimits | None = None) -> InstanceTypeSpec:
    """A Spec of one element of DescribeInstanceTypes' answer."""
    limits = limits or InstanceTypeLimits(network_mbps=_baseline(record.get("NetworkInfo", {}).get("NetworkCards", ())))
    return InstanceTypeSpec(
        name=record["InstanceType"],
        vcpus=record["VCpuInfo"]["DefaultVCpus"],
        memory_mib=record["MemoryInfo"]["SizeInMiB"],
        hypervisor=record.get("Hypervisor", ""),
        bare_metal=record.get("BareMetal", False),
        usage_classes=tuple(record.get("SupportedUsageClasses", ("on-demand",))),
        enclaves=record.get("NitroEnclavesSupport") == "supported",
        placement=tuple(record.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
        branch_interfaces=limits.branch_interfaces,
        network_mbps=limits.network_mbps,
        **_processor(record.get("ProcessorInfo", {})),
        **_devices(record),
        **_disks(record.get("InstanceStorageInfo", {}), record.get("EbsInfo", {})),
        **_network(record.get("NetworkInfo", {})),
    )


def _processor(info: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "arches": tuple(a for a in info.get("SupportedArchitectures", ()) if a in ("x86_64", "arm64")),
        "cpu_maker": info.get("Manufacturer", ""),
        "clock_ghz": info.get("SustainedClockSpeedInGhz"),
        "nested_virtualization": "nested-virtualization" in info.get("SupportedFeatures", ()),
    }


def _devices(record: Mapping[str, Any]) -> dict[str, Any]:
    def named(row: Mapping[str, Any]) -> tuple[str, str]:
        return row.get("Name", ""), row.get("Manufacturer", "")

    gpus = record.get("GpuInfo", {}).get("Gpus", ())
    neurons = record.get("NeuronInfo", {}).get("NeuronDevices", ())
    accelerators = record.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
    return {
        "gpus": tuple(Gpu(*named(g), g.get("Count", 0), g.get("MemoryInfo", {}).get("SizeInMiB", 0)) for g in gpus),
        "neurons": tuple(
            Neuron(n.get("Name", ""), n.get("Count", 0), n.get("CoreInfo", {}).get("Count", 0)) for n in neurons
        ),
        "accelerators": tuple(Accelerator(*named(a), a.get("Count", 0)) for a in accelerators),
    }


def _disks(own: Mapping[str, Any], ebs: Mapping[str, Any]) -> dict[str, Any]:
    optimized = ebs.get("EbsOptimizedSupport") == "default"
    return {
        "storage_gb": own.get("TotalSizeInGB", 0),
        "storage_disks": sum(d.get("Count", 0) for d in own.get("Disks", ())),
        "nvme": own.get("NvmeSupport") in ("supported", "required"),
        "ebs_mbps": ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps") if optimized else None,
        "ebs_volumes": ebs.get("MaximumEbsAttachments"),
        "ebs_shared": ebs.get("AttachmentLimitType", "shared") == "shared",
    }


def _network(info: Mapping[str, Any]) -> dict[str, Any]:
    usual = info.get("DefaultNetworkCardIndex", 0)
    listed: Sequence[Mapping[str, Any]] = info.get("NetworkCards", ())
    cards = sorted(listed, key=lambda card: card.get("NetworkCardIndex", 0))
    card = next((c for c in cards if c.get("NetworkCardIndex") == usual), {})
    return {
        "interfaces": card.get("MaximumNetworkInterfaces", info.get("MaximumNetworkInterfaces", 0)),
        "cards": max(1, info.get("MaximumNetworkCards", 1)),
        "card_interfaces": tuple(c.get("MaximumNetworkInterfaces", 0) for c in cards),
        "ipv4_per_interface": info.get("Ipv4AddressesPerInterface", 0),
        "efa": info.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "ena": info.get("EnaSupport") in ("supported", "required"),
        "encrypts_in_transit": info.get("EncryptionInTransitSupported", False),
    }


def _baseline(cards: Sequence[Mapping[str, Any]]) -> int | None:
    """Baseline bandwidth by the cards' own figures; None where EC2 states none."""
    figures = [card["BaselineBandwidthInGbps"] for card in cards if "BaselineBandwidthInGbps" in card]
    return math.floor(sum(figures) * 1000 + 1e-6) if figures else None
