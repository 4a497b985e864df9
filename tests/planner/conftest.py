"""A small shop and short ways to say pods, pools and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.nodes import Taint
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Pool, PoolRequirement, Snapshot
from dovetail.planner.verify import verify

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
ZONES = ("z1", "z2", "z3")


def kind(
    name: str, cpu: float, gib: float, price: float, zones: tuple[str, ...] = ZONES, spot: bool = False, **more: Any
) -> InstanceType:
    offerings = [Offering(zone=zone, capacity_type="on-demand", price=price) for zone in zones]
    if spot:
        offerings += [Offering(zone=zone, capacity_type="spot", price=price * 0.4) for zone in zones]
    capacity = {"cpu": int(cpu * 1000), "memory": int(gib * 2**30), "pods": 50, **more.pop("capacity", {})}
    labels = {
        "kubernetes.io/arch": ("amd64",),
        "kubernetes.io/os": ("linux",),
        "karpenter.k8s.aws/instance-cpu": (str(int(cpu)),),
        **more.pop("labels", {}),
    }
    return InstanceType(
        name=name,
        capacity=capacity,
        overhead={},
        labels=labels,
        offerings=tuple(more.pop("offerings", offerings)),
        **more,
    )


SMALL, MEDIUM, LARGE = kind("small", 2, 8, 0.10), kind("medium", 4, 16, 0.19), kind("large", 16, 64, 0.80)
SHOP = (SMALL, MEDIUM, LARGE)


def pod(name: str, cpu: str = "1", memory: str = "1Gi", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    requests = {"cpu": cpu, "memory": memory, **spec.pop("requests", {})}
    body = {
        "metadata": {
            "name": name,
            "namespace": spec.pop("namespace", "default"),
            "uid": f"uid-{name}",
            "labels": labels or {},
            **spec.pop("metadata", {}),
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": requests}, **spec.pop("container", {})}],
            **spec,
        },
    }
    return msgspec.convert(body, Pod)


def pods(count: int, name: str = "web", **spec: Any) -> tuple[Pod, ...]:
    spec.setdefault("labels", {"app": name})
    return tuple(pod(f"{name}-{index}", **spec) for index in range(count))


def spread(key: str = ZONE, skew: int = 1, app: str = "web", **more: Any) -> dict[str, Any]:
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": skew,
                "topologyKey": key,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
                **more,
            }
        ]
    }


def near(way: str, key: str, app: str = "web", weight: int = 0) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    if weight:
        soft = [{"weight": weight, "podAffinityTerm": term}]
        return {"affinity": {way: {"preferredDuringSchedulingIgnoredDuringExecution": soft}}}
    return {"affinity": {way: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def pool(name: str = "default", types: tuple[InstanceType, ...] = SHOP, **more: Any) -> Pool:
    needs = tuple(PoolRequirement(**each) for each in more.pop("requirements", ()))
    taints = tuple(Taint(**each) for each in more.pop("taints", ()))
    return Pool(name=name, types=types, requirements=needs, taints=taints, **more)


def node(name: str, zone: str = "z1", cpu: str = "4", memory: str = "16Gi", **more: Any) -> NodeState:
    room = resources({"cpu": cpu, "memory": memory, "pods": "50"})
    labels = {ZONE: zone, HOSTNAME: name, "kubernetes.io/arch": "amd64", **more.pop("labels", {})}
    return NodeState(name=name, labels=labels, allocatable=room, capacity=room, **more)


Solve = Callable[..., Plan]


@pytest.fixture
def solve() -> Solve:
    """Plans, by work alone so that a busy node changes nothing, and insists that the verifier agrees."""

    def run(*pending: Pod, pools: tuple[Pool, ...] | None = None, deadline: float | None = None, **more: Any) -> Plan:
        snapshot = Snapshot(pools=(pool(),) if pools is None else pools, pending=pending, **more)
        plan = provision(snapshot, deadline=deadline, optimiser=better_by_work)
        assert [str(each) for each in verify(plan, snapshot)] == []
        assert set(plan.placements) == {each.metadata.key for each in pending}
        return plan

    return run


def zones_of(plan: Plan) -> list[str]:
    """The zone of each placed pod's node, sorted."""
    where = {planned.name: planned.choice.zone for planned in plan.nodes}
    return sorted(where[place.new_node] for place in plan.placements.values() if place.new_node is not None)
