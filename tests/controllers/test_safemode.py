"""Safe mode comes with its causes and ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.metrics.definitions import Metrics
from dovetail.controllers.nodepool.registration_health import RegistrationHealth
from dovetail.controllers.safemode import LAPSE_S, LAPSING, SafeMode, SafeModeCause
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Forbidden
from dovetail.model.kinds.nodeclaim import NodeClaim


def _run(scenario: Callable[[SafeMode, Metrics], None]) -> None:
    async def main() -> None:
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        metrics = Metrics(clock)
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
        scenario(SafeMode(clock, metrics, log), metrics)

    run_virtual(main())


def test_launches_must_fail_in_a_row_and_one_success_clears() -> None:
    def scenario(safety: SafeMode, metrics: Metrics) -> None:
        for _ in range(4):
            safety.launch(False, "no")
        assert not safety.safe_mode
        safety.launch(False, "no capacity")
        assert "no capacity" in safety.causes()[SafeModeCause.LAUNCHES_FAIL]
        assert b'dovetail_safe_mode{cause="launches-fail"} 1.0' in metrics.text()
        safety.launch(True)
        assert not safety.safe_mode
        assert b'dovetail_safe_mode{cause="launches-fail"} 0.0' in metrics.text()

    _run(scenario)


def test_an_old_view_and_many_unhealthy_nodes_stop_disruption() -> None:
    def scenario(safety: SafeMode, metrics: Metrics) -> None:
        safety.view(59.0)
        safety.health(unhealthy=1, total=2)
        safety.health(unhealthy=20, total=100)
        assert not safety.safe_mode
        safety.view(61.0, "pods: gone")
        safety.health(unhealthy=21, total=100)
        assert set(safety.causes()) == {SafeModeCause.STALE_VIEW, SafeModeCause.MANY_UNHEALTHY}
        safety.view(0.0)
        assert safety.safe_mode
        safety.health(0, 100)
        assert not safety.safe_mode

    _run(scenario)


def test_nodes_that_never_join_stop_disruption_until_they_do_again() -> None:
    def scenario(safety: SafeMode, metrics: Metrics) -> None:
        for joined in (True, False, False):
            safety.registration(joined)
        assert not safety.safe_mode
        safety.registration(False, "nodeclaim n of nodepool p")
        assert safety.causes() == {
            SafeModeCause.REGISTRATIONS_FAIL: "3 of the last 4 nodes never joined: nodeclaim n of nodepool p"
        }
        safety.registration(True)
        assert safety.safe_mode, "one that joined among three that did not is no proof"
        safety.registration(True)
        assert not safety.safe_mode

    _run(scenario)


@pytest.mark.parametrize("cause", sorted(LAPSING))
def test_a_cause_that_only_an_attempt_could_lift_lapses(cause: SafeModeCause) -> None:
    async def main() -> None:
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
        clock = Clock(asyncio.get_running_loop(), EPOCH)
        safety = SafeMode(clock, Metrics(clock), log)
        safety.set(cause, "seen once")
        await asyncio.sleep(LAPSE_S / 2)
        safety.set(cause, "and again")
        await asyncio.sleep(LAPSE_S - 1)
        safety.review()
        assert safety.safe_mode
        await asyncio.sleep(2)
        safety.review()
        assert not safety.safe_mode

    run_virtual(main())


def test_safe_mode_is_published_on_nodepools_recorded_and_shown_by_readiness(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: Any) -> None:
        await world.pool()
        world.start()
        await asyncio.sleep(10)
        scaler = world.autoscaler
        scaler.safety.set(SafeModeCause.BROKEN_INVARIANT, "a plan broke a rule")
        await asyncio.sleep(10)
        assert scaler.remarks() == ["safe mode, broken-invariant: a plan broke a rule"]
        assert scaler.problems() == [], "pods still get nodes"
        await asyncio.sleep(LAPSE_S)
        assert not scaler.safety.safe_mode
        events = [event for event in await world.list(kinds.CORE_EVENTS) if event["reason"] == "SafeMode"]
        assert {event["involvedObject"]["kind"] for event in events} == {"NodePool"}
        assert [each["message"] for each in sorted(events, key=lambda each: each["firstTimestamp"])] == [
            "Voluntary disruption has stopped: broken-invariant: a plan broke a rule",
            "Voluntary disruption resumes",
        ]
        published = [
            (decision.kind, decision.reason)
            for decision in scaler.decision_history.decisions()
            if decision.kind == "safe-mode"
        ]
        assert published == [("safe-mode", "broken-invariant"), ("safe-mode", "")]

    run_scenario(scenario)


def test_a_forbidden_watch_stops_disruption_until_it_works_again(run_scenario: Callable[..., None]) -> None:
    async def scenario(world: Any) -> None:
        world.start()
        await asyncio.sleep(10)
        scaler, refusal = world.autoscaler, Forbidden(403, "Forbidden", "pods is forbidden")
        refusal.request = "GET /api/v1/pods"  # as the client notes it
        scaler.cluster_state.pods.failure = refusal
        await asyncio.sleep(6)
        assert "pods is forbidden" in scaler.safety.causes()[SafeModeCause.NOT_AUTHORISED]
        assert scaler.problems() == ["not-authorised: GET /api/v1/pods: 403 Forbidden: pods is forbidden"]
        await world.pods(1)  # the watch is heard again
        await asyncio.sleep(6)
        assert not scaler.safety.safe_mode

    run_scenario(scenario)


def _claim(**labels: Any) -> NodeClaim:
    return msgspec.convert({"metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"}}}, NodeClaim)


def test_two_failures_of_four_make_a_nodepool_unhealthy() -> None:
    health = RegistrationHealth()
    assert health.status("default") is None
    health.note(_claim(), True)
    health.note(_claim(), False)
    assert health.status("default") is True
    health.note(_claim(), False)
    assert health.status("default") is False
    assert health.why("default") == ("RegistrationFailed", "Failed to register node")
    for _ in range(3):
        health.note(_claim(), True)
    assert health.status("default") is True
    health.reset("default")
    assert health.status("default") is None
