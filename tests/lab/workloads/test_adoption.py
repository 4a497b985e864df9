"""Pods that lost their workload find a new one; a daemon's successor comes before it goes, where that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.resources import DAEMONSETS, PODS, REPLICASETS, STATEFULSETS, Resource
from tests.lab.workloads.manifests import workload

Run = Callable[..., None]

KINDS = {"ReplicaSet": REPLICASETS, "StatefulSet": STATEFULSETS, "DaemonSet": DAEMONSETS}


def made(kind: str, name: str) -> dict[str, Any]:
    more = {"serviceName": "web"} if kind == "StatefulSet" else {}
    item = workload(kind, name, None if kind == "DaemonSet" else 2, **more)
    item["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    item["spec"]["template"]["metadata"]["labels"] = {"app": "web"}
    return item


@pytest.mark.parametrize("kind", KINDS)
def test_orphans_are_taken_in_and_nothing_is_made_twice(lab_run: Run, kind: str) -> None:
    async def body(workload_lab: Any) -> None:
        resource: Resource = KINDS[kind]
        await workload_lab.kube.create(resource, made(kind, "web"))
        await asyncio.sleep(20)
        before = {pod["metadata"]["uid"] for pod in await workload_lab.pods("web")}
        assert len(before) == 2
        await workload_lab.kube.delete(resource, "web", "default", propagation="Orphan")
        await asyncio.sleep(2)
        orphans = await workload_lab.pods("web")
        assert orphans and not any(pod["metadata"].get("ownerReferences") for pod in orphans)
        again = await workload_lab.kube.create(resource, made(kind, "web"))
        await asyncio.sleep(10)
        after = await workload_lab.pods("web")
        assert {pod["metadata"]["uid"] for pod in after} == before
        assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in after} == {again["metadata"]["uid"]}

    lab_run(body, nodes=2)


def test_a_pod_that_leaves_the_selector_is_let_go_and_replaced_once(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(REPLICASETS, made("ReplicaSet", "web"))
        await asyncio.sleep(15)
        first = (await workload_lab.pods("web"))[0]["metadata"]["name"]
        await workload_lab.kube.patch(PODS, first, {"metadata": {"labels": {"app": "loose"}}}, "default")
        await asyncio.sleep(10)
        assert "ownerReferences" not in (await workload_lab.kube.get(PODS, first, "default"))["metadata"]
        assert len(await workload_lab.pods("web")) == 2
        assert len(await workload_lab.events("SuccessfulDelete")) == 0

    lab_run(body)


def test_a_surging_daemon_is_never_missed(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        item = made("DaemonSet", "web")
        item["spec"]["updateStrategy"] = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        await workload_lab.kube.create(DAEMONSETS, item)
        await asyncio.sleep(20)
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.26"}]}}}}
        await workload_lab.kube.patch(DAEMONSETS, "web", change, "default", kind="strategic")
        most = 0
        for _ in range(120):
            await asyncio.sleep(0.5)
            pods = await workload_lab.pods("web")
            most = max(most, len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]))
            status = (await workload_lab.kube.get(DAEMONSETS, "web", "default"))["status"]
            assert status.get("numberUnavailable", 0) == 0
        assert most == 3
        assert {pod["spec"]["containers"][0]["image"] for pod in await workload_lab.pods("web")} == {"nginx:1.26"}

    lab_run(body, nodes=2)
