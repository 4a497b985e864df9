"""One look of the horizontal autoscaler at a server: what is asked, what comes of answers that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.hpa.controller import HorizontalAutoscaling
from dovetail.autoscalers.hpa.decision import HpaEvent
from dovetail.autoscalers.hpa.spec import HorizontalPodAutoscaler
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess
from dovetail.model.meta import ObjectMeta
from tests.kube.scripted import ok, status

PODS = "/api/v1/namespaces/shop/pods"
SCALE = "/apis/apps/v1/namespaces/shop/deployments/web/scale"
USED = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods"
KINDS = {"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]}


def scale(replicas: int = 2, selector: str = "app=web", version: str = "7") -> Response:
    meta = {"name": "web", "namespace": "shop", "resourceVersion": version}
    return ok(
        {"metadata": meta, "spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": selector}}
    )


def pods(count: int = 2) -> Response:
    old = "2025-12-31T00:00:00Z"
    items = [
        {
            "metadata": {"name": f"web-{number}", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]},
            "status": {
                "phase": "Running",
                "startTime": old,
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": old}],
            },
        }
        for number in range(count)
    ]
    return ok({"metadata": {"resourceVersion": "1"}, "items": items})


def used(amount: str, count: int = 2) -> Response:
    items = [
        {
            "metadata": {"name": f"web-{number}"},
            "timestamp": "2026-01-01T00:00:00Z",
            "window": "15s",
            "containers": [{"name": "c", "usage": {"cpu": amount}}],
        }
        for number in range(count)
    ]
    return ok({"items": items})


Answer = Response | Sequence[Response]


class Server:
    """Answers by method and path; a list is answered one after the other, the last for ever."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers: dict[str, Answer] = {
            "GET /apis/apps": ok({"preferredVersion": {"version": "v1"}, "versions": [{"version": "v1"}]}),
            "GET /apis/apps/v1": ok(KINDS),
            f"GET {SCALE}": scale(),
            f"PUT {SCALE}": ok({}),
            f"GET {PODS}": pods(),
            f"GET {USED}": used("100m"),
            "PATCH /apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web/status": ok({}),
            **(answers or {}),
        }
        self.asked: list[tuple[str, Any]] = []

    async def handle(self, request: Request) -> Response:
        name = f"{request.method} {request.path}"
        self.asked.append((name, msgspec.json.decode(request.body) if request.body else None))
        answer = self.answers.get(name, status(404, "NotFound", f"nothing at {name}"))
        if isinstance(answer, Response):
            return answer
        self.answers[name] = answer[1:] or answer
        return answer[0]

    def written(self, method: str) -> list[Any]:
        return [body for name, body in self.asked if name.startswith(method)]


def autoscaler(*metrics: dict[str, Any]) -> HorizontalPodAutoscaler:
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    return msgspec.convert(
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "maxReplicas": 10,
                "metrics": list(metrics) or [cpu],
            },
        },
        HorizontalPodAutoscaler,
    )


def look(server: Server, *metrics: dict[str, Any]) -> list[HpaEvent]:
    """What one look says."""
    said: list[HpaEvent] = []

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        kube = Kube(InProcess(server), clock)
        await HorizontalAutoscaling(kube, clock, lambda _, saying: said.append(saying)).look(autoscaler(*metrics))

    run_virtual(main())
    return said


def conditions(server: Server) -> dict[str, tuple[str, str, str]]:
    (body,) = server.written("PATCH")
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in body["status"]["conditions"]}


def test_what_is_decided_is_written_as_the_scale_that_was_read() -> None:
    server = Server({f"GET {USED}": used("200m")})
    assert [each.message for each in look(server)] == [
        "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    ]
    (written,) = server.written("PUT")
    assert (written["spec"], written["metadata"]["resourceVersion"]) == ({"replicas": 4}, "7")


def test_a_workload_that_changed_meanwhile_is_scaled_on_top_of_that() -> None:
    clash = status(409, "Conflict", "the object has been modified")
    server = Server(
        {
            f"GET {USED}": used("200m"),
            f"GET {SCALE}": [scale(), scale(version="8")],
            f"PUT {SCALE}": [clash, ok({})],
        }
    )
    assert [each.reason for each in look(server)] == ["SuccessfulRescale"]
    assert [body["metadata"]["resourceVersion"] for body in server.written("PUT")] == ["7", "8"]


def test_a_scale_that_cannot_be_written_is_reported_and_five_tries_are_enough() -> None:
    clash = status(409, "Conflict", "the object has been modified")
    server = Server({f"GET {USED}": used("200m"), f"PUT {SCALE}": clash})
    (said,) = look(server)
    assert said.reason == "FailedRescale" and said.message.endswith("error: the object has been modified")
    assert len(server.written("PUT")) == 5
    assert conditions(server)["AbleToScale"][:2] == ("False", "FailedUpdateScale")


def test_a_workload_that_vanishes_between_two_tries_is_reported() -> None:
    clash = status(409, "Conflict", "the object has been modified")
    server = Server(
        {
            f"GET {USED}": used("200m"),
            f"PUT {SCALE}": clash,
            f"GET {SCALE}": [scale(), status(404, "NotFound", 'deployments.apps "web" not found')],
        }
    )
    (said,) = look(server)
    assert said.reason == "FailedRescale" and said.message.endswith('error: deployments.apps "web" not found')


def test_a_kind_is_found_in_a_version_that_its_group_does_not_prefer() -> None:
    group = {"preferredVersion": {"version": "v2"}, "versions": [{"version": "v1"}, {"version": "v2"}]}
    server = Server({"GET /apis/apps": ok(group), "GET /apis/apps/v2": ok({"resources": []})})
    assert look(server) == []
    assert conditions(server)["ScalingActive"][0] == "True"


def test_autoscalers_of_different_namespaces_do_not_get_into_each_others_way() -> None:
    async def main() -> list[str]:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        elsewhere = {
            name.replace("/shop/", "/yard/"): answer for name, answer in Server().answers.items() if "/shop/" in name
        }
        said: list[str] = []
        controller = HorizontalAutoscaling(
            Kube(InProcess(Server(elsewhere)), clock), clock, lambda _, saying: said.append(saying.reason)
        )
        for namespace in ("shop", "yard"):
            await controller.look(
                msgspec.structs.replace(autoscaler(), metadata=ObjectMeta(name="web", namespace=namespace))
            )
        return said

    assert run_virtual(main()) == []


@pytest.mark.parametrize(
    ("selector", "answer", "reason", "shown"),
    [
        ("", pods(), "SelectorRequired", "the HPA target's scale is missing a selector"),
        (
            "app in web",
            status(400, "BadRequest", "unable to parse requirement: found 'web' expected: '('"),
            "InvalidSelector",
            "couldn't convert selector into a corresponding internal selector object: "
            "unable to parse requirement: found 'web' expected: '('",
        ),
    ],
)
def test_a_target_whose_pods_cannot_be_reported_is_not_scaled(
    selector: str, answer: Response, reason: str, shown: str
) -> None:
    server = Server({f"GET {SCALE}": scale(selector=selector), f"GET {PODS}": answer})
    assert [each.reason for each in look(server)] == [reason, "FailedComputeMetricsReplicas"]
    assert conditions(server)["ScalingActive"] == ("False", "InvalidSelector", shown)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (ok({"items": []}), "no metrics returned from resource metrics API"),
        (
            Response(status=503, body=b"no endpoints"),
            "unable to fetch metrics from resource metrics API: "
            "the server is currently unable to handle the request (get pods.metrics.k8s.io)",
        ),
        (used("a lot"), "unable to fetch metrics from resource metrics API: quantities must match the regular"),
        (
            Response(status=200, body=b"<html>"),
            "unable to fetch metrics from resource metrics API: "
            "GET /apis/metrics.k8s.io/v1beta1/namespaces/shop/pods: the answer is no object: '<html>'",
        ),
        (ok({"items": [{"timestamp": "today"}]}), "unable to fetch metrics from resource metrics API: Invalid RFC3339"),
    ],
)
def test_metrics_that_nothing_can_read_are_reported_and_change_nothing(answer: Response, problem: str) -> None:
    server = Server({f"GET {USED}": answer})
    assert [each.reason for each in look(server)] == ["FailedGetResourceMetric", "FailedComputeMetricsReplicas"]
    assert server.written("PUT") == []
    text = f"failed to get cpu utilization: unable to get metrics for resource cpu: {problem}"
    assert text in conditions(server)["ScalingActive"][2]


def external() -> dict[str, Any]:
    metric = {"name": "queue", "selector": {"matchLabels": {"of": "orders"}}}
    return {"type": "External", "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "5"}}}


def test_an_external_metric_is_asked_for_by_its_labels_and_summed() -> None:
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue"
    server = Server({f"GET {path}": ok({"items": [{"value": "12"}, {"value": "8500m"}]})})
    look(server, external())
    assert server.written("PUT")[0]["spec"] == {"replicas": 4}


def test_without_a_custom_metrics_api_its_absence_is_named() -> None:
    metric = {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"averageValue": "1"}}}
    first, _ = look(Server(), metric)
    assert first.reason == "FailedGetPodsMetric"
    assert first.message == (
        "unable to get metric hits: unable to fetch metrics from custom metrics API: "
        "no custom metrics API (custom.metrics.k8s.io) registered"
    )


def test_a_metric_of_an_object_is_asked_for_by_the_name_its_kind_is_served_under() -> None:
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"}
    metric = {
        "type": "Object",
        "object": {"describedObject": about, "metric": {"name": "hits"}, "target": {"type": "Value", "value": "5"}},
    }
    served = ok({"preferredVersion": {"groupVersion": "custom.metrics.k8s.io/v1beta2"}})
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/deployments.apps/db/hits"
    server = Server({"GET /apis/custom.metrics.k8s.io": served, f"GET {path}": ok({"items": [{"value": "10"}]})})
    (said,) = look(server, metric)
    assert said.message == "New size: 4; reason: Deployment metric hits above target"
