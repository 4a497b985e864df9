"""Resizing in place: the status follows within seconds, and says why a resize waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden
from dovetail.kube.resources import CORE_EVENTS, PODS
from tests.lab.workloads.manifests import pod

Run = Callable[..., None]


def sized(name: str, cpu: str, **container: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    return pod(name, "nginx", container={"resources": resources, **container})


async def resize(kube: Kube, name: str, cpu: str) -> dict[str, Any]:
    body = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
    return await kube.patch(PODS, name, body, "default", kind="strategic", subresource="resize")


async def seen(kube: Kube, name: str) -> tuple[str, str, int, list[tuple[str, str]]]:
    """What the container has, what it was allocated, its restarts, and conditions of a resize."""
    held = await kube.get(PODS, name, "default")
    status = held["status"]["containerStatuses"][0]
    conditions = [
        (item["type"], item.get("reason") or "") for item in held["status"]["conditions"] if "Resize" in item["type"]
    ]
    allocated = status["allocatedResources"]["cpu"]
    return status["resources"]["requests"]["cpu"], allocated, status["restartCount"], conditions


def test_a_resize_is_carried_out_within_seconds(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, sized("a", "100m"))
        await asyncio.sleep(10)
        await resize(workload_lab.kube, "a", "300m")
        await asyncio.sleep(0.5)
        assert await seen(workload_lab.kube, "a") == ("100m", "300m", 0, [("PodResizeInProgress", "")])
        await asyncio.sleep(2)
        assert await seen(workload_lab.kube, "a") == ("300m", "300m", 0, [])

    lab_run(body)


def test_a_resize_waits_for_capacity_and_reports_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, sized("a", "500m"))
        await workload_lab.kube.create(PODS, sized("b", "1"))
        await asyncio.sleep(10)
        await resize(workload_lab.kube, "a", "1500m")
        await asyncio.sleep(20)
        assert await seen(workload_lab.kube, "a") == ("500m", "500m", 0, [("PodResizePending", "Deferred")])
        await workload_lab.kube.delete(PODS, "b", "default", grace=0)
        await asyncio.sleep(5)
        assert await seen(workload_lab.kube, "a") == ("1500m", "1500m", 0, [])

    lab_run(body, nodes=1)


def test_more_than_the_node_has_is_refused(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, sized("a", "500m"))
        await asyncio.sleep(10)
        with pytest.raises(Forbidden, match="node didn't have enough allocatable resources"):
            await resize(workload_lab.kube, "a", "100")

    lab_run(body, nodes=1)


def test_a_container_whose_policy_says_so_starts_anew(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
        await workload_lab.kube.create(PODS, sized("a", "100m", resizePolicy=policy))
        await asyncio.sleep(10)
        await resize(workload_lab.kube, "a", "200m")
        await asyncio.sleep(10)
        assert await seen(workload_lab.kube, "a") == ("200m", "200m", 1, [])

    lab_run(body)


def test_a_resize_taken_back_leaves_no_condition(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, sized("a", "500m"))
        await workload_lab.kube.create(PODS, sized("b", "1"))
        await asyncio.sleep(10)
        await resize(workload_lab.kube, "a", "1500m")
        await asyncio.sleep(5)
        await resize(workload_lab.kube, "a", "500m")
        await asyncio.sleep(5)
        assert await seen(workload_lab.kube, "a") == ("500m", "500m", 0, [])

    lab_run(body, nodes=1)


async def events_of(kube: Kube, name: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Type, reason and summary of the events of a pod's resizes."""
    listed = (await kube.list(CORE_EVENTS, "default", fields=f"involvedObject.name={name}")).items
    return [
        (event["type"], event["reason"], json.loads(event["message"].partition(": ")[2]))
        for event in listed
        if event["reason"].startswith("Resize")
    ]


def test_events_tell_how_far_a_resize_came(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, sized("a", "500m"))
        await workload_lab.kube.create(PODS, sized("b", "1"))
        await asyncio.sleep(10)
        await resize(workload_lab.kube, "a", "1500m")
        await asyncio.sleep(35)
        await workload_lab.kube.delete(PODS, "b", "default", grace=0)
        await asyncio.sleep(5)
        reported = await events_of(workload_lab.kube, "a")
        assert [(kind, reason) for kind, reason, _ in reported] == [
            ("Warning", "ResizeDeferred"),
            ("Normal", "ResizeStarted"),
            ("Normal", "ResizeCompleted"),
        ]
        summary = reported[0][2]
        assert summary["error"].startswith("Node didn't have enough resource: cpu, requested: 1500, ")
        assert summary["generation"] == 2
        assert summary["containers"] == [{"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "64Mi"}}}]

    lab_run(body, nodes=1)


def test_a_memory_limit_below_the_usage_is_an_error_until_it_is_raised(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        resources = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}
        made = pod("a", "nginx", container={"resources": resources})
        made["metadata"]["annotations"] = {"lab.dovetail.dev/memory": "100Mi"}
        await workload_lab.kube.create(PODS, made)
        await asyncio.sleep(10)
        for limit in ("80Mi", "128Mi"):
            changed = {"requests": {"memory": "64Mi"}, "limits": {"memory": limit}}
            body = {"spec": {"containers": [{"name": "c", "resources": changed}]}}
            await workload_lab.kube.patch(PODS, "a", body, "default", kind="strategic", subresource="resize")
            await asyncio.sleep(10)
            held = (await workload_lab.kube.get(PODS, "a", "default"))["status"]
            conditions = [item for item in held["conditions"] if "Resize" in item["type"]]
            if limit == "80Mi":
                assert [(item["type"], item["reason"]) for item in conditions] == [("PodResizeInProgress", "Error")]
                assert "memory limit (83886080) below current usage (104857600)" in conditions[0]["message"]
                assert held["containerStatuses"][0]["resources"]["limits"]["memory"] == "256Mi"
            else:
                assert conditions == []
                assert held["containerStatuses"][0]["resources"]["limits"]["memory"] == "128Mi"
        reported = [reason for _, reason, _ in await events_of(workload_lab.kube, "a")]
        assert reported == ["ResizeStarted", "ResizeError", "ResizeStarted", "ResizeCompleted"]

    lab_run(body)


def test_a_container_without_resources_reports_none(lab_run: Run) -> None:
    """Without the field the API server believes that the node cannot resize."""

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, pod("a", "nginx"))
        await asyncio.sleep(10)
        status = (await workload_lab.kube.get(PODS, "a", "default"))["status"]["containerStatuses"][0]
        assert status["resources"] == {}
        assert "allocatedResources" not in status

    lab_run(body)


def test_a_sidecar_is_resized(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        made = sized("a", "100m")
        sidecar = {"name": "side", "image": "nginx", "restartPolicy": "Always"}
        made["spec"]["initContainers"] = [sidecar | {"resources": {"requests": {"cpu": "50m"}}}]
        await workload_lab.kube.create(PODS, made)
        await asyncio.sleep(15)
        body = {"spec": {"initContainers": [{"name": "side", "resources": {"requests": {"cpu": "150m"}}}]}}
        await workload_lab.kube.patch(PODS, "a", body, "default", kind="strategic", subresource="resize")
        await asyncio.sleep(5)
        status = (await workload_lab.kube.get(PODS, "a", "default"))["status"]["initContainerStatuses"][0]
        assert status["resources"]["requests"] == status["allocatedResources"] == {"cpu": "150m"}

    lab_run(body)
