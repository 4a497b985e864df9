"""Ephemeral containers: they run in a pod that runs already, and nothing about the pod depends on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import PODS
from tests.lab.workloads.manifests import pod

Run = Callable[..., None]


async def debug(workload_lab: Any, name: str, image: str) -> None:
    """As `kubectl debug` does it."""
    body = {"spec": {"ephemeralContainers": [{"name": name, "image": image, "terminationMessagePolicy": "File"}]}}
    await workload_lab.kube.patch(PODS, "web", body, "default", kind="strategic", subresource="ephemeralcontainers")


async def status(workload_lab: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await workload_lab.kube.get(PODS, "web", "default"))["status"]
    return found


def test_an_ephemeral_container_runs_beside_the_others(lab_run: Run) -> None:
    """kubectl debug waits until its status says that it runs, or has ended."""

    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, pod("web"))
        await asyncio.sleep(10)
        await debug(workload_lab, "tool", "nginx")
        await asyncio.sleep(10)
        (ephemeral,) = (await status(workload_lab))["ephemeralContainerStatuses"]
        assert "running" in ephemeral["state"]
        assert ephemeral["ready"] is False and "started" not in ephemeral, (
            "it has no probes, and readiness does not depend on it"
        )
        assert await workload_lab.events("Started") == ["Container started"] * 2

    lab_run(body, nodes=1)


def test_a_pod_keeps_running_when_its_ephemeral_container_ends(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(PODS, pod("web"))
        await asyncio.sleep(10)
        await debug(workload_lab, "shell", "busybox")
        await debug(workload_lab, "typo", "nginx:does-not-exist")
        await asyncio.sleep(60)
        found = await status(workload_lab)
        shell, typo = found["ephemeralContainerStatuses"]
        assert shell["state"]["terminated"]["reason"] == "Completed" and shell["restartCount"] == 0
        assert typo["state"]["waiting"]["reason"] in ("ErrImagePull", "ImagePullBackOff")
        assert found["phase"] == "Running"
        assert {each["status"] for each in found["conditions"]} == {"True"}

    lab_run(body, nodes=1)
