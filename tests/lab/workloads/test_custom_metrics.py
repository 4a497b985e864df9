"""custom.metrics.k8s.io and external.metrics.k8s.io from the load models, and autoscalers on requests a second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.errors import NotFound
from dovetail.kube.resources import DEPLOYMENTS, HPAS, PODS, SERVICES, Resource
from dovetail.kube.transport import Request
from dovetail.lab.custom_metrics import register
from dovetail.lab.metrics import APISERVICES
from tests.lab.workloads.manifests import deployment, pod

Run = Callable[..., None]
Json = dict[str, Any]
CUSTOM, EXTERNAL = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/external.metrics.k8s.io/v1beta1"
INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ASKS = {"lab.dovetail.dev/asks": "web", "lab.dovetail.dev/requests-per-second": "100"}


async def web(lab: Any, *, asked: bool = True) -> None:
    """A Deployment of one pod behind a service, an ingress before it, and a generator of 100 requests a second."""
    await register(lab.kube)
    await lab.kube.create(DEPLOYMENTS, deployment("web", 1, "nginx"))
    service = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    await lab.kube.create(SERVICES, service, "default")
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    await lab.kube.create(INGRESSES, {"metadata": {"name": "main"}, "spec": {"defaultBackend": backend}}, "default")
    if asked:
        generator = pod("load", "nginx")
        generator["metadata"]["annotations"] = ASKS
        await lab.kube.create(PODS, generator)


def hpa(metric: Json) -> Json:
    return {
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [metric],
        },
    }


async def read(lab: Any, path: str) -> Json:
    body: Json = json.loads((await lab.kube.request("GET", path)).body)
    return body


RATE = {"name": "requests-per-second"}
AVERAGE = {"type": "AverageValue", "averageValue": "25"}
METRICS = {
    "pods": {"type": "Pods", "pods": {"metric": RATE, "target": AVERAGE}},
    "service": {
        "type": "Object",
        "object": {
            "metric": RATE,
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
            "target": AVERAGE,
        },
    },
    "ingress": {
        "type": "Object",
        "object": {
            "metric": RATE,
            "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"},
            "target": AVERAGE,
        },
    },
    "external": {
        "type": "External",
        "external": {"metric": {**RATE, "selector": {"matchLabels": {"service": "web"}}}, "target": AVERAGE},
    },
}


@pytest.mark.parametrize("source", METRICS)
def test_an_autoscaler_follows_requests_a_second(lab_run: Run, source: str) -> None:
    async def body(workload_lab: Any) -> None:
        await web(workload_lab)
        await workload_lab.kube.create(HPAS, hpa(METRICS[source]))
        await asyncio.sleep(120)
        status = (await workload_lab.kube.get(HPAS, "web", "default"))["status"]
        assert (status["currentReplicas"], status["desiredReplicas"]) == (4, 4)
        current = status["currentMetrics"][0]
        assert current[current["type"].lower()]["current"]["averageValue"] == "25"
        await workload_lab.kube.delete(PODS, "load", "default", grace=0)
        await asyncio.sleep(400)
        assert (await workload_lab.kube.get(HPAS, "web", "default"))["status"]["currentReplicas"] == 1

    lab_run(body)


def test_annotations_give_any_metric(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await web(workload_lab, asked=False)
        notes = {"metadata": {"annotations": {"lab.dovetail.dev/metric.queue-length": "7.5"}}}
        await workload_lab.kube.patch(SERVICES, "web", notes, "default", kind="merge")
        outside = {"metadata": {"annotations": {"lab.dovetail.dev/external.messages": "0h=40,12h=40"}}}
        await workload_lab.kube.patch(NAMESPACES, "default", outside, kind="merge")
        described = await read(workload_lab, f"{CUSTOM}/namespaces/default/services/web/queue-length")
        assert [item["value"] for item in described["items"]] == ["7500m"]
        assert described["items"][0]["metric"] == {"name": "queue-length"}
        values = await read(workload_lab, f"{EXTERNAL}/namespaces/default/messages")
        assert [(item["metricName"], item["value"]) for item in values["items"]] == [("messages", "40")]
        assert (await read(workload_lab, f"{EXTERNAL}/namespaces/default/unheard"))["items"] == []
        with pytest.raises(NotFound, match="could not find the metric unheard for services"):
            await read(workload_lab, f"{CUSTOM}/namespaces/default/services/web/unheard")

    lab_run(body)


def test_the_groups_are_served_while_their_registration_is_there(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        with pytest.raises(NotFound):
            await read(workload_lab, "/apis/custom.metrics.k8s.io")
        await web(workload_lab)
        group = await read(workload_lab, "/apis/custom.metrics.k8s.io")
        assert group["preferredVersion"]["version"] == "v1beta2"
        listed = await read(workload_lab, CUSTOM)
        assert "pods/requests-per-second" in [item["name"] for item in listed["resources"]]
        for version in ("v1beta1", "v1beta2"):
            await workload_lab.kube.delete(APISERVICES, f"{version}.custom.metrics.k8s.io")
        with pytest.raises(NotFound):
            await read(workload_lab, "/apis/custom.metrics.k8s.io")

    lab_run(body)


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def discovered(lab: Any, accept: str) -> list[str]:
    request = Request(method="GET", path="/apis", headers={"accept": accept}, body=b"")
    body = json.loads((await lab.lab.transport.send(request)).body)
    return (
        [item["metadata"]["name"] for item in body["items"]] if "items" in body else [g["name"] for g in body["groups"]]
    )


@pytest.mark.parametrize("accept", ["application/json", AGGREGATED])
def test_both_groups_are_in_discovery_while_they_are_registered(lab_run: Run, accept: str) -> None:
    """Last, after the groups of custom resources: their APIServices have the lowest priority."""

    async def body(lab: Any) -> None:
        assert "custom.metrics.k8s.io" not in await discovered(lab, accept)
        await register(lab.kube)
        groups = ["custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"]
        assert (await discovered(lab, accept))[-3:] == groups
        for version in ("v1beta1", "v1beta2"):
            await lab.kube.delete(APISERVICES, f"{version}.custom.metrics.k8s.io")
        assert (await discovered(lab, accept))[-2:] == groups[1:]

    lab_run(body)


def test_aggregated_discovery_has_metrics_as_subresources(lab_run: Run) -> None:
    """As the aggregator of a 1.36 control plane converts them: the resource itself has no kind and no verbs."""

    async def body(lab: Any) -> None:
        await register(lab.kube)
        request = Request(method="GET", path="/apis", headers={"accept": AGGREGATED}, body=b"")
        items = json.loads((await lab.lab.transport.send(request)).body)["items"]
        (group,) = [item for item in items if item["metadata"]["name"] == "custom.metrics.k8s.io"]
        assert [version["version"] for version in group["versions"]] == ["v1beta2", "v1beta1"]
        empty = {"group": "", "version": "", "kind": ""}
        assert group["versions"][0]["resources"][0] == {
            "resource": "pods",
            "responseKind": empty,
            "scope": "Namespaced",
            "singularResource": "",
            "verbs": None,
            "subresources": [
                {
                    "subresource": "requests-per-second",
                    "responseKind": empty | {"kind": "MetricValueList"},
                    "verbs": ["get"],
                }
            ],
        }

    lab_run(body)
