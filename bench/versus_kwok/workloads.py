"""The Deployments and the pool that both sides get."""

from __future__ import annotations

from typing import Any

import msgspec

#: cpu, memory: the mix of the head to head.
MIX = (("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "2Gi"), ("1500m", "6Gi"))
#: Another: odd sizes that divide nothing.
ODD = (("70m", "300Mi"), ("330m", "200Mi"), ("900m", "3100Mi"), ("1700m", "1500Mi"), ("2600m", "11Gi"), ("450m", "5Gi"))


class Work(msgspec.Struct, frozen=True):
    """One Deployment. `apart`: no two on a node; `zones`: levelled over the zones."""

    name: str
    cpu: str
    memory: str
    replicas: int
    apart: bool = False
    zones: bool = False

    def manifest(self) -> dict[str, Any]:
        labels = {"app": self.name}
        container = {
            "name": "app",
            "image": "pause",
            "resources": {"requests": {"cpu": self.cpu, "memory": self.memory}},
        }
        spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        if self.apart:
            term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.zones:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": labels},
                }
            ]
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name},
            "spec": {
                "replicas": self.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }


def mixed(total: int, sizes: tuple[tuple[str, str], ...] = MIX, *, zones: bool = False) -> list[Work]:
    return [
        Work(f"mix{number}", cpu, memory, total // len(sizes), zones=zones)
        for number, (cpu, memory) in enumerate(sizes)
    ]


def spread(total: int) -> list[Work]:
    """Half of them each on a node of its own, half levelled over the zones, in ten Deployments."""
    share = total // 10
    return [Work(f"apart{n}", *MIX[n % 5], share, apart=True, zones=n % 2 == 0) for n in range(5)] + [
        Work(f"zones{n}", *MIX[n % 5], share, zones=True) for n in range(5)
    ]


def plain(total: int) -> list[Work]:
    return [Work("plain", "100m", "128Mi", total)]


def idle(total: int) -> list[Work]:
    """Three on a node of two CPUs."""
    return [Work("idle", "600m", "256Mi", total)]


def pool(*, consolidate_after: str, budget: str, most_cpu: int | None) -> dict[str, Any]:
    requirements: list[dict[str, Any]] = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]
    if most_cpu is not None:
        requirements.append({"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": [str(most_cpu)]})
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                    "expireAfter": "Never",
                    "requirements": requirements,
                }
            },
            "disruption": {
                "consolidateAfter": consolidate_after,
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "budgets": [{"nodes": budget}],
            },
        },
    }


NODE_CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}
