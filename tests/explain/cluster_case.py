"""A small cluster of several NodePools, a pod that one of them is meant for, and what they are made of."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

ZONE, ARCH, CAPACITY = "topology.kubernetes.io/zone", "kubernetes.io/arch", "karpenter.sh/capacity-type"
TYPE, HOSTNAME = "node.kubernetes.io/instance-type", "kubernetes.io/hostname"
CATEGORY = "karpenter.k8s.aws/instance-category"
ZONES = ("z1", "z2", "z3")
TEAMS = ("payments", "search", "checkout", "orders", "frontend", "billing")
#: name: cpu, GiB, price, category, arch, extended resources
TYPES: dict[str, tuple[int, int, float, str, str, Json]] = {
    "c.large": (2, 4, 0.085, "c", "amd64", {}),
    "c.xlarge": (4, 8, 0.17, "c", "amd64", {}),
    "m.large": (2, 8, 0.10, "m", "amd64", {}),
    "m.xlarge": (4, 16, 0.20, "m", "amd64", {}),
    "m.4xlarge": (16, 64, 0.80, "m", "amd64", {}),
    "r.4xlarge": (16, 128, 1.0, "r", "amd64", {}),
    "t.medium": (2, 4, 0.04, "t", "arm64", {}),
    "g.xlarge": (4, 16, 1.2, "g", "amd64", {"nvidia.com/gpu": "1"}),
}


def catalogue() -> list[Json]:
    """The instance types that all cases share, as a catalogue file has them."""
    return [
        {
            "name": name,
            "capacity": {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "58", "ephemeral-storage": "20Gi", **more},
            "overhead": {"cpu": "100m", "memory": "500Mi"},
            "labels": {ARCH: [arch], "kubernetes.io/os": ["linux"], CATEGORY: [category]},
            "offerings": [
                {"zone": zone, "capacityType": kind, "price": round(price * (0.4 if kind == "spot" else 1.0), 4)}
                for zone in ZONES
                for kind in ("on-demand", "spot")
            ],
        }
        for name, (cpu, gib, price, category, arch, more) in TYPES.items()
    ]


class Case:
    """A cluster, a pod in it, and the one thing that is wrong."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.team, *self.others = chance.sample(TEAMS, 4)
        self.name = f"pool-{self.team}"
        self.pool = nodepool(self.name, labels={"team": self.team})
        self.node_class = nodeclass("main")
        self.pod = pod("app", nodeSelector={"team": self.team})
        self.more: list[Json] = []
        self.unavailable: list[list[str]] = []
        self.meant = True
        """Whether the pool that the pod is meant for is in the cluster."""
        self.decoys = [self._decoy(team, chance.choice(_DECOYS)) for team in self.others[: chance.randint(0, 3)]]

    def _decoy(self, team: str, kind: str) -> Json:
        found = nodepool(f"pool-{team}", labels={"team": team})
        if kind == "tainted":
            found["spec"]["template"]["spec"]["taints"] = [{"key": "team", "value": team, "effect": "NoSchedule"}]
        elif kind == "unready":
            found["status"] = {"conditions": [condition("Ready", "False", "NotReady", f"{team} is not set up")]}
        elif kind == "leaving":
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            found["metadata"]["finalizers"] = ["karpenter.sh/termination"]
        elif kind == "small":
            need(found, TYPE, "In", "c.large")
        return found

    def manifests(self) -> list[Json]:
        pools = [*self.decoys, *([self.pool] if self.meant else [])]
        self.chance.shuffle(pools)
        return [*pools, self.node_class, *self.more, self.pod]

    @property
    def spec(self) -> Json:
        found: Json = self.pool["spec"]["template"]["spec"]
        return found

    @property
    def asked(self) -> Json:
        found: Json = self.pod["spec"]["containers"][0]["resources"]["requests"]
        return found


_DECOYS = ("plain", "tainted", "unready", "leaving", "small")


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def nodepool(name: str, labels: Json | None = None) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "main"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "nodeClassRef": reference,
                    "requirements": [
                        {"key": CAPACITY, "operator": "In", "values": ["on-demand"]},
                        {"key": ARCH, "operator": "In", "values": ["amd64"]},
                        {"key": CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
                    ],
                },
            },
        },
    }


def need(pool: Json, key: str, operator: str, *values: str, **more: Any) -> None:
    """Require something of a pool; what it required of the label before is gone."""
    found = pool["spec"]["template"]["spec"]["requirements"]
    found[:] = [each for each in found if each["key"] != key]
    found.append({"key": key, "operator": operator, "values": list(values), **more})


def nodeclass(name: str) -> Json:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "node",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        },
    }


def pod(name: str, cpu: str = "500m", memory: str = "512Mi", labels: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": labels or {"app": name}},
        "spec": {"containers": [container], **spec},
    }


def node(name: str, pool: str, kind: str = "m.large", zone: str = "z1") -> list[Json]:
    """A node of a pool and its NodeClaim, full with one pod."""
    cpu, gib = TYPES[kind][:2]
    amounts = {"cpu": str(cpu), "memory": f"{gib}Gi", "pods": "58", "ephemeral-storage": "20Gi"}
    labels = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        TYPE: kind,
        ZONE: zone,
        CAPACITY: "on-demand",
        ARCH: "amd64",
        HOSTNAME: name,
    }
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": f"claim-{name}", "labels": labels},
        "spec": {
            "requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "main"},
        },
        "status": {"nodeName": name, "providerID": f"aws:///z/{name}", "capacity": amounts, "allocatable": amounts},
    }
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///z/{name}"},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    full = pod(f"on-{name}", cpu=str(cpu), memory="1Gi", labels={"app": "other"})
    full["spec"]["nodeName"] = name
    full["status"] = {"phase": "Running"}
    return [claim, made, full]


Expected = tuple[str, str, bool]
"""The code, the object to change, and whether a change of one object mends it."""
