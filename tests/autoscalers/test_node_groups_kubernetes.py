"""Cluster Autoscaler with a real control plane: real scheduler and controllers, simulated groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from dovetail.autoscalers.node_groups import program
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.request_crd import definition
from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.cloud.node_groups import GroupOptions
from dovetail.kube.client import Kube
from dovetail.kube.errors import ApiError, NotFound
from dovetail.kube.resources import (
    CONFIGMAPS,
    CORE_EVENTS,
    CRDS,
    DEPLOYMENTS,
    NODES,
    PODS,
    PODTEMPLATES,
    PROVISIONINGREQUESTS,
)
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.real_control_plane import RealControlPlane
from dovetail.lab.simulated_groups import GroupSpec, SimulatedGroups

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(400)]

FLAGS = (
    "--leader-elect=false", "--scan-interval=2s", "--scale-down-delay-after-add=5s", "--enable-provisioning-requests",
    "--node-delete-delay-after-taint=1s",
)  # fmt: skip
QUICK = GroupOptions(scale_down_unneeded_s=10.0)
CONTAINER = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "900m", "memory": "1Gi"}}}


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 120.0) -> None:
    for _ in range(int(seconds * 2)):
        if await holds():
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"did not happen within {seconds} s")


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    spec = {"containers": [CONTAINER], "terminationGracePeriodSeconds": 0}
    template = {"metadata": {"labels": labels}, "spec": spec}
    body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "web"}, "spec": body}


async def reasons(kube: Kube) -> set[str]:
    return {event["reason"] for event in (await kube.list(CORE_EVENTS)).items}


async def grow_and_shrink(kube: Kube, groups: SimulatedGroups) -> None:
    await kube.create(DEPLOYMENTS, deployment(5), "default")

    async def all_run() -> bool:
        pods = (await kube.list(PODS, "default")).items
        return len(pods) == 5 and all(pod["status"].get("phase") == "Running" for pod in pods)

    await until(all_run)
    grown = groups.size("a")
    assert grown == 3 and {"TriggeredScaleUp", "ScaledUpGroup"} <= await reasons(kube)
    await kube.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")

    async def shrunk() -> bool:
        return groups.size("a") == 1 and len((await kube.list(NODES)).items) == 1

    await until(shrunk)
    assert {"ScaleDown", "ScaleDownEmpty"} & await reasons(kube)
    kept = await kube.get(CONFIGMAPS, "cluster-autoscaler-status", "kube-system")
    status = yaml.safe_load(kept["data"]["status"])
    assert status["nodeGroups"][0]["health"]["cloudProviderTarget"] == 1
    assert (await kube.get(CONFIGMAPS, "cluster-autoscaler-decisions", "kube-system"))["data"]["decisions"]


async def request_capacity(kube: Kube) -> None:
    async def served() -> bool:
        try:
            await kube.list(PROVISIONINGREQUESTS, "default")
        except NotFound:
            return False
        return True

    await until(served)
    await kube.create(
        PODTEMPLATES, {"metadata": {"name": "t"}, "template": {"spec": {"containers": [CONTAINER]}}}, "default"
    )
    spec = {
        "provisioningClassName": "check-capacity.autoscaling.x-k8s.io",
        "podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}],
    }
    await kube.create(PROVISIONINGREQUESTS, {"metadata": {"name": "r"}, "spec": spec}, "default")

    async def provisioned() -> bool:
        found = await kube.get(PROVISIONINGREQUESTS, "r", "default")
        listed = (found.get("status") or {}).get("conditions") or []
        return any(each["type"] == "Provisioned" and each["status"] == "True" for each in listed)

    await until(provisioned)
    with pytest.raises(ApiError, match="immutable"):
        change = {"spec": {"provisioningClassName": "other.example.com"}}
        await kube.patch(PROVISIONINGREQUESTS, "r", change, "default")


def test_a_group_grows_and_shrinks_and_a_request_finds_its_capacity() -> None:
    async def main() -> None:
        async with RealControlPlane(scheduler=True, controllers=True) as plane:
            clock, transport = Clock(asyncio.get_running_loop()), plane.transport()
            async with Lab(transport, clock, Chance(3), LabParts(controllers=False, scheduler=False)) as lab:
                await lab.kube.create(CRDS, definition())
                groups = SimulatedGroups(lab, boot_s=lambda: 2.0)
                await groups.create(GroupSpec(name="a", min_size=1, max_size=5, size=1, options=QUICK))
                kube = lab.client("cluster-autoscaler")
                work = asyncio.create_task(
                    program.run(parse(FLAGS), kube, groups, clock, lab.chance.child("ca"), write=len)
                )
                try:
                    await grow_and_shrink(lab.kube, groups)
                    await request_capacity(lab.kube)
                    assert not work.done()
                finally:
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
                    await groups.close()
            await transport.close()

    run_scaled(main())
