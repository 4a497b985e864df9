"""Provisioning with a real control plane: real scheduler, real controllers, our CRDs, simulated instances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_scaled
from dovetail.cloud.simulated import catalog_file
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.cloud.simulated.provider import SimulatedCloud
from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import NotFound
from dovetail.lab.real_control_plane import RealControlPlane
from dovetail.model.kinds import crds
from dovetail.model.quantity import resources

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(300)]

TYPES = [
    {
        "name": name,
        "capacity": {"cpu": str(cpu), "memory": f"{cpu * 4}Gi", "pods": "58", "ephemeral-storage": "20Gi"},
        "overhead": {"cpu": "100m", "memory": "500Mi"},
        "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
        "offerings": [{"zone": zone, "capacityType": "on-demand", "price": cpu * 0.05} for zone in ("a", "b")],
    }
    for name, cpu in (("m.large", 2), ("m.xlarge", 4), ("m.2xlarge", 8))
]
POOL = {
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            }
        },
        "disruption": {"consolidateAfter": "Never"},
    },
}


def _deployment(replicas: int) -> dict[str, Any]:
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    pod = {"containers": [{"name": "c", "image": "pause", "resources": requests}], "terminationGracePeriodSeconds": 0}
    labels = {"app": "inflate"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "inflate", "namespace": "default"}, "spec": spec}


async def _until(holds: Callable[[], Awaitable[bool]], seconds: float = 90.0) -> None:
    for _ in range(int(seconds * 4)):
        if await holds():
            return
        await asyncio.sleep(0.25)
    raise AssertionError(f"did not happen within {seconds} s")


async def _served(kube: Kube) -> bool:
    try:
        await kube.list(kinds.NODECLAIMS)
    except NotFound:
        return False
    return True


async def _scenario(kube: Kube, cloud: SimulatedCloud, lines: list[dict[str, Any]]) -> None:
    await kube.create(kinds.NODEPOOLS, POOL)
    await kube.create(kinds.DEPLOYMENTS, _deployment(20))

    async def all_run() -> bool:
        pods = (await kube.list(kinds.PODS)).items
        return len(pods) == 20 and all(pod["status"]["phase"] == "Running" for pod in pods)

    async def all_ready() -> bool:
        claims = (await kube.list(kinds.NODECLAIMS)).items
        ready = [c for c in claims for each in c["status"]["conditions"] if each["type"] == "Ready"]
        return len(ready) == len(claims) and all(_ready(claim) for claim in claims)

    await _until(all_run)
    await _until(all_ready)
    nodes = (await kube.list(kinds.NODES)).items
    assert not [node["spec"]["taints"] for node in nodes if node["spec"].get("taints")]
    assert len(nodes) == len(cloud.standing()) == cloud.sold
    used: dict[str, int] = {}
    for pod in (await kube.list(kinds.PODS)).items:
        used[pod["spec"]["nodeName"]] = used.get(pod["spec"]["nodeName"], 0) + 500
    for node in nodes:
        assert used.get(node["metadata"]["name"], 0) <= resources(node["status"]["allocatable"])["cpu"]
    planned = sum(line["cost"] for line in lines if line["message"] == "computed new nodeclaim(s) to fit pod(s)")
    paid = sum(cloud.price(m.instance_type, m.zone, m.capacity_type) or 0.0 for m in cloud.standing())
    assert paid == pytest.approx(planned, rel=0.01)


def _ready(claim: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in claim["status"]["conditions"])


def test_a_deployment_gets_the_planned_nodes_and_runs_on_them() -> None:
    async def main() -> None:
        async with RealControlPlane(scheduler=True, controllers=True) as plane:
            clock, chance = Clock(asyncio.get_running_loop()), Chance(3)
            kube = Kube(plane.transport(), clock, chance=chance)
            for definition in crds.definitions():
                await kube.create(kinds.CRDS, definition)
            await _until(lambda: _served(kube))
            lines: list[dict[str, Any]] = []
            cloud = SimulatedCloud(clock, chance.child("cloud"), catalog_file.parse(json.dumps(TYPES).encode()))
            settings = Settings(metrics_port=0, health_probe_port=0, disable_leader_election=True, plan_deadline=0.5)
            log = logs.logger(clock, write=lambda line: lines.append(json.loads(line)))
            autoscaler = Autoscaler(kube, cloud, clock, chance, settings, log=log)
            fleet = SimulatedKubelets(kube, cloud, clock, chance.child("fleet"))
            autoscaler.cluster_state.listen(kinds.PODS, lambda change: fleet.pod_changed(change.old, change.new))
            running = [asyncio.ensure_future(autoscaler.run()), asyncio.ensure_future(fleet.run())]
            try:
                await _scenario(kube, cloud, lines)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                await kube.close()

    run_scaled(main())
