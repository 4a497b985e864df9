"""What is sold: one list of types and prices, written in both sides' formats.

kwok keeps 100m and 10Mi of every node back and knows four labels of its own; our catalogue says the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from bench.versus_kwok import karpenter

OVERHEAD = {"cpu": "100m", "memory": "10Mi"}
ZONE, CAPACITY, TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "node.kubernetes.io/instance-type"


class InstanceTypes(msgspec.Struct, frozen=True):
    """`kwok` is Karpenter's own format; everything else follows from it."""

    kwok: list[dict[str, Any]]

    def price(self, labels: dict[str, str]) -> float:
        """What a node with these labels costs an hour."""
        return self.prices()[labels.get(TYPE, ""), labels.get(ZONE, ""), labels.get(CAPACITY, "")]

    def prices(self) -> dict[tuple[str, str, str], float]:
        return {
            (kind["name"], *_where(offering)): offering["Price"] for kind in self.kwok for offering in kind["offerings"]
        }

    def catalogue(self) -> list[dict[str, Any]]:
        """Ours."""
        return [
            {
                "name": kind["name"],
                "capacity": {"pods": "110", **kind["resources"]},
                "overhead": OVERHEAD,
                "labels": {
                    "kubernetes.io/arch": [kind["architecture"]],
                    "kubernetes.io/os": kind["operatingSystems"],
                    "karpenter.kwok.sh/instance-cpu": [kind["resources"]["cpu"]],
                    "karpenter.kwok.sh/instance-memory": [kind["resources"]["memory"]],
                    "karpenter.kwok.sh/instance-family": [kind["name"].replace(".", "-").split("-")[0]],
                },
                "offerings": [
                    {"zone": zone, "capacityType": capacity, "price": each["Price"], "available": True}
                    for each in kind["offerings"]
                    for zone, capacity in [_where(each)]
                ],
            }
            for kind in self.kwok
        ]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """The files (kwok's, ours)."""
        theirs, ours = folder / "kwok-types.json", folder / "catalogue.json"
        theirs.write_text(json.dumps(self.kwok))
        ours.write_text(json.dumps(self.catalogue()))
        return theirs, ours


def kwok() -> InstanceTypes:
    return InstanceTypes(karpenter.types())


def ec2(region: str = "ap-northeast-2") -> InstanceTypes:
    """The packaged EC2 types with their real memory, pods and prices, c, m and r families."""
    from dovetail.cloud.aws import catalog

    found = []
    for kind in catalog.load(region):
        if kind.labels.get("karpenter.k8s.aws/instance-category", ("",))[0] not in ("c", "m", "r"):
            continue
        resources = {
            "cpu": str(kind.capacity["cpu"] // 1000),
            "memory": str(kind.allocatable["memory"] + (10 << 20)),
            "pods": str(kind.allocatable["pods"]),
            "ephemeral-storage": "20Gi",
        }
        offerings = [
            {"Price": each.price, "Available": True, "Requirements": _needs(each.zone, each.capacity_type)}
            for each in kind.offerings
            if each.price is not None and each.capacity_type == "on-demand"
        ]
        if offerings:
            found.append(
                {
                    "name": kind.name,
                    "offerings": offerings,
                    "resources": resources,
                    "operatingSystems": ["linux"],
                    "architecture": kind.labels.get("kubernetes.io/arch", ("amd64",))[0],
                }
            )
    return InstanceTypes(found)


def _needs(zone: str, capacity: str) -> list[dict[str, Any]]:
    return [{"key": key, "operator": "In", "values": [value]} for key, value in ((CAPACITY, capacity), (ZONE, zone))]


def _where(offering: dict[str, Any]) -> tuple[str, str]:
    said = {each["key"]: each["values"][0] for each in offering["Requirements"]}
    return said[ZONE], said[CAPACITY]
