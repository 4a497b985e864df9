"""A scale-down as a whole: few evictions, one wave, a fleet about as cheap as a fresh one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.controllers.disruption import removal_sets
from dovetail.controllers.disruption.types import Candidate
from dovetail.controllers.provisioning.runaway import BURST_S, RunawayGuard
from dovetail.kube import resources as kinds
from dovetail.model.meta import ObjectMeta, OwnerReference
from dovetail.model.pods import Container, Pod, PodSpec, ResourceRequirements
from dovetail.planner.cache import PlannerCache
from dovetail.planner.snapshot import NodeState

RunScenario = Callable[..., None]
QUICK = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "100%"}]}


def pod(name: str, cpu: str) -> Pod:
    resources = ResourceRequirements(requests={"cpu": cpu, "memory": "1Mi"})
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name),
        spec=PodSpec(containers=(Container(name="c", resources=resources),)),
    )


def fleet(**sizes: tuple[str, ...]) -> tuple[list[Candidate], dict[str, list[Pod]], list[NodeState]]:
    """Nodes of two CPUs at a dollar each, by name, with the CPUs of their pods."""
    pods = {name: [pod(f"{name}-{n}", cpu) for n, cpu in enumerate(wanted)] for name, wanted in sizes.items()}
    nodes = [
        NodeState(
            name=name, labels={}, allocatable={"cpu": 2000, "memory": 2**30, "pods": 10}, price=1.0, pods=tuple(found)
        )
        for name, found in pods.items()
    ]
    candidates = [
        Candidate(
            node=name,
            claim=name,
            provider_id=name,
            pool="default",
            instance_type="m",
            zone="a",
            capacity_type="on-demand",
            price=1.0,
            cost=1.0 + len(found),
            pods=tuple(each.metadata.key for each in found),
        )
        for name, found in pods.items()
    ]
    return candidates, pods, nodes


def names(found: list[Candidate]) -> list[str]:
    return [each.node for each in found]


def test_nodes_with_the_fewest_pods_are_removed_as_long_as_there_is_capacity() -> None:
    candidates, pods, nodes = fleet(a=("1",), b=("500m", "500m"), c=("1", "500m", "250m"))
    assert names(
        removal_sets.removable(candidates, pods, removal_sets.FreeCapacity(nodes, PlannerCache()), {"default": 9})
    ) == ["a"]


def test_no_more_nodes_are_removable_than_the_budget_allows() -> None:
    candidates, pods, nodes = fleet(a=("100m",), b=("100m",), c=("100m",))
    assert (
        len(removal_sets.removable(candidates, pods, removal_sets.FreeCapacity(nodes, PlannerCache()), {"default": 1}))
        == 1
    )


def test_close_to_a_fresh_fleet_only_expensive_nodes_are_removed() -> None:
    candidates, pods, nodes = fleet(a=("500m", "500m"), b=("500m", "500m"))
    there = removal_sets.FreeCapacity(nodes, PlannerCache())
    assert names(removal_sets.removable(candidates, pods, there, {"default": 9}, fresh=1.0)) == ["a"]
    assert names(removal_sets.removable(candidates, pods, there, {"default": 9}, fresh=2.0)) == []


def test_an_owner_that_was_scaled_down_is_not_taken_for_a_runaway() -> None:
    owner = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="w", uid="w", controller=True)
    pods = [
        Pod(metadata=ObjectMeta(name=f"w{n}", namespace="default", uid=f"w{n}", owner_references=(owner,)))
        for n in range(40)
    ]
    guard = RunawayGuard()
    for n in range(0, 40, 2):
        guard.launched(pods[n : n + 2], BURST_S * n / 40)
    assert guard.exhausted(pods[0], 60.0, lambda uid: 4) == 0
    for n in range(70):
        guard.launched(pods[:1], 60.0 + n)
    assert guard.exhausted(pods[0], 200.0, lambda uid: 4) > 0


def test_pods_of_nodes_that_should_be_removed_first_have_the_lower_deletion_cost(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={**QUICK, "consolidateAfter": "1h"})
        world.start()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w", "controller": True}
        for number, cpu in enumerate(("1700m", "900m", "900m")):
            resources = {"requests": {"cpu": cpu, "memory": "256Mi"}}
            body = {
                "metadata": {"name": f"w{number}", "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "c", "image": "pause", "resources": resources}]},
            }
            await world.kube.create(kinds.PODS, body, "default")
        await world.until(world.all_bound)
        await asyncio.sleep(130)
        pods = await world.list(kinds.PODS)
        found = {
            (
                each["spec"]["nodeName"],
                each["metadata"].get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost"),
            )
            for each in pods
        }
        bound = await world.bound()
        assert found == {(bound["w0"], "-2"), (bound["w1"], "-1")}

    gates = {"PodDeletionCostManagement": True}
    run_scenario(scenario, only=("m.large",), feature_gates=gates)


def test_without_the_gate_no_deletion_costs_are_written(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=QUICK)
        await world.served(2)
        await asyncio.sleep(130)
        pods = await world.list(kinds.PODS)
        assert len(pods) == 2 and not any("annotations" in pod["metadata"] for pod in pods)

    run_scenario(scenario)
