"""HPAs over time: every change of a figure is a point, and what is not measured is unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dovetail.kube.reflector import CacheChange
from dovetail.view.scaling import MAX_POINTS_PER_HPA, ScalingLog
from dovetail.web.series import scaling_chart


def an_hpa(replicas: int, used: int | None) -> dict[str, Any]:
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}
    pods = {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "1500m"}}
    measured = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"metrics": [{"type": "Resource", "resource": resource}, {"type": "Pods", "pods": pods}]},
        "status": {
            "currentReplicas": replicas,
            "desiredReplicas": replicas + 1,
            "currentMetrics": measured if used is not None else None,
            "conditions": [{"type": "AbleToScale", "status": "True"}],
        },
    }


def take(log: ScalingLog, obj: dict[str, Any] | None, second: float) -> None:
    log.take(CacheChange("modified", "shop/web", an_hpa(0, 0) if obj is None else None, obj), second)


def test_replicas_and_metrics_stand_beside_what_is_wanted() -> None:
    log = ScalingLog()
    for second, obj in enumerate((an_hpa(1, None), an_hpa(1, 90), an_hpa(1, 90), an_hpa(2, 60))):
        take(log, obj, float(second))
    assert [point.time for point in log.of("shop/web")] == [0.0, 1.0, 3.0]
    drawn = scaling_chart(log.of("shop/web"), datetime.fromtimestamp(9, UTC))
    assert drawn["time"] == [0.0, 1.0, 3.0, 9.0]
    assert (drawn["replicas"], drawn["desired"]) == ([1, 1, 2, 2], [2, 2, 3, 3])
    assert (drawn["used0"], drawn["target0"]) == ([None, 90.0, 60.0, 60.0], [70.0] * 4)
    assert (drawn["used1"], drawn["target1"]) == ([None] * 4, [1.5] * 4)


def test_points_are_bounded_and_go_with_their_hpa() -> None:
    log = ScalingLog()
    for second in range(3 * MAX_POINTS_PER_HPA):
        take(log, an_hpa(second, 50), float(second))
    points = log.of("shop/web")
    assert len(points) <= MAX_POINTS_PER_HPA and points[-1].replicas == 3 * MAX_POINTS_PER_HPA - 1
    assert [point.time for point in points] == sorted(point.time for point in points)
    take(log, None, 1.0)
    assert list(log.of("shop/web")) == []
    assert scaling_chart((), datetime.fromtimestamp(9, UTC))["time"] == []


def test_the_zeros_of_an_hpa_that_no_controller_has_seen_are_unknown() -> None:
    new = {**an_hpa(0, None), "status": {"currentReplicas": 0, "desiredReplicas": 0}}
    log = ScalingLog()
    take(log, new, 0.0)
    assert [(point.replicas, point.desired) for point in log.of("shop/web")] == [(None, None)]
