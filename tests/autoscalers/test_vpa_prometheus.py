"""History from Prometheus: queries, answers, and what is said where an answer is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from dovetail.autoscalers.vpa.metrics import RecommenderMetrics
from dovetail.autoscalers.vpa.model import Model, PodHistory
from dovetail.autoscalers.vpa.prometheus import (
    PrometheusError,
    duration_s,
    fetch_history,
    histories,
    labels_query,
    usage_queries,
)
from dovetail.autoscalers.vpa.settings import PrometheusSettings
from dovetail.clock import Clock
from dovetail.model.selector import parse_labels
from tests.autoscalers.vpa_objects import vpa

START_S = 1_767_225_600.0


def series(metric: dict[str, str], *values: tuple[float, str]) -> dict[str, Any]:
    return {"metric": metric, "values": [list(value) for value in values]}


POD = {"namespace": "shop", "pod_name": "web-0", "name": "app"}
LABELS = {"kubernetes_namespace": "shop", "kubernetes_pod_name": "web-0", "pod_label_app": "web"}


def test_durations_as_prometheus_writes_them() -> None:
    assert duration_s("8d") == 8 * 86400
    assert duration_s("1h30m") == 5400
    with pytest.raises(PrometheusError, match="is not a duration"):
        duration_s("8 days")


def test_queries_name_metric_job_and_containers() -> None:
    queries = usage_queries(PrometheusSettings(), "shop")
    chosen = 'job="kubernetes-cadvisor", pod_name=~".+", name!="POD", name!="", namespace="shop"'
    assert queries == {
        "cpu": f"rate(container_cpu_usage_seconds_total{{{chosen}}}[1h])",
        "memory": f"container_memory_working_set_bytes{{{chosen}}}",
    }


def test_a_range_in_the_metric_for_pod_labels_stays_as_it_is() -> None:
    """Users write the range into the flag, because upstream sends its text as it is."""
    own = PrometheusSettings(pod_labels_metric='kube_pod_labels{job="kube-state-metrics"}[4d]')
    assert labels_query(own) == 'kube_pod_labels{job="kube-state-metrics"}[4d]'
    assert labels_query(PrometheusSettings()) == 'up{job="kubernetes-pods"}[8d]'


def test_samples_come_in_order_of_time_with_the_last_labels() -> None:
    usage = {
        "cpu": [series(POD, (START_S + 3600, "0.5"), (START_S, "0.25"))],
        "memory": [series(POD, (START_S, "1000000"))],
    }
    labels = [
        series({**LABELS, "pod_label_app": "old"}, (START_S, "1")),
        series(LABELS, (START_S, "1"), (START_S + 60, "1")),
    ]
    (pod,) = histories(usage, labels, PrometheusSettings())
    assert (pod.namespace, pod.name, pod.labels) == ("shop", "web-0", {"app": "web"})
    assert [(sample.resource, sample.amount) for sample in pod.samples["app"]] == [
        ("cpu", 250),
        ("memory", 1000000),
        ("cpu", 500),
    ]


def test_a_pod_is_known_by_its_labels_alone() -> None:
    labels = [series({**LABELS, "pod_label_app": "old"}, (START_S, "1")), series(LABELS, (START_S + 19, "1"))]
    (pod,) = histories({"cpu": [], "memory": []}, labels, PrometheusSettings())
    assert (pod.namespace, pod.name, pod.labels, pod.samples) == ("shop", "web-0", {"app": "web"}, {})


def test_a_series_without_its_labels_is_named() -> None:
    with pytest.raises(PrometheusError, match="no pod_name label"):
        histories({"cpu": [series({"namespace": "shop"}, (START_S, "1"))]}, [], PrometheusSettings())


def test_history_counts_for_the_vpa_that_selects_the_pod() -> None:
    usage = {"cpu": [series(POD, *((START_S + 3600 * hour, "0.5") for hour in range(48)))], "memory": []}
    (pod,) = histories(usage, [series(LABELS, (START_S, "1"))], PrometheusSettings())
    assert isinstance(pod, PodHistory)
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    model.put_history(pod, START_S)
    (item,) = model.recommend(state, START_S).container_recommendations
    assert (item.target or {})["cpu"] == "587m"


def fetched(answer: Any, status: int = 200, asked: list[Any] | None = None, **options: str) -> list[PodHistory]:
    """What comes of a Prometheus that gives one answer to everything, over HTTP; `asked` collects its requests."""

    async def main() -> list[PodHistory]:
        async def handle(request: web.Request) -> web.Response:
            if asked is not None:
                asked.append((request.headers.get("Authorization"), (await request.post())["query"]))
            return web.json_response(answer, status=status)

        app = web.Application()
        app.router.add_post("/api/v1/{path}", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            clock = Clock(asyncio.get_running_loop())
            settings = PrometheusSettings(address=f"http://127.0.0.1:{port}", username="u", password="p", **options)
            return await fetch_history(settings, clock, RecommenderMetrics(clock, 60.0), "shop")
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def test_prometheus_is_asked_over_http() -> None:
    both = {**POD, **LABELS}
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [series(both, (START_S, "0.5"))]}}
    asked: list[Any] = []
    (pod,) = fetched(answer, asked=asked)
    assert pod.labels == {"app": "web"}
    assert len(pod.samples["app"]) == 2
    assert [query.count('namespace="shop"') for _, query in asked] == [1, 1, 0]
    assert {header for header, _ in asked} == {"Basic dTpw"}


def test_the_token_of_the_file_is_sent(tmp_path: Path) -> None:
    answer: dict[str, Any] = {"data": {"resultType": "matrix", "result": []}}
    file, asked = tmp_path / "token", list[Any]()
    file.write_text("\nfrom-file\n")
    fetched(answer, asked=asked, bearer_token="from-flag", bearer_token_file=str(file))
    assert {header for header, _ in asked} == {"Bearer from-file"}
    with pytest.raises(PrometheusError, match="--prometheus-bearer-token-file"):
        fetched(answer, bearer_token_file=str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("answer", "status", "problem"),
    [
        ({"status": "error", "error": "bad query"}, 400, "status 400"),
        ({"data": {"resultType": "vector", "result": []}}, 200, "got a vector, not a matrix"),
        ({"data": {"resultType": "matrix", "result": [{"metric": 5}]}}, 200, "cannot be read"),
    ],
)
def test_an_answer_that_is_none_is_said(answer: Any, status: int, problem: str) -> None:
    with pytest.raises(PrometheusError, match=problem):
        fetched(answer, status)
