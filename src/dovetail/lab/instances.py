"""Simulated instances: they boot, join, fall silent and vanish. A cloud launches them; the lab's kubelets run them.

A `SimulatedInstance` is all that a kubelet needs to know to register its Node. `plain_pool` is the smallest cloud:
so many instances of a type, spread over zones, there from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dovetail.language import message
from dovetail.model.instance_type import Resources
from dovetail.model.spelling import nearest

GIB = 1024**3
MIB = 1024**2


class SimulatedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What may become a Node: `boot_seconds` until it joins, `ready_seconds` more until it is Ready."""

    name: str
    provider_id: str
    instance_type: str
    zone: str
    region: str
    ip: str
    capacity: Resources
    allocatable: Resources
    capacity_type: str = "on-demand"
    arch: str = "amd64"
    os: str = "linux"
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Mapping[str, str], ...] = ()
    attach_limit: int = 25
    boot_seconds: float = 0.0
    ready_seconds: float = 0.0
    external_ip: str = ""
    #: Of the image: by default the lab's own release, on Amazon Linux 2023.
    kubelet_version: str = ""
    os_image: str = "Amazon Linux 2023.9.20250929"
    kernel: str = "6.12.46-66.121.amzn2023"


class Size(msgspec.Struct, frozen=True):
    """vCPU, GiB, and the pods its network interfaces have addresses for."""

    cpu: int
    memory: float
    pods: int
    arch: str = "amd64"


#: Sizes at hand without a catalogue.
SIZES: Mapping[str, Size] = {
    "t3.micro": Size(2, 1, 4),
    "t3.small": Size(2, 2, 11),
    "t3.medium": Size(2, 4, 17),
    "t3.large": Size(2, 8, 35),
    "t3.xlarge": Size(4, 16, 58),
    "m5.large": Size(2, 8, 29),
    "m5.xlarge": Size(4, 16, 58),
    "m5.2xlarge": Size(8, 32, 58),
    "m5.4xlarge": Size(16, 64, 234),
    "m5.8xlarge": Size(32, 128, 234),
    "m6i.large": Size(2, 8, 29),
    "m6g.large": Size(2, 8, 29, "arm64"),
    "c5.large": Size(2, 4, 29),
    "c5.xlarge": Size(4, 8, 58),
    "c5.2xlarge": Size(8, 16, 58),
    "c5.4xlarge": Size(16, 32, 234),
    "r5.large": Size(2, 16, 29),
    "r5.xlarge": Size(4, 32, 58),
}


class UnknownType(ValueError):
    """No such instance type here."""


def size_of(instance_type: str) -> Size:
    """The size of a type: one at hand, or any of the catalogue."""
    return SIZES.get(instance_type) or _catalogued(instance_type)


def _catalogued(name: str) -> Size:
    from dovetail.cloud.aws import capacity, catalog

    spec = catalog.specs().get(name)
    if spec is None:
        near = nearest(name, catalog.specs())
        raise UnknownType(
            message(
                "no instance type {name!r}; {hint}",
                name=name,
                hint=message("did you mean {near}?", near=near) if near else message("try m5.large"),
            )
        )
    return Size(spec.vcpus, spec.memory_mib / 1024, capacity.capacity(spec)["pods"], spec.arches[0])


def resources_of(size: Size) -> tuple[Resources, Resources]:
    """(capacity, allocatable) of a node, with what an EKS node keeps for the system."""
    memory = int(size.memory * GIB * 0.925)
    capacity = {
        "cpu": size.cpu * 1000,
        "memory": memory,
        "ephemeral-storage": 20 * GIB,
        "pods": size.pods,
        "hugepages-1Gi": 0,
        "hugepages-2Mi": 0,
    }
    reserved = (255 + 11 * size.pods) * MIB + 100 * MIB
    allocatable = {**capacity, "cpu": size.cpu * 1000 - _reserved_cpu(size.cpu), "memory": memory - reserved}
    allocatable["ephemeral-storage"] = int(20 * GIB * 0.9) - GIB
    return capacity, allocatable


def _reserved_cpu(cores: int) -> int:
    reserved = 60.0
    reserved += 10 if cores >= 2 else 0
    reserved += 5 * max(0, min(cores, 4) - 2)
    reserved += 2.5 * max(0, cores - 4)
    return int(reserved)


def region_of(zone: str) -> str:
    return zone[:-1] if zone and zone[-1].isalpha() else zone


def host_name(ip: str, region: str) -> str:
    dashed = ip.replace(".", "-")
    return f"ip-{dashed}.ec2.internal" if region == "us-east-1" else f"ip-{dashed}.{region}.compute.internal"


def plain_pool(count: int, instance_type: str, zones: Sequence[str], *, first: int = 0) -> list[SimulatedInstance]:
    """`count` instances of one type, dealt over the zones in turn."""
    size = size_of(instance_type)
    capacity, allocatable = resources_of(size)
    instances = []
    for number in range(first, first + count):
        zone = zones[number % len(zones)]
        ip = address(number)
        instances.append(
            SimulatedInstance(
                name=host_name(ip, region_of(zone)),
                provider_id=f"aws:///{zone}/i-{0x0D0E_0000_0000_0000_0 + number:017x}",
                instance_type=instance_type,
                zone=zone,
                region=region_of(zone),
                ip=ip,
                capacity=capacity,
                allocatable=allocatable,
                arch=size.arch,
            )
        )
    return instances


def address(number: int) -> str:
    """The address of the n-th instance, in 10.0.0.0/19, which is no subnet's: launched instances have others."""
    return f"10.0.{number // 200}.{number % 200 + 10}"
