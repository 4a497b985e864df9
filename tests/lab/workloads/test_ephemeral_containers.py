"""Ephemeral containers: they run in a pod that runs already, and nothing about the pod depends on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import PODS
from tests.lab.workloads.manifests import pod

Run = Callable[..., None]


async def debug(living: Any, name: str, image: str) -> None:
    """As `kubectl debug` does it."""
    body = {"spec": {"ephemeralContainers": [{"name": name, "image": image, "terminationMessagePolicy": "File"}]}}
    await living.kube.patch(PODS, "web", body, "default", kind="strategic", subresource="ephemeralcontainers")


async def status(living: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await living.kube.get(PODS, "web", "default"))["status"]
    return found


def test_an_ephemeral_container_runs_beside_the_others(lab_run: Run) -> None:
    """kubectl debug waits until its status says that it runs, or has ended."""

    async def body(living: Any) -> None:
        await living.kube.create(PODS, pod("web"))
        await asyncio.sleep(10)
        await debug(living, "tool", "nginx")
        await asyncio.sleep(10)
        (guest,) = (await status(living))["ephemeralContainerStatuses"]
        assert "running" in guest["state"]
        assert guest["ready"] is False and "started" not in guest, "it has no probes, and nobody waits for it"
        assert await living.events("Started") == ["Container started"] * 2

    lab_run(body, nodes=1)


def test_a_pod_is_none_the_worse_when_its_guest_ends(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        await living.kube.create(PODS, pod("web"))
        await asyncio.sleep(10)
        await debug(living, "shell", "busybox")
        await debug(living, "typo", "nginx:does-not-exist")
        await asyncio.sleep(60)
        found = await status(living)
        shell, typo = found["ephemeralContainerStatuses"]
        assert shell["state"]["terminated"]["reason"] == "Completed" and shell["restartCount"] == 0
        assert typo["state"]["waiting"]["reason"] in ("ErrImagePull", "ImagePullBackOff")
        assert found["phase"] == "Running"
        assert {each["status"] for each in found["conditions"]} == {"True"}

    lab_run(body, nodes=1)
