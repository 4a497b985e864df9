"""The labels a node of an EC2 type carries, by Karpenter's names."""

from __future__ import annotations

import re

from dovetail.cloud.aws.spec import Spec
from dovetail.model.labels import ARCH, AWS_GROUP, INSTANCE_TYPE, OS, TENANCY

_NAME = re.compile(r"^([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
#: EC2's names of architectures, and Kubernetes'.
ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
#: Windows' own number of each release.
WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def labels(spec: Spec, os: tuple[str, ...] = ("linux",)) -> dict[str, tuple[str, ...]]:
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
    if found := _NAME.match(spec.name):
        aws["instance-category"], aws["instance-generation"] = found.groups()
    aws |= _devices(spec)
    return {
        **{f"{AWS_GROUP}/{key}": (value,) for key, value in aws.items() if value is not None},
        TENANCY: ("default", "dedicated"),
        INSTANCE_TYPE: (spec.name,),
        ARCH: tuple(ARCHES[a] for a in spec.arches),
        OS: os,
    }


def _devices(spec: Spec) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if len(spec.gpus) == 1:
        gpu = spec.gpus[0]
        found["instance-gpu-name"] = _kebab(gpu.name)
        found["instance-gpu-manufacturer"] = _kebab(gpu.maker)
        found["instance-gpu-count"] = str(gpu.count)
        found["instance-gpu-memory"] = str(gpu.memory_mib)
    if len(spec.accelerators) == 1 and not spec.neurons:
        device = spec.accelerators[0]
        found["instance-accelerator-name"] = _kebab(device.name)
        found["instance-accelerator-manufacturer"] = _kebab(device.maker)
        found["instance-accelerator-count"] = str(device.count)
    elif spec.neurons:
        found["instance-accelerator-name"] = _kebab(spec.neurons[0].name)
        found["instance-accelerator-manufacturer"] = "aws"
        found["instance-accelerator-count"] = str(spec.neurons[0].count)
    return found


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
