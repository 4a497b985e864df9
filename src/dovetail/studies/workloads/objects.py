"""Objects that the built-in workloads are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.simulated_groups import GroupSpec

Json = dict[str, Any]

REGION = "ap-northeast-2"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_CLASS = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
_LAB = "lab.dovetail.dev/"


def node_pool(
    name: str = "default",
    *,
    capacity_types: Sequence[str] = ("on-demand",),
    requirements: Sequence[Json] = (),
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    consolidate_after: str = "1m",
    budget: str = "10%",
) -> Json:
    """The NodePool of Karpenter's getting-started guide: current c, m and r types, consolidated after a minute."""
    general = [
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
    ]
    pool_requirements = [
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": list(capacity_types)},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(ZONES)},
        *(requirements or general),
    ]
    spec: Json = {"nodeClassRef": _CLASS, "requirements": pool_requirements, "expireAfter": "720h"}
    if taints:
        spec["taints"] = list(taints)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": dict(labels or {})}, "spec": spec},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": consolidate_after,
                "budgets": [{"nodes": budget}],
            },
        },
    }


def groups(
    instance_type: str,
    name: str = "general",
    *,
    zones: Sequence[str] = ZONES,
    capacity_type: str = "on-demand",
    min_size: int = 0,
    max_size: int = 100,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> tuple[GroupSpec, ...]:
    """One node group in each zone, as Cluster Autoscaler's documentation recommends where pods spread over zones."""
    return tuple(
        GroupSpec(
            name=f"{name}-{zone[-1]}",
            instance_type=instance_type,
            min_size=min_size,
            size=min_size,
            max_size=max_size,
            zones=(zone,),
            labels=dict(labels or {}),
            taints=tuple(taints),
            capacity_type=capacity_type,
        )
        for zone in zones
    )


def deployment(
    name: str,
    replicas: int,
    cpu: str,
    memory: str,
    *,
    model: Mapping[str, str] | None = None,
    spread_zones: bool = False,
    pod: Json | None = None,
    limits: Json | None = None,
    extra_requests: Mapping[str, str] | None = None,
) -> Json:
    """`model` says what a container does in the lab: annotations without their prefix."""
    labels = {"app": name}
    resources: Json = {"requests": {"cpu": cpu, "memory": memory, **(extra_requests or {})}}
    if limits or extra_requests:
        resources["limits"] = {**(limits or {}), **(extra_requests or {})}
    spec: Json = {"containers": [{"name": "main", "image": "nginx", "resources": resources}], **(pod or {})}
    if spread_zones:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": labels},
            }
        ]
    annotations = {_LAB + key: text for key, text in (model or {}).items()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
        },
    }


def job(
    name: str,
    parallelism: int,
    cpu: str,
    memory: str,
    run_seconds: float,
    *,
    pod: Json | None = None,
    extra_requests: Mapping[str, str] | None = None,
) -> Json:
    resources: Json = {"requests": {"cpu": cpu, "memory": memory, **(extra_requests or {})}}
    if extra_requests:
        resources["limits"] = dict(extra_requests)
    container = {"name": "main", "image": "batch", "resources": resources}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {
                "metadata": {"labels": {"job": name}, "annotations": {f"{_LAB}run-seconds": f"{run_seconds:.0f}"}},
                "spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})},
            },
        },
    }


def service(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
    }


def budget(name: str, max_unavailable: str | int = "10%") -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": {"app": name}}},
    }


def horizontal(name: str, least: int, most: int, utilisation: int = 70) -> Json:
    target = {"type": "Utilization", "averageUtilization": utilisation}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def vertical(name: str, least: Mapping[str, str] | None = None, most: Mapping[str, str] | None = None) -> Json:
    policy: Json = {
        "containerName": "*",
        "minAllowed": dict(least or {"cpu": "50m", "memory": "64Mi"}),
        "maxAllowed": dict(most or {"cpu": "4", "memory": "8Gi"}),
    }
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Recreate"},
            "resourcePolicy": {"containerPolicies": [policy]},
        },
    }
