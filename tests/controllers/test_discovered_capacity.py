"""Nodes with less than predicted, and pods that no node keeps: neither causes launches without end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.controllers.discovered_capacity import DiscoveredCapacity, undeclared_requests
from dovetail.controllers.provisioning.runaway import FREE_LAUNCHES, WINDOW_S, RunawayGuard
from dovetail.kube import resources as kinds
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import DaemonSet

RunScenario = Callable[..., None]
STILL = {"consolidateAfter": "Never"}


def _seen(memory: str, image: str = "ami-1") -> tuple[Node, NodeClaim]:
    node = {
        "metadata": {"name": "n", "labels": {"node.kubernetes.io/instance-type": "m"}},
        "status": {"allocatable": {"cpu": "2", "memory": memory}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    claim = {"status": {"allocatable": {"cpu": "2", "memory": "8Gi"}, "imageID": image}}
    return msgspec.convert(node, Node), msgspec.convert(claim, NodeClaim)


def test_the_largest_shortfall_of_a_type_is_subtracted_from_it() -> None:
    discovered = DiscoveredCapacity()
    discovered.observe(*_seen("8Gi"))
    assert discovered.generation == 0
    discovered.observe(*_seen("7900Mi"))
    discovered.observe(*_seen("8000Mi"))
    assert discovered.shortfall("m") == {"memory": 304 << 20}
    t = InstanceType(name="m", capacity={"memory": 9 << 30}, overhead={"memory": 1 << 30}, labels={}, offerings=())
    (corrected,) = discovered.apply([t])
    assert corrected.allocatable["memory"] == (8 << 30) - (304 << 20)


def test_another_image_starts_anew() -> None:
    discovered = DiscoveredCapacity()
    discovered.observe(*_seen("7900Mi"))
    discovered.observe(*_seen("8160Mi", image="ami-2"))
    assert discovered.shortfall("m") == {"memory": 32 << 20}


def test_an_owner_gets_twice_its_pods_and_a_few_launches_and_then_waits() -> None:
    guard = RunawayGuard()
    owner = {"kind": "ReplicaSet", "uid": "rs", "controller": True}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u", "ownerReferences": [owner]}}, Pod)
    for _ in range(2 * 2 + FREE_LAUNCHES):
        assert not guard.exhausted(pod, 0.0, lambda _: 2)
        guard.launched([pod], 0.0)
    assert guard.exhausted(pod, 1.0, lambda _: 2) == 7
    assert not guard.exhausted(pod, 601.0, lambda _: 2)


def test_owners_with_one_launch_are_forgotten() -> None:
    """Every run of a CronJob is an owner of its own: months of them must not pile up."""
    guard = RunawayGuard()
    for n in range(1000):
        owner = {"kind": "Job", "uid": f"job-{n}", "controller": True}
        pod = msgspec.convert({"metadata": {"name": "p", "uid": f"u{n}", "ownerReferences": [owner]}}, Pod)
        guard.launched([pod], 60.0 * n)
    assert len(guard) <= WINDOW_S / 60


def test_a_fleet_with_less_memory_than_its_types_predict_still_holds_every_pod(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        create = world.kube.create

        async def smaller(resource: Any, body: Any, *rest: Any, **more: Any) -> Any:
            if resource is kinds.NODES:
                less = f"{int(body['status']['allocatable']['memory'].removesuffix('Mi')) - 400}Mi"
                body = {**body, "status": {**body["status"], "allocatable": {**body["status"]["allocatable"]}}}
                body["status"]["allocatable"]["memory"] = less
            return await create(resource, body, *rest, **more)

        world.kube.create = smaller
        await world.pool(disruption=STILL)
        world.start()
        whole = {"requests": {"cpu": "100m", "memory": "7500Mi"}}
        await world.pods(1, containers=[{"name": "c", "image": "pause", "resources": whole}])
        await world.until(world.all_bound, within=300)
        assert world.cloud.sold <= 2

    run_scenario(scenario)


def test_pods_driven_off_every_node_stop_launches(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption=STILL)
        world.start()
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-1", "controller": True}
        for number in range(40):
            resources = {"requests": {"cpu": "500m"}}
            body = {
                "metadata": {"name": f"web-{number}", "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "c", "image": "pause", "resources": resources}]},
            }
            await world.kube.create(kinds.PODS, body, "default")
            await asyncio.sleep(8)
            for node in await world.list(kinds.NODES):
                others = [each for each in node["spec"].get("taints") or [] if each["key"] != "chaos"]
                taints = [*others, {"key": "chaos", "effect": "NoExecute"}]
                await world.kube.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})
            await world.kube.delete(kinds.PODS, f"web-{number}", "default", grace=0)
        assert world.cloud.sold <= 2 + FREE_LAUNCHES
        assert any("RUNAWAY" in event["message"] for event in await world.list(kinds.CORE_EVENTS))

    run_scenario(scenario)


def test_static_pods_and_injected_containers_are_discovered_and_announced_daemons_are_not() -> None:
    def pod(kind: str, uid: str, cpu: str) -> Pod:
        asked = {"requests": {"cpu": cpu}}
        return msgspec.convert(
            {
                "metadata": {"ownerReferences": [{"kind": kind, "uid": uid, "controller": True}]},
                "spec": {"containers": [{"name": "c", "resources": asked}]},
            },
            Pod,
        )

    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}
    daemon = msgspec.convert({"metadata": {"uid": "d"}, "spec": {"template": template}}, DaemonSet)
    there = [pod("Node", "n", "200m"), pod("DaemonSet", "d", "150m"), pod("ReplicaSet", "r", "900m")]
    assert undeclared_requests(there, [daemon]) == {"cpu": 250}
