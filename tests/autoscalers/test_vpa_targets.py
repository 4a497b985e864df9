"""Targets that are no workload of Kubernetes' own: what they select, and who owns whom."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dovetail.autoscalers.vpa.api import VPAS
from dovetail.autoscalers.vpa.targets import ControllerRef, TargetError, Workloads
from dovetail.kube.resources import CORE_EVENTS, CRDS, DEPLOYMENTS, PODS, Resource
from tests.autoscalers.test_vpa_lab import World, autoscaler, hamster, play

Json = dict[str, Any]
ROLLOUTS = Resource("example.com", "v1", "rollouts", "Rollout")
TARGET = {"apiVersion": "example.com/v1", "kind": "Rollout", "name": "canary"}


async def define_rollouts(world: World) -> None:
    """A custom resource with a scale subresource."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": "rollouts", "singular": "rollout", "kind": "Rollout", "listKind": "RolloutList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await world.kube.create(CRDS, {"metadata": {"name": "rollouts.example.com"}, "spec": spec})
    await asyncio.sleep(1)


async def roll_out(world: World) -> None:
    """A Rollout that selects the hamster's pods."""
    metadata = {"name": "canary", "namespace": "default"}
    await world.kube.create(ROLLOUTS, {"metadata": metadata, "spec": {"replicas": 2}})
    status = {"status": {"replicas": 2, "selector": "app=hamster"}}
    await world.kube.patch(ROLLOUTS, "canary", status, "default", kind="merge", subresource="status")


def test_a_custom_target_that_comes_later_is_served_in_the_next_loop() -> None:
    async def body(world: World) -> None:
        await define_rollouts(world)
        world.start_recommender()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(targetRef=TARGET))
        await asyncio.sleep(60)
        conditions = {item["type"]: item for item in (await world.vpa())["status"]["conditions"]}
        assert conditions["ConfigUnsupported"]["message"].startswith("Cannot read targetRef. Reason: unhandled")
        assert conditions["NoPodsMatched"]["status"] == "True"
        await roll_out(world)
        await asyncio.sleep(60)
        conditions = {item["type"]: item for item in (await world.vpa())["status"]["conditions"]}
        assert conditions.keys() == {"RecommendationProvided"}
        assert await world.target()

    play(body)


def test_a_custom_target_whose_selector_changes_has_the_pods_of_the_new_one() -> None:
    async def body(world: World) -> None:
        await define_rollouts(world)
        await roll_out(world)
        world.start_recommender()
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(targetRef=TARGET))
        await asyncio.sleep(60)
        assert await world.target()
        other = {"status": {"selector": "app=none"}}
        await world.kube.patch(ROLLOUTS, "canary", other, "default", kind="merge", subresource="status")
        await asyncio.sleep(60)
        conditions = {item["type"]: item["status"] for item in (await world.vpa())["status"]["conditions"]}
        assert conditions == {"NoPodsMatched": "True", "RecommendationProvided": "False"}

    play(body)


def test_owners_above_a_node_or_of_an_unknown_kind_are_no_controllers() -> None:
    async def body(world: World) -> None:
        await define_rollouts(world)
        workloads = Workloads(world.kube)
        running = asyncio.ensure_future(workloads.run())
        try:
            await workloads.synced()
            assert await workloads.topmost(ControllerRef("default", "Node", "n1", "v1")) is None
            absent = ControllerRef("default", "Rollout", "absent", "example.com/v1")
            assert await workloads.topmost(absent) is None  # it has no scale that could be read
            with pytest.raises(TargetError, match=r'unhandled targetRef .* no matches for kind "Ghost"'):
                await workloads.topmost(ControllerRef("default", "Ghost", "g", "example.com/v1"))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    play(body)


def test_evictions_of_the_last_hour_count_for_a_recommender_that_starts() -> None:
    """The peak of the present interval is in no checkpoint: only the event still has it."""

    async def body(world: World) -> None:
        await world.kube.create(DEPLOYMENTS, hamster())
        await world.kube.create(VPAS, autoscaler(resourcePolicy=None))
        await asyncio.sleep(30)
        name = (await world.kube.list(PODS, "default")).items[0]["metadata"]["name"]
        notes = {
            "offending_containers": "hamster",
            "offending_containers_usage": "2Gi",
            "starved_resource": "memory",
        }
        event = {
            "metadata": {"name": f"{name}.1", "namespace": "default", "annotations": notes},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": name},
            "reason": "Evicted",
            "message": "The node was low on resource: memory.",
            "type": "Warning",
        }
        await world.kube.create(CORE_EVENTS, event)
        await asyncio.sleep(10)
        world.start_recommender()
        await asyncio.sleep(60)
        target = await world.target()
        assert int(target["memory"]) > 2.4 * 2**30  # 2Gi and a fifth, and the margin

    play(body)
