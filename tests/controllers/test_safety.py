"""Safe mode comes with its causes and ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.controllers.health import RegistrationHealth
from dovetail.controllers.metrics import Metrics
from dovetail.controllers.safety import Cause, Safety
from dovetail.model.kinds.nodeclaim import NodeClaim


def _run(story: Callable[[Safety, Metrics], None]) -> None:
    async def main() -> None:
        metrics = Metrics()
        log = structlog.wrap_logger(structlog.testing.CapturingLogger())
        story(Safety(Clock(asyncio.get_running_loop(), EPOCH), metrics, log), metrics)

    run_virtual(main())


def test_launches_must_fail_in_a_row_and_one_success_clears() -> None:
    def story(safety: Safety, metrics: Metrics) -> None:
        for _ in range(4):
            safety.launch(False, "no")
        assert not safety.safe_mode
        safety.launch(False, "no capacity")
        assert "no capacity" in safety.causes()[Cause.LAUNCHES_FAIL]
        assert b'dovetail_safe_mode{cause="launches-fail"} 1.0' in metrics.text()
        safety.launch(True)
        assert not safety.safe_mode
        assert b'dovetail_safe_mode{cause="launches-fail"} 0.0' in metrics.text()

    _run(story)


def test_an_old_view_and_many_unhealthy_machines_stop_disruption() -> None:
    def story(safety: Safety, metrics: Metrics) -> None:
        safety.view(59.0)
        safety.health(unhealthy=1, total=2)
        safety.health(unhealthy=20, total=100)
        assert not safety.safe_mode
        safety.view(61.0, "pods: gone")
        safety.health(unhealthy=21, total=100)
        assert set(safety.causes()) == {Cause.STALE_VIEW, Cause.MANY_UNHEALTHY}
        safety.view(0.0)
        assert safety.safe_mode
        safety.health(0, 100)
        assert not safety.safe_mode

    _run(story)


def _claim(**labels: Any) -> NodeClaim:
    return msgspec.convert({"metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"}}}, NodeClaim)


def test_two_failures_of_four_make_a_pool_unhealthy() -> None:
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
