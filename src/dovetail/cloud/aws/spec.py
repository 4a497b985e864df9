"""What EC2 says of an instance type, cut down to what decides labels and capacity.

A `Spec` comes from a live DescribeInstanceTypes answer or from the packaged catalogue; everything
after it is the same code. Two facts no EC2 call tells well: how many branch interfaces a type's trunk
holds, and the baseline network bandwidth. Both come with the package (`Limits`); a type that is not in
its tables is not promised any branch interface.
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


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts no EC2 call tells."""

    branch_interfaces: int = 0
    network_mbps: int | None = None


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


def from_ec2(record: Mapping[str, Any], limits: Limits | None = None) -> Spec:
    """A Spec of one element of DescribeInstanceTypes' answer."""
    name: str = record["InstanceType"]
    processor = record.get("ProcessorInfo", {})
    network = record.get("NetworkInfo", {})
    cards: Sequence[Mapping[str, Any]] = network.get("NetworkCards", ())
    card_index = network.get("DefaultNetworkCardIndex", 0)
    card = next((c for c in cards if c.get("NetworkCardIndex") == card_index), {})
    storage = record.get("InstanceStorageInfo", {})
    ebs = record.get("EbsInfo", {})
    optimized = ebs.get("EbsOptimizedSupport") == "default"
    limits = limits or Limits(network_mbps=_baseline(cards))
    return Spec(
        name=name,
        vcpus=record["VCpuInfo"]["DefaultVCpus"],
        memory_mib=record["MemoryInfo"]["SizeInMiB"],
        arches=tuple(a for a in processor.get("SupportedArchitectures", ()) if a in ("x86_64", "arm64")),
        cpu_maker=processor.get("Manufacturer", ""),
        clock_ghz=processor.get("SustainedClockSpeedInGhz"),
        hypervisor=record.get("Hypervisor", ""),
        bare_metal=record.get("BareMetal", False),
        usage_classes=tuple(record.get("SupportedUsageClasses", ("on-demand",))),
        gpus=tuple(
            Gpu(g.get("Name", ""), g.get("Manufacturer", ""), g.get("Count", 0),
                g.get("MemoryInfo", {}).get("SizeInMiB", 0))
            for g in record.get("GpuInfo", {}).get("Gpus", ())
        ),
        neurons=tuple(
            Neuron(n.get("Name", ""), n.get("Count", 0), n.get("CoreInfo", {}).get("Count", 0))
            for n in record.get("NeuronInfo", {}).get("NeuronDevices", ())
        ),
        accelerators=tuple(
            Accelerator(a.get("Name", ""), a.get("Manufacturer", ""), a.get("Count", 0))
            for a in record.get("InferenceAcceleratorInfo", {}).get("Accelerators", ())
        ),
        storage_gb=storage.get("TotalSizeInGB", 0),
        storage_disks=sum(d.get("Count", 0) for d in storage.get("Disks", ())),
        nvme=storage.get("NvmeSupport") in ("supported", "required"),
        interfaces=card.get("MaximumNetworkInterfaces", network.get("MaximumNetworkInterfaces", 0)),
        cards=max(1, network.get("MaximumNetworkCards", 1)),
        card_interfaces=tuple(
            card.get("MaximumNetworkInterfaces", 0)
            for card in sorted(cards, key=lambda card: card.get("NetworkCardIndex", 0))
        ),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        ena=network.get("EnaSupport") in ("supported", "required"),
        ebs_mbps=ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps") if optimized else None,
        ebs_volumes=ebs.get("MaximumEbsAttachments"),
        ebs_shared=ebs.get("AttachmentLimitType", "shared") == "shared",
        encrypts_in_transit=network.get("EncryptionInTransitSupported", False),
        enclaves=record.get("NitroEnclavesSupport") == "supported",
        nested_virtualization="nested-virtualization" in processor.get("SupportedFeatures", ()),
        placement=tuple(record.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
        branch_interfaces=limits.branch_interfaces,
        network_mbps=limits.network_mbps,
    )


def _baseline(cards: Sequence[Mapping[str, Any]]) -> int | None:
    """Baseline bandwidth by the cards' own figures; None where EC2 states none."""
    figures = [card["BaselineBandwidthInGbps"] for card in cards if "BaselineBandwidthInGbps" in card]
    return math.floor(sum(figures) * 1000 + 1e-6) if figures else None

