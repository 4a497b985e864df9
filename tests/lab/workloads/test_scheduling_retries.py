"""When a waiting pod is looked at again: the words of its events follow the cluster, and nothing else wakes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import NODES, PERSISTENTVOLUMECLAIMS, PODS
from tests.lab.workloads.manifests import pod

Run = Callable[..., None]


def test_a_pod_that_fits_nowhere_hears_that_the_node_was_closed_and_opened(lab_run: Run) -> None:
    """As in kube-scheduler: plugins registered for Node events are retried on every change of taints."""

    async def body(workload_lab: Any) -> None:
        await asyncio.sleep(5)
        await workload_lab.kube.create(PODS, pod("picky", nodeSelector={"disk": "gold"}))
        await asyncio.sleep(15)
        name = (await workload_lab.kube.list(NODES)).items[0]["metadata"]["name"]
        await workload_lab.kube.patch(NODES, name, {"spec": {"unschedulable": True}})
        await asyncio.sleep(15)
        words = [text.split(".")[0] for text in await workload_lab.events("FailedScheduling")]
        assert words[:2] == [
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector",
            "0/1 nodes are available: 1 node(s) were unschedulable",
        ]
        await workload_lab.kube.patch(NODES, name, {"metadata": {"labels": {"other": "label"}}})
        await asyncio.sleep(15)
        assert len(await workload_lab.events("FailedScheduling")) == len(words)

    lab_run(body, nodes=1)


def test_a_claim_wakes_only_the_pods_that_name_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await asyncio.sleep(5)
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]
        await workload_lab.kube.create(PODS, pod("waits", volumes=volumes))
        await asyncio.sleep(15)
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        other = {"metadata": {"name": "other"}, "spec": spec | {"storageClassName": "none"}}
        await workload_lab.kube.create(PERSISTENTVOLUMECLAIMS, other, "default")
        await asyncio.sleep(15)
        assert len(await workload_lab.events("FailedScheduling")) == 1
        mine = {"metadata": {"name": "mine"}, "spec": spec | {"storageClassName": "none"}}
        await workload_lab.kube.create(PERSISTENTVOLUMECLAIMS, mine, "default")
        await asyncio.sleep(15)
        assert any("unbound immediate" in text for text in await workload_lab.events("FailedScheduling"))

    lab_run(body, nodes=1)
