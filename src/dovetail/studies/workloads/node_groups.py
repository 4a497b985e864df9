"""Node groups for a scenario that names none: what a platform team would make for the same NodePools.

For each NodePool one group in each zone, of one type: the general type of the NodePool that holds the largest pod four
times, or the smallest that holds it at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.lab.scenario.schema import ScenarioError
from dovetail.lab.simulated_groups import GroupSpec
from dovetail.language import message
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import CAPACITY_TYPE, ZONE
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.model.requirements import Requirements

Json = dict[str, Any]

#: How many of the largest pod a node should hold.
PODS_PER_NODE = 4
MAX_GROUP_SIZE = 500
_CATEGORY = "karpenter.k8s.aws/instance-category"


def derived(manifests: Iterable[Json], types: Sequence[InstanceType]) -> tuple[GroupSpec, ...]:
    """The groups, named after their NodePool and zone."""
    items = list(manifests)
    largest = _largest(items)
    group_specs: list[GroupSpec] = []
    for body in items:
        if body.get("kind") == "NodePool":
            group_specs += _groups(msgspec.convert(body, NodePool), largest, types)
    return tuple(group_specs)


def _groups(pool: NodePool, largest: Mapping[str, int], types: Sequence[InstanceType]) -> list[GroupSpec]:
    template = pool.spec.template
    requirements = Requirements.of_entries(template.spec.requirements)
    spot = CAPACITY_TYPE in requirements and _accepts(requirements, CAPACITY_TYPE, "spot")
    capacity_type = "spot" if spot else "on-demand"
    allowed = [kind for kind in types if _allows(requirements, kind, capacity_type)]
    if not allowed:
        raise ScenarioError(message("NodePool {pool}: no type of the region meets its requirements", pool=pool.name))
    chosen = _chosen(allowed, largest, capacity_type)
    zones = sorted(
        offering.zone
        for offering in chosen.offerings
        if offering.capacity_type == capacity_type
        and offering.price is not None
        and _accepts(requirements, ZONE, offering.zone)
    )
    taints = tuple(
        {"key": taint.key, "value": taint.value or "", "effect": taint.effect} for taint in template.spec.taints
    )
    return [
        GroupSpec(
            name=f"{pool.name}-{zone[-1]}",
            instance_type=chosen.name,
            max_size=MAX_GROUP_SIZE,
            zones=(zone,),
            labels=dict(template.metadata.labels),
            taints=taints,
            capacity_type=capacity_type,
        )
        for zone in dict.fromkeys(zones)
    ]


def _allows(requirements: Requirements, kind: InstanceType, capacity_type: str) -> bool:
    offered = any(offering.capacity_type == capacity_type and offering.price is not None for offering in kind.offerings)
    own = {key: values for key, values in kind.labels.items() if key in requirements}
    return offered and all(
        any(_accepts(requirements, key, value) for value in values) for key, values in own.items() if values
    )


def _accepts(requirements: Requirements, key: str, value: str) -> bool:
    requirement = requirements.get(key)
    return requirement is None or requirement.has(value)


def _chosen(types: Sequence[InstanceType], largest: Mapping[str, int], capacity_type: str) -> InstanceType:
    def price(kind: InstanceType) -> float:
        return min(
            offering.price for offering in kind.offerings if offering.capacity_type == capacity_type and offering.price
        )

    def holds(kind: InstanceType, times: int) -> bool:
        return all(kind.allocatable.get(name, 0) >= times * amount for name, amount in largest.items())

    general = [kind for kind in types if "m" in kind.labels.get(_CATEGORY, ())] or list(types)
    for candidates, times in ((general, PODS_PER_NODE), (general, 1), (types, 1)):
        fitting = [kind for kind in candidates if holds(kind, times)]
        if fitting:
            return min(fitting, key=lambda kind: (price(kind), kind.name))
    return min(types, key=lambda kind: (-kind.allocatable.get("cpu", 0), kind.name))


def _largest(items: Iterable[Json]) -> dict[str, int]:
    """The most that any pod of a workload requests, by resource."""
    most: dict[str, int] = {}
    for body in items:
        spec = body.get("spec") or {}
        pod = body if body.get("kind") == "Pod" else spec.get("template") or (spec.get("jobTemplate") or {}).get("spec")
        if body.get("kind") in ("NodePool", "EC2NodeClass") or not isinstance(pod, dict) or "spec" not in pod:
            continue
        for name, amount in requests(msgspec.convert({"spec": pod["spec"]}, Pod)).items():
            if name in ("cpu", "memory"):
                most[name] = max(most.get(name, 0), amount)
    return most
