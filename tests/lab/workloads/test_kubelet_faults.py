"""What keeps containers from running on a node that works: missing configuration, too little memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.kube.resources import CONFIGMAPS, NODES, PODS
from dovetail.lab.kubelet.pod_worker import accept
from dovetail.lab.kubelet.views import KubeletPod
from tests.lab.workloads.manifests import pod

Run = Callable[..., None]


async def container(workload_lab: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await workload_lab.kube.get(PODS, name, "default"))["status"]["containerStatuses"][0]
    return found


def test_a_container_waits_for_its_configmap_and_starts_when_it_is_there(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        named = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]}
        await workload_lab.kube.create(PODS, pod("web", container=named))
        await asyncio.sleep(10)
        waiting = (await container(workload_lab, "web"))["state"]["waiting"]
        assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "settings" not found'}
        assert 'Error: configmap "settings" not found' in await workload_lab.events("Failed")
        await workload_lab.kube.create(CONFIGMAPS, {"metadata": {"name": "settings"}, "data": {"b": "c"}}, "default")
        await asyncio.sleep(15)
        waiting = (await container(workload_lab, "web"))["state"]["waiting"]
        assert waiting["message"] == "couldn't find key a in ConfigMap default/settings"
        await workload_lab.kube.patch(CONFIGMAPS, "settings", {"data": {"a": "d"}}, "default")
        await asyncio.sleep(20)
        assert "running" in (await container(workload_lab, "web"))["state"]

    lab_run(body, nodes=1)


def test_what_is_optional_is_not_waited_for(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        named = {"envFrom": [{"secretRef": {"name": "absent", "optional": True}}]}
        await workload_lab.kube.create(PODS, pod("web", container=named))
        await asyncio.sleep(10)
        assert "running" in (await container(workload_lab, "web"))["state"]

    lab_run(body, nodes=1)


def test_a_volume_of_a_missing_secret_is_tried_again_and_again(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        volumes = [{"name": "v", "secret": {"secretName": "absent"}}]
        mount = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        await workload_lab.kube.create(PODS, pod("web", container=mount, volumes=volumes))
        await asyncio.sleep(20)
        assert (await container(workload_lab, "web"))["state"] == {"waiting": {"reason": "ContainerCreating"}}
        text = 'MountVolume.SetUp failed for volume "v" : secret "absent" not found'
        assert await workload_lab.events("FailedMount") == [text]

    lab_run(body, nodes=1)


def test_a_container_over_its_memory_limit_is_killed_and_started_again(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        growing = {"lab.dovetail.dev/memory": "10Mi+10Mi/s"}
        limited = {"resources": {"limits": {"memory": "110Mi"}}}
        await workload_lab.kube.create(PODS, pod("leak", annotations=growing, container=limited))
        await asyncio.sleep(20)
        found = await container(workload_lab, "leak")
        assert found["restartCount"] == 1
        ended = found["lastState"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")

    lab_run(body, nodes=1)


def test_a_node_short_of_memory_evicts_who_is_furthest_above_its_request(lab_run: Run) -> None:
    async def pressed(workload_lab: Any) -> str:
        node = (await workload_lab.kube.list(NODES)).items[0]
        return next(each["status"] for each in node["status"]["conditions"] if each["type"] == "MemoryPressure")

    async def body(workload_lab: Any) -> None:
        modest = {"resources": {"requests": {"memory": "3Gi"}}}
        await workload_lab.kube.create(
            PODS, pod("modest", annotations={"lab.dovetail.dev/memory": "3Gi"}, container=modest)
        )
        await workload_lab.kube.create(PODS, pod("greedy", annotations={"lab.dovetail.dev/memory": "1Gi+1Gi/m"}))
        await asyncio.sleep(120)
        assert await pressed(workload_lab) == "False"
        await asyncio.sleep(180)
        greedy = (await workload_lab.kube.get(PODS, "greedy", "default"))["status"]
        assert (greedy["phase"], greedy["reason"]) == ("Failed", "Evicted")
        assert greedy["message"].startswith(
            "The node was low on resource: memory. Threshold quantity: 100Mi, available:"
        )
        assert greedy["message"].endswith("request is 0, has larger consumption of memory. ")
        assert (await workload_lab.kube.get(PODS, "modest", "default"))["status"]["phase"] == "Running"
        assert await workload_lab.events("EvictionThresholdMet") == ["Attempting to reclaim memory"]
        assert await pressed(workload_lab) == "True"
        await asyncio.sleep(330)
        assert await pressed(workload_lab) == "False"

    lab_run(body, nodes=1)


def test_a_pod_deleted_at_once_has_its_sandbox_made_first() -> None:
    """Otherwise a creating and a deleting controller could race for ever at one moment of virtual time."""
    started = msgspec.json.decode(msgspec.json.encode(pod("web")), type=KubeletPod)
    for stop_at, gone in ((5.0, 5.3), (5.2, 5.3), (60.0, 60.0)):
        run = accept(started, "10.64.0.2", 5.0, lambda pod, container: None)
        run.stop(stop_at, 30.0, [])
        assert run.stopping == gone
