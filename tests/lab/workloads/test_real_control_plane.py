"""Our kubelets around a real control plane: the same workload, the same words."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.kube.resources import CORE_EVENTS, DAEMONSETS, DEPLOYMENTS, JOBS, PDBS, STATEFULSETS
from dovetail.lab.cluster import Lab, LabParts
from dovetail.lab.real_control_plane import RealControlPlane
from tests.lab.workloads.manifests import budget, deployment, job, workload

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

_VARYING = re.compile(
    r"\b(web|db|agent|pi)-[a-z0-9]{5,10}(-[a-z0-9]{5})?\b|in [0-9.]+m?s \([0-9.]+m?s including waiting\)"
)


async def _workload_run(lab: Lab) -> tuple[set[tuple[str, ...]], dict[str, Any]]:
    """Play the suite; returns who said what, and the final statuses without their times."""
    kube = lab.kube
    await kube.create(PDBS, budget("web", maxUnavailable=1))
    await kube.create(DEPLOYMENTS, deployment(replicas=3))
    await kube.create(STATEFULSETS, workload("StatefulSet", "db", 2, serviceName="db"))
    await kube.create(DAEMONSETS, workload("DaemonSet", "agent"))
    await kube.create(JOBS, job("pi", ["sh", "-c", "sleep 1"], completions=2, parallelism=1))
    await asyncio.sleep(20)
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
    await kube.patch(DEPLOYMENTS, "web", change, "default", kind="strategic")
    await kube.patch(STATEFULSETS, "db", {"spec": {"replicas": 1}}, "default")
    await asyncio.sleep(25)
    said = set()
    for event in (await kube.list(CORE_EVENTS, "default")).items:
        about = event["involvedObject"]["kind"]
        if about not in ("Node", "Pod"):
            source = event["source"].get("component", "")
            said.add((about, source, event["type"], event["reason"], _VARYING.sub("X", event["message"])))
    statuses = {}
    for resource, name in (
        (DEPLOYMENTS, "web"),
        (STATEFULSETS, "db"),
        (DAEMONSETS, "agent"),
        (JOBS, "pi"),
        (PDBS, "web"),
    ):
        statuses[f"{resource.kind} {name}"] = _plain((await kube.get(resource, name, "default"))["status"])
    return said, statuses  # type: ignore[return-value]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if "Time" not in key and "Revision" not in key}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return _VARYING.sub("X", value) if isinstance(value, str) else value


async def _both() -> tuple[Any, Any]:
    clock = Clock(asyncio.get_running_loop())
    async with RealControlPlane(scheduler=True, controllers=True) as plane:
        transport = plane.transport()
        try:
            lab = Lab(transport, clock, Chance(1), LabParts(controllers=False, scheduler=False))
            async with lab:
                await lab.nodes(3)
                real = await _workload_run(lab)
        finally:
            await transport.close()
    async with Lab.embedded(1, clock=clock) as lab:
        await lab.nodes(3)
        return real, await _workload_run(lab)


def test_the_lab_says_and_ends_as_the_real_controllers_do() -> None:
    real, ours = run_scaled(_both())
    assert ours[0] == real[0]
    assert ours[1] == real[1]
