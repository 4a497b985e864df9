"""A whole look at an autoscaler: replicas, conditions, events, in the words users know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.hpa.decision import (
    PodSelectionError,
    ScaleDecision,
    decide,
    metrics_wanted,
    unscalable,
    unselective,
)
from dovetail.autoscalers.hpa.limits import Past, ScaleHistory
from dovetail.autoscalers.hpa.proposal import Reading, go_text
from dovetail.autoscalers.hpa.readings import MetricSample, NoCount
from dovetail.autoscalers.hpa.spec import HorizontalPodAutoscaler, HpaFlags, ScaleSpec, ScaleStatus, ScaleView
from dovetail.model.pods import Pod
from dovetail.model.selector import LabelSelector

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = (NOW - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
ZERO = HpaFlags(scale_to_zero=True)


def asked(*metrics: dict[str, Any], **spec: Any) -> HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    status = spec.pop("status", {})
    body = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, "metrics": list(metrics)} | spec
    return msgspec.convert(
        {"metadata": {"name": "web", "namespace": "shop"}, "spec": body, "status": status}, HorizontalPodAutoscaler
    )


def cpu(target: int = 50) -> dict[str, Any]:
    wanted = {"type": "Utilization", "averageUtilization": target}
    return {"type": "Resource", "resource": {"name": "cpu", "target": wanted}}


def external(**target: Any) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}


def scale(replicas: int) -> ScaleView:
    return ScaleView(spec=ScaleSpec(replicas=replicas), status=ScaleStatus(replicas=replicas, selector="app=web"))


def pods(count: int) -> list[Pod]:
    return [
        msgspec.convert(
            {
                "metadata": {"name": f"web-{number}"},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]},
                "status": {
                    "phase": "Running",
                    "startTime": OLD,
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": OLD}],
                },
            },
            Pod,
        )
        for number in range(count)
    ]


def used(count: int, value: int) -> dict[str, MetricSample]:
    return {f"web-{number}": MetricSample(value, NOW, 15.0) for number in range(count)}


def look(
    autoscaler: HorizontalPodAutoscaler, replicas: int, *readings: Reading, settings: HpaFlags | None = None
) -> ScaleDecision:
    return decide(autoscaler, scale(replicas), readings, pods(replicas), ScaleHistory(), NOW, settings or HpaFlags())


def said(decision: ScaleDecision) -> list[tuple[str, str]]:
    return [(each.type, each.reason) for each in decision.status().conditions if each.status == "True"]


def test_too_much_load_adds_pods_and_says_so() -> None:
    decision = look(asked(cpu()), 1, used(1, 500)).rescaled(NOW, HpaFlags())
    assert decision.replicas == 4
    assert said(decision) == [
        ("AbleToScale", "SucceededRescale"),
        ("ScalingActive", "ValidMetricFound"),
        ("ScalingLimited", "ScaleUpLimit"),
    ]
    text = "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    assert [(each.type, each.reason, each.message) for each in decision.sayings] == [
        ("Normal", "SuccessfulRescale", text)
    ]
    status = decision.status()
    assert (status.current_replicas, status.desired_replicas, status.last_scale_time) == (1, 4, NOW)
    assert status.current_metrics == (
        {
            "type": "Resource",
            "resource": {"name": "cpu", "current": {"averageValue": "500m", "averageUtilization": 250}},
        },
    )


def test_outside_its_bounds_a_workload_is_not_measured() -> None:
    above, below = look(asked(cpu()), 12), look(asked(cpu(), minReplicas=3), 2)
    assert (above.replicas, above.reason) == (10, "Current number of replicas above Spec.MaxReplicas")
    assert (below.replicas, below.reason) == (3, "Current number of replicas below Spec.MinReplicas")


def test_no_metrics_leave_the_workload_as_it_is() -> None:
    decision = look(asked(cpu()), 2, NoCount("no metrics returned from resource metrics API"))
    problem = "failed to get cpu utilization: unable to get metrics for resource cpu: "
    problem += "no metrics returned from resource metrics API"
    assert decision.replicas is None
    assert decision.conditions[-1].message == f"the HPA was unable to compute the replica count: {problem}"
    assert [(each.reason, each.message) for each in decision.sayings] == [
        ("FailedGetResourceMetric", problem),
        (
            "FailedComputeMetricsReplicas",
            f"invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: {problem}",
        ),
    ]
    assert decision.status().current_metrics == ({"type": ""},)


def test_the_metric_that_wants_most_wins_and_a_failing_one_only_forbids_shrinking() -> None:
    broken = NoCount("no metrics returned from external metrics API")
    both = asked(cpu(), external(type="Value", value="10"))
    grown = look(both, 2, used(2, 200), broken)
    assert (grown.replicas, [each.reason for each in grown.sayings]) == (4, ["FailedGetExternalMetric"])
    same = look(both, 2, used(2, 100), broken)
    assert (same.replicas, same.conditions[1].reason) == (None, "ValidMetricFound")
    kept = look(both, 2, used(2, 10), broken)
    assert (kept.replicas, kept.conditions[-1].reason) == (None, "FailedGetExternalMetric")


@pytest.mark.parametrize(
    ("kind", "words"), [("Value", "object metric value: "), ("AverageValue", "object metric value: failed to get hits")]
)
def test_a_failing_metric_of_an_object_is_reported_by_the_target_that_its_type_names(kind: str, words: str) -> None:
    """Both amounts may be there; the type says which one counts."""
    about = {"apiVersion": "v1", "kind": "Service", "name": "web"}
    target = {"type": kind, "value": "5", "averageValue": "1"}
    metric = {"type": "Object", "object": {"describedObject": about, "metric": {"name": "hits"}, "target": target}}
    reported = look(asked(metric), 2, NoCount("no answer")).sayings[-1].message
    assert f"failed to get {words}" in reported
    assert ("failed to get hits object metric" in reported) == (kind == "AverageValue")


def test_of_equal_proposals_the_first_is_named_but_for_those_of_none() -> None:
    """As kube-controller-manager folds them: a proposal of zero gives way to the next one, also to another zero."""
    both = asked(external(type="Value", value="10"), cpu(), minReplicas=0)
    grown = look(both, 2, 20_000, used(2, 200))
    assert (grown.replicas, grown.reason) == (4, "external metric queue(nil) above target")
    named = look(both, 2, 0, used(2, 0)).conditions[1].message
    assert named.endswith("from cpu resource utilization (percentage of request)")


def test_a_metric_below_nothing_asks_for_no_pods_at_all() -> None:
    idle = asked(external(type="Value", value="10"), minReplicas=0)
    decision = decide(idle, scale(2), [-5_000], pods(2), ScaleHistory((Past(0, NOW),)), NOW, HpaFlags())
    assert (decision.replicas, decision.conditions[-1].reason) == (0, "DesiredWithinRange")


def test_a_workload_whose_pods_cannot_be_reported_is_remembered_as_it_was_first_seen() -> None:
    """Once its pods are known, it does not shrink at once."""
    decision = unselective(
        asked(cpu()), scale(5), PodSelectionError("SelectorRequired", "selector is required"), ScaleHistory(), NOW
    )
    assert decision.history.recommendations == (Past(5, NOW),)
    later = NOW + timedelta(minutes=4)
    again = decide(asked(cpu()), scale(5), [used(5, 1)], pods(5), decision.history, later, HpaFlags())
    assert again.replicas is None and ("AbleToScale", "ScaleDownStabilized") in said(again)


def test_an_external_value_per_pod_is_shared_out() -> None:
    decision = look(asked(external(type="AverageValue", averageValue="10")), 2, 35_000)
    assert (decision.replicas, decision.reason) == (4, "external metric queue(nil) above target")
    metrics = decision.status().current_metrics
    assert metrics is not None
    assert metrics[0]["external"]["current"] == {"averageValue": "17500m"}


def test_a_workload_put_to_zero_by_hand_stays_there() -> None:
    decision = look(asked(cpu()), 0)
    assert decision.replicas is None
    assert decision.conditions[-1].reason == "ScalingDisabled"


def test_a_workload_the_autoscaler_put_to_sleep_wakes_by_a_metric_from_outside() -> None:
    lazy = asked(external(type="Value", value="10"), minReplicas=0)
    idle = ScaleHistory((Past(0, NOW),))
    asleep = decide(lazy, scale(2), [0], pods(2), idle, NOW, ZERO)
    assert asleep.replicas == 0
    status = asleep.rescaled(NOW, ZERO).status()
    assert (status.conditions[-1].type, status.conditions[-1].status) == ("ScaledToZero", "True")
    later = msgspec.structs.replace(lazy, status=status)
    assert metrics_wanted(later, scale(0), ZERO)
    assert look(later, 0, 25_000, settings=ZERO).replicas == 3
    assert not metrics_wanted(later, scale(0), HpaFlags())


def test_a_condition_keeps_its_instant_until_its_answer_changes() -> None:
    first = look(asked(cpu()), 2, used(2, 100))
    autoscaler = msgspec.structs.replace(first.asked, status=first.status())
    later = decide(
        autoscaler, scale(2), [used(2, 100)], pods(2), ScaleHistory(), NOW + timedelta(minutes=1), HpaFlags()
    )
    assert {each.last_transition_time for each in later.conditions} == {NOW}


def test_a_tolerance_of_its_own_wins_over_the_flag() -> None:
    rules = {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "stabilizationWindowSeconds": 0}
    nervous = asked(cpu(), behavior={"scaleUp": rules | {"tolerance": "0"}, "scaleDown": rules})
    assert look(nervous, 2, used(2, 102)).replicas == 3
    assert look(asked(cpu()), 2, used(2, 102)).replicas is None


def test_a_target_without_scale_is_reported_and_nothing_else_changes() -> None:
    decision = unscalable(asked(cpu()), 'deployments.apps "web" not found', ScaleHistory(), NOW)
    assert decision.conditions[0].reason == "FailedGetScale"
    assert decision.sayings[0].message == 'deployments.apps "web" not found'


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, "nil"),
        (
            LabelSelector(match_labels={"a": "b"}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
        ),
    ],
)
def test_a_selector_is_named_as_go_prints_it(selector: LabelSelector | None, text: str) -> None:
    assert go_text(selector) == text
