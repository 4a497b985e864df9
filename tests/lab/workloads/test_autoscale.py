"""The horizontal autoscaler in the lab: the php-apache walk-through, and autoscalers that cannot work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import CORE_EVENTS, DEPLOYMENTS, HPAS, PODS, SERVICES
from tests.lab.workloads.manifests import deployment, pod

Run = Callable[..., None]
LOAD = ["/bin/sh", "-c", "while sleep 0.01; do wget -q -O- http://php-apache; done"]


def autoscaler(name: str = "php-apache", target: str = "php-apache", kind: str = "Deployment") -> dict[str, Any]:
    wanted = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": "Resource", "resource": wanted}],
        },
    }


async def php_apache(workload_lab: Any) -> None:
    resources = {"limits": {"cpu": "500m"}, "requests": {"cpu": "200m"}}
    item = deployment("php-apache", 1, "registry.k8s.io/hpa-example", pod={"container": {"resources": resources}})
    await workload_lab.kube.create(DEPLOYMENTS, item)
    service = {"metadata": {"name": "php-apache"}, "spec": {"selector": {"app": "php-apache"}, "ports": [{"port": 80}]}}
    await workload_lab.kube.create(SERVICES, service, "default")


async def status(workload_lab: Any, name: str = "php-apache") -> dict[str, Any]:
    found: dict[str, Any] = (await workload_lab.kube.get(HPAS, name, "default"))["status"]
    return found


async def said(workload_lab: Any) -> list[tuple[str, str]]:
    items = (await workload_lab.kube.list(CORE_EVENTS, "default")).items
    mine = [item for item in items if item["involvedObject"]["kind"] == "HorizontalPodAutoscaler"]
    return [(item["reason"], item["message"]) for item in mine]


def reasons(found: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["type"], each["status"], each["reason"]) for each in found["conditions"]]


def test_php_apache_grows_under_load_and_shrinks_five_minutes_after_it(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await php_apache(workload_lab)
        await workload_lab.kube.create(HPAS, autoscaler())
        await asyncio.sleep(14)
        assert await status(workload_lab) == {"desiredReplicas": 0, "currentMetrics": None}
        await asyncio.sleep(31)
        idle = await status(workload_lab)
        assert (idle["currentReplicas"], idle["desiredReplicas"]) == (1, 1)
        await workload_lab.kube.create(PODS, pod("load", "busybox:1.28", container={"command": LOAD}))
        await asyncio.sleep(240)
        busy = await status(workload_lab)
        assert reasons(busy) == [
            ("AbleToScale", "True", "ReadyForNewScale"),
            ("ScalingActive", "True", "ValidMetricFound"),
            ("ScalingLimited", "False", "DesiredWithinRange"),
        ]
        assert busy["currentReplicas"] == 7
        assert busy["currentMetrics"][0]["resource"]["current"]["averageUtilization"] in range(38, 47)
        await workload_lab.available("php-apache", busy["currentReplicas"])
        await workload_lab.kube.delete(PODS, "load", "default", grace=0)
        await asyncio.sleep(270)
        assert (await status(workload_lab))["currentReplicas"] == busy["currentReplicas"]
        await asyncio.sleep(75)
        assert (await status(workload_lab))["currentReplicas"] == 1
        first, *_, last = [message for reason, message in await said(workload_lab) if reason == "SuccessfulRescale"]
        assert first == "New size: 4; reason: cpu resource utilization (percentage of request) above target"
        assert last == "New size: 1; reason: All metrics below target"

    lab_run(body)


def test_a_target_that_is_not_there_is_named(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(HPAS, autoscaler())
        await workload_lab.kube.create(HPAS, autoscaler("odd", kind="Gadget"))
        await asyncio.sleep(16)
        assert reasons(await status(workload_lab)) == [("AbleToScale", "False", "FailedGetScale")]
        assert sorted(await said(workload_lab)) == [
            ("FailedGetScale", 'deployments.apps "php-apache" not found'),
            ("FailedGetScale", 'no matches for kind "Gadget" in group "apps"'),
        ]

    lab_run(body, nodes=1)


def test_two_autoscalers_for_the_same_pods_both_refuse(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await php_apache(workload_lab)
        await workload_lab.kube.create(HPAS, autoscaler("one"))
        await workload_lab.kube.create(HPAS, autoscaler("two"))
        await asyncio.sleep(31)
        for name in ("one", "two"):
            assert ("ScalingActive", "False", "AmbiguousSelector") in reasons(await status(workload_lab, name))
        text = "pods by selector app=php-apache are controlled by multiple HPAs: [default/one default/two]"
        assert ("AmbiguousSelector", text) in await said(workload_lab)

    lab_run(body, nodes=1)


def test_a_request_missing_in_a_container_is_named(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        item = deployment("php-apache", 1, pod={"container": {"resources": {}}})
        await workload_lab.kube.create(DEPLOYMENTS, item)
        await workload_lab.kube.create(HPAS, autoscaler())
        await asyncio.sleep(61)
        found = await status(workload_lab)
        assert found["currentMetrics"] == [{"type": ""}]
        assert "missing request for cpu in container c of Pod php-apache-" in found["conditions"][1]["message"]

    lab_run(body, nodes=1)
