"""Horizontal and Vertical Pod Autoscalers on one workload: whether they work against each other.

An HPA that aims at a percentage of requests and a VPA that changes these requests do: more use raises the requests,
which lowers the percentage, which removes replicas. An HPA with an absolute target (averageValue) does not depend on
requests, and neither does one on another metric. A field of the wrong type, as manifests may have, counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.model.kinds.convert_v1beta1 import member, objects

Json = Mapping[str, Any]
CONTROLLED = frozenset({"cpu", "memory"})
#: Where autoscaling/v1 keeps the metrics that it has no field for.
V1_METRICS = "autoscaling.alpha.kubernetes.io/metrics"


def utilization_resources(hpa: Json) -> frozenset[str]:
    """The resources of which an HPA holds a percentage of requests; without metrics the default is 80 % of cpu."""
    spec, names = member(hpa, "spec"), set[str]()
    for metric in objects(spec.get("metrics")):
        source = member(metric, "resource") or member(metric, "containerResource")
        target = member(source, "target")
        if target.get("averageUtilization") is not None or target.get("type") == "Utilization":
            names.add(str(source.get("name")))
    defaulted = not spec.get("metrics") and V1_METRICS not in member(hpa, "metadata", "annotations")
    if defaulted or spec.get("targetCPUUtilizationPercentage") is not None:
        names.add("cpu")
    return frozenset(names)


def controlled_resources(vpa: Json) -> frozenset[str]:
    """The resources whose requests a VPA changes, in any container; none in mode Off."""
    if member(vpa, "spec", "updatePolicy").get("updateMode") == "Off":
        return frozenset()
    policies = objects(member(vpa, "spec", "resourcePolicy").get("containerPolicies"))
    names: set[str] = set()
    for policy in policies:
        if policy.get("mode") != "Off":
            listed = policy.get("controlledResources")
            names |= set(map(str, listed)) if isinstance(listed, list) else CONTROLLED
    if not any(policy.get("containerName") == "*" for policy in policies):
        names |= CONTROLLED  # containers without a policy
    return frozenset(names)


def workload(obj: Json, field: str) -> tuple[str, str, str]:
    """Kind, name and namespace of what `scaleTargetRef` or `targetRef` names."""
    reference = member(obj, "spec", field)
    namespace = member(obj, "metadata").get("namespace") or "default"
    return str(reference.get("kind")), str(reference.get("name")), str(namespace)


def conflicting_resources(hpa: Json, vpa: Json) -> tuple[str, ...]:
    """The resources by which both act on one workload."""
    if workload(hpa, "scaleTargetRef") != workload(vpa, "targetRef"):
        return ()
    return tuple(sorted(utilization_resources(hpa) & controlled_resources(vpa)))
