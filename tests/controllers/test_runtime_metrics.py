"""Metrics of the controllers themselves, and log lines that name their reconciliation."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers import logs
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.metrics.effective_zones import effective_zone
from dovetail.controllers.metrics.loop_lag import measure_lag
from dovetail.controllers.metrics.runtime import address_of
from dovetail.controllers.worker import Worker, every, reconcile_ids
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Disconnected
from dovetail.kube.events import EventRecorder, InvolvedObject
from dovetail.kube.transport import Request
from dovetail.model.pods import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
)

RunScenario = Callable[..., None]
ZONE = "topology.kubernetes.io/zone"


def _value(text: str, name: str, /, **labels: str) -> float:
    """The value of the one series of that name with these labels."""
    values = [
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if re.match(rf"{name}[{{ ]", line) and all(f'{key}="{value}"' in line for key, value in labels.items())
    ]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def test_api_calls_queues_and_reconciliations_are_counted(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(2)
        await asyncio.sleep(10)
        text = world.autoscaler.metrics.text().decode()
        assert _value(text, "client_go_request_total", code="201", method="POST") >= 3
        assert _value(text, "rest_client_requests_total", code="201", method="POST") >= 3
        claims = {"verb": "POST", "group": "karpenter.sh", "version": "v1", "kind": "nodeclaims"}
        assert _value(text, "client_go_request_duration_seconds_count", **claims) == 1
        bindings = {"verb": "POST", "kind": "pods", "subresource": "binding"}
        assert _value(text, "client_go_request_duration_seconds_count", **bindings) == 2
        lifecycle = {"controller": "nodeclaim.lifecycle"}
        assert _value(text, "workqueue_adds_total", **lifecycle) > 2
        assert _value(text, "workqueue_depth", **lifecycle) == 0
        assert _value(text, "controller_runtime_reconcile_total", result="success", **lifecycle) > 2
        assert _value(text, "controller_runtime_max_concurrent_reconciles", **lifecycle) == 100
        assert _value(text, "controller_runtime_reconcile_total", result="success", controller="provisioner") >= 1
        assert _value(text, "leader_election_master_status", name="karpenter-leader-election") == 1
        assert _value(text, "dovetail_history_write_failures_total") == 0

    run_scenario(scenario)


def test_a_failing_reconciliation_is_counted_and_logged_with_its_id_and_object() -> None:
    lines: list[dict[str, Any]] = []

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        metrics = Metrics(clock)
        log = logs.logger(clock, lambda line: lines.append(json.loads(line)))

        async def reconcile(name: str) -> None:
            log.info("looked at it")
            raise Disconnected("no answer") if name == "a" else RuntimeError("a defect")

        worker = Worker(
            "nodeclaim.lifecycle", reconcile, log, Chance(1), base=100.0, resource=kinds.NODECLAIMS, metrics=metrics
        )
        running = asyncio.create_task(worker.run())
        worker.add("a")
        worker.add("b")
        await asyncio.sleep(1)
        running.cancel()
        text = metrics.text().decode()
        controller = {"controller": "nodeclaim.lifecycle"}
        assert _value(text, "controller_runtime_reconcile_errors_total", **controller) == 2
        assert _value(text, "controller_runtime_reconcile_panics_total", **controller) == 1
        assert _value(text, "workqueue_retries_total", **controller) == 2

    run_virtual(main())
    for name in ("a", "b"):
        looked, failed = (line for line in lines if line["name"] == name)
        assert looked["reconcileID"] == failed["reconcileID"] != ""
        for line in (looked, failed):
            assert (line["controller"], line["controllerGroup"]) == ("nodeclaim.lifecycle", "karpenter.sh")
            assert (line["controllerKind"], line["NodeClaim"], line["namespace"]) == ("NodeClaim", {"name": name}, "")
    assert len({line["reconcileID"] for line in lines}) == 2
    assert [("a defect" in line["exception"]) for line in lines if "exception" in line] == [True]


def test_the_counters_of_a_controller_begin_at_zero() -> None:
    """A series that appears with its first failure has no rate then, and an alert on it stays silent."""

    async def main() -> str:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        metrics = Metrics(clock)

        async def nothing(_: str) -> None:
            return None

        Worker("disruption", nothing, logs.logger(clock, lambda _: None), Chance(1), metrics=metrics)
        return metrics.text().decode()

    text = run_virtual(main())
    for name in ("controller_runtime_reconcile_errors_total", "controller_runtime_reconcile_panics_total"):
        assert _value(text, name, controller="disruption") == 0.0
    for result in ("success", "error"):
        assert _value(text, "controller_runtime_reconcile_total", controller="disruption", result=result) == 0.0


def test_work_under_way_has_an_age() -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        metrics = Metrics(clock)

        async def reconcile(name: str) -> None:
            await asyncio.sleep(100)

        worker = Worker("c", reconcile, logs.logger(clock, lambda _: None), Chance(1), metrics=metrics, workers=2)
        running = asyncio.create_task(worker.run())
        for name in ("a", "b", "c"):
            worker.add(name)
        await asyncio.sleep(7)
        text = metrics.text().decode()
        running.cancel()
        assert _value(text, "workqueue_depth", controller="c") == 1
        assert _value(text, "workqueue_unfinished_work_seconds", controller="c") == 14
        assert _value(text, "workqueue_longest_running_processor_seconds", controller="c") == 7
        assert _value(text, "controller_runtime_active_workers", controller="c") == 2

    run_virtual(main())


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", (), ("LIST", "", "v1", "pods", "")),
        ("GET", "/api/v1/pods", (("watch", "1"),), ("WATCH", "", "v1", "pods", "")),
        ("GET", "/api/v1/namespaces/default/pods/p", (), ("GET", "", "v1", "pods", "")),
        ("POST", "/api/v1/namespaces/default/pods/p/eviction", (), ("POST", "", "v1", "pods", "eviction")),
        ("PATCH", "/apis/g.sh/v1/nodeclaims/n/status", (), ("PATCH", "g.sh", "v1", "nodeclaims", "status")),
        ("GET", "/version", (), ("LIST", "", "", "version", "")),
    ],
)
def test_the_address_of_a_request(
    method: str, path: str, query: tuple[tuple[str, str], ...], expected: tuple[str, ...]
) -> None:
    assert address_of(Request(method=method, path=path, query=query)) == expected


def test_a_request_without_an_answer_is_counted_as_an_error() -> None:
    async def main() -> None:
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        metrics.runtime.observe_request(Request(method="GET", path="/api/v1/nodes"), Disconnected("broken"), 1.0)
        assert _value(metrics.text().decode(), "rest_client_requests_total", code="<error>") == 1

    run_virtual(main())


def test_events_that_are_too_many_are_counted(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        metrics = Metrics(world.clock)
        recorder = EventRecorder(world.kube, "c", burst=1, on_drop=metrics.runtime.events_dropped.inc)
        assert recorder.record(InvolvedObject("Node", "n"), "Normal", "R", "m")
        assert not recorder.record(InvolvedObject("Node", "n"), "Normal", "R", "m")
        assert _value(metrics.text().decode(), "dovetail_events_dropped_total") == 1

    run_scenario(scenario)


def test_a_loop_that_is_held_up_shows_as_lag() -> None:
    async def main() -> None:
        metrics = Metrics(Clock(asyncio.get_running_loop(), EPOCH))
        measuring = asyncio.create_task(measure_lag(metrics.runtime.loop_lag))
        await asyncio.sleep(3.5)
        measuring.cancel()
        text = metrics.text().decode()
        assert _value(text, "dovetail_loop_lag_seconds_count") == 3
        assert _value(text, "dovetail_loop_lag_seconds_sum") == 0

    run_virtual(main())


def _pod(selected: str | None, *terms: tuple[str, tuple[str, ...]]) -> Pod:
    made = tuple(
        NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=ZONE, operator=operator, values=values),))
        for operator, values in terms
    )
    affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=made))) if made else None
    return Pod(spec=PodSpec(node_selector={ZONE: selected} if selected else {}, affinity=affinity))


@pytest.mark.parametrize(
    ("pod", "zone"),
    [
        (_pod(None), "flexible"),
        (_pod("a"), "a"),
        (_pod(None, ("In", ("a",))), "a"),
        (_pod(None, ("In", ("a", "b"))), "flexible"),
        (_pod("a", ("In", ("b",))), "none"),
        (_pod("a", ("NotIn", ("a",))), "none"),
        (_pod(None, ("In", ("a",)), ("In", ("b",))), "flexible"),
        (_pod(None, ("In", ("a",)), ("Exists", ())), "flexible"),
    ],
)
def test_the_zone_a_pod_is_confined_to(pod: Pod, zone: str) -> None:
    assert effective_zone(pod) == zone


def test_a_nodeclaim_is_registered_and_initialized_in_one_line_each_though_a_write_conflicts(
    run_scenario: RunScenario,
) -> None:
    """The status write of a registration is refused once: the line used to be written by every attempt."""

    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        send = world.transport.send
        touched: list[str] = []

        async def conflicting(request: Request) -> Any:
            if request.path.endswith("/status") and "nodeclaims" in request.path:
                name, body = request.path.split("/")[-2], json.loads(request.body)
                steps = [each["type"] for each in body["status"].get("conditions", ()) if each["status"] == "True"]
                if steps and steps != touched:
                    touched[:] = steps
                    await world.kube.patch(kinds.NODECLAIMS, name, {"metadata": {"annotations": {"t": str(steps)}}})
            return await send(request)

        world.transport.send = conflicting
        await world.pods(3)
        await world.until(world.all_bound)
        await asyncio.sleep(20)
        assert "Initialized" in touched
        for message in ("launched nodeclaim", "registered nodeclaim", "initialized nodeclaim", "placed pod(s)"):
            assert len(world.logged(message)) == 1, message
        (placed,) = world.logged("placed pod(s)")
        assert (placed["planned"], placed["bound"]) == (3, 3)
        (registered,) = world.logged("registered nodeclaim")
        assert registered["controllerKind"] == "NodeClaim" and registered["reconcileID"]

    run_scenario(scenario)


def test_an_html_error_page_is_logged_by_its_title() -> None:
    page = "<html><head><title>502 Bad Gateway</title></head><body>" + "x" * 500 + "</body></html>"
    lines: list[dict[str, Any]] = []

    async def main() -> None:
        log = logs.logger(Clock(asyncio.get_running_loop(), EPOCH), lambda line: lines.append(json.loads(line)))
        log.error("failed", error=f"an error occurred: {page}", other="y" * 500)

    run_virtual(main())
    assert lines[0]["error"] == "an error occurred: [HTML page: 502 Bad Gateway]"
    assert lines[0]["other"] == "y" * 500


def test_log_lines_of_a_periodic_controller_carry_an_id_for_each_call() -> None:
    lines: list[dict[str, Any]] = []

    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        log = logs.logger(clock, lambda line: lines.append(json.loads(line)))

        async def look() -> None:
            log.info("looked")
            if len(lines) > 2:
                raise Disconnected("the API server is gone")

        await every(10.0, look, "garbagecollection", log, reconcile_ids(Chance(7), "garbagecollection"), times=3)
        log.info("afterwards")

    run_virtual(main())
    *called, afterwards = lines
    assert [line["message"] for line in called] == ["looked", "looked", "looked", "Reconciler error"]
    assert {line["controller"] for line in called} == {"garbagecollection"}
    first, second, third, failed = (line["reconcileID"] for line in called)
    assert len({first, second, third}) == 3 and third == failed and all(map(len, (first, second, third)))
    assert "reconcileID" not in afterwards
