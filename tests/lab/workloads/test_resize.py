"""Resizing in place: the status follows within seconds, and says why a resize waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.client import Kube
from dovetail.kube.errors import Forbidden
from dovetail.kube.resources import PODS
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
        assert await seen(workload_lab.kube, "a") == ("100m", "100m", 0, [("PodResizeInProgress", "")])
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
