"""Catalogues for planning problems: families, sizes, zones and prices, with what makes shopping hard.

Some offerings are sold out, spot prices differ by zone, some types have reservations with a count, some bring
devices or pod ENIs.
"""

from __future__ import annotations

import random
from typing import Any

Object = dict[str, Any]

ZONES = ("ap-northeast-2a", "ap-northeast-2b", "ap-northeast-2c")
EBS = "ebs.csi.aws.com"
_FAMILIES = {  # family: (memory GiB per vCPU, $ per vCPU, arch)
    "c5": (2, 0.048, "amd64"),
    "m5": (4, 0.059, "amd64"),
    "r5": (8, 0.076, "amd64"),
    "c6i": (2, 0.0481, "amd64"),
    "m6a": (4, 0.0532, "amd64"),
    "m6g": (4, 0.047, "arm64"),
    "r6g": (8, 0.0608, "arm64"),
}
_SIZES = {"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48, "16xlarge": 64}


def catalogue(chance: random.Random, reserved: bool, even: bool) -> list[Object]:
    """Types with offerings; `reserved` adds reservations, `even` lets every zone sell everything at one price."""
    found = [_general(chance, family, size, even) for family in _FAMILIES for size in _SIZES]
    found += [_accelerated(chance, size, count) for size, count in (("xlarge", 1), ("12xlarge", 4))]
    if reserved:
        for number, kind in enumerate(chance.sample(found[:-2], chance.randint(1, 4))):
            zone = chance.choice(ZONES)
            kind["offerings"].append(
                {
                    "zone": zone,
                    "capacityType": "reserved",
                    "available": True,
                    "reservationId": f"cr-{number}",
                    "price": chance.choice((0.0, 0.0001)),
                    "reservationCapacity": chance.randint(1, 4),
                }
            )
    return found


def _general(chance: random.Random, family: str, size: str, even: bool) -> Object:
    ratio, price, arch = _FAMILIES[family]
    vcpus = _SIZES[size]
    labels = {
        "karpenter.k8s.aws/instance-family": [family],
        "karpenter.k8s.aws/instance-category": [family[0]],
        "karpenter.k8s.aws/instance-generation": [family[1]],
        "kubernetes.io/arch": [arch],
    }
    made = _type(chance, f"{family}.{size}", vcpus, vcpus * ratio, labels)
    if vcpus >= 4 and family != "r5":
        made["capacity"]["vpc.amazonaws.com/pod-eni"] = str(min(9 * vcpus // 4, 107))
    made["offerings"] = [
        {
            "zone": zone,
            "capacityType": kind,
            "available": even or chance.random() > 0.05,
            "price": round(price * vcpus * (1 if kind == "on-demand" else chance.uniform(0.25, 0.6)), 5),
        }
        for zone in ZONES
        for kind in ("on-demand", "spot")
    ]
    return made


def _accelerated(chance: random.Random, size: str, count: int) -> Object:
    labels = {
        "karpenter.k8s.aws/instance-family": ["g5"],
        "karpenter.k8s.aws/instance-category": ["g"],
        "karpenter.k8s.aws/instance-generation": ["5"],
        "kubernetes.io/arch": ["amd64"],
    }
    made = _type(chance, f"g5.{size}", 4 * count, 16 * count, labels)
    made["capacity"]["nvidia.com/gpu"] = str(count)
    sold = chance.sample(ZONES, 2)
    made["offerings"] = [
        {"zone": zone, "capacityType": "on-demand", "price": round(1.237 * count, 4), "available": True}
        for zone in sold
    ]
    return made


def _type(chance: random.Random, name: str, vcpus: int, memory: int, labels: Object) -> Object:
    return {
        "name": name,
        "capacity": {
            "cpu": str(vcpus),
            "memory": f"{memory}Gi",
            "pods": str(min(29 * vcpus // 2, 234)),
            "ephemeral-storage": "20Gi",
        },
        "overhead": {"cpu": f"{60 + 5 * vcpus}m", "memory": f"{400 + memory * 75}Mi"},
        "labels": {"kubernetes.io/os": ["linux"], "karpenter.k8s.aws/instance-cpu": [str(vcpus)], **labels},
        "attachLimits": {EBS: chance.choice((26, 26, 10))},
    }
