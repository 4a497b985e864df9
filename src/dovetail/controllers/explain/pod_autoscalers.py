"""Horizontal and Vertical Pod Autoscalers: what they want, and why they do not do it. From their status and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.controllers.explain.answer import Answer, Event, about_object, condition_line, event_lines
from dovetail.model.pod_autoscalers import conflicting_resources

Json = Mapping[str, Any]


def _condition(obj: Json, kind: str) -> Json:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _conditions(obj: Json) -> list[str]:
    return [condition_line(condition) for condition in (obj.get("status") or {}).get("conditions") or ()]


def _conflict(own: Json, other: Json) -> str:
    """How an HPA and a VPA on one workload move against each other; "" if they do not."""
    hpa_object, vpa_object = (own, other) if own.get("kind") == "HorizontalPodAutoscaler" else (other, own)
    shared = conflicting_resources(hpa_object, vpa_object)
    if not shared:
        return ""
    metadata = other.get("metadata") or {}
    kind = "vpa" if other is vpa_object else "hpa"
    return (
        f"moves against {kind}/{metadata.get('namespace')}/{metadata.get('name')}: the HPA holds a percentage of the"
        f" {' and '.join(shared)} requests that the VPA changes"
    )


#: What to do about an HPA and a VPA that act on one resource.
_SEPARATE = "give the HPA an averageValue, or leave the resource out of the VPA's controlledResources"


def _conflicts(own: Json, others: Sequence[Json]) -> list[str]:
    return [text for text in (_conflict(own, other) for other in others) if text]


def _recommendation_line(recommendation: Json) -> str:
    lower, upper, uncapped = (
        _amounts(recommendation.get(field) or {}) for field in ("lowerBound", "upperBound", "uncappedTarget")
    )
    return f"container {recommendation.get('containerName')}: from {lower} to {upper}, uncapped {uncapped}"


def hpa(obj: Json, events: Sequence[Event] = (), vpas: Sequence[Json] = ()) -> Answer:
    """Why a workload has as many replicas as it has. `vpas` are those of its namespace."""
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    key = f"{metadata.get('namespace')}/{metadata.get('name')}"
    target = spec.get("scaleTargetRef") or {}
    what = f"{str(target.get('kind', '')).lower()}/{target.get('name')}"
    current, desired = status.get("currentReplicas") or 0, status.get("desiredReplicas") or 0
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    able, active, limited = (_condition(obj, type_) for type_ in ("AbleToScale", "ScalingActive", "ScalingLimited"))
    remedy, blamed = "", ""
    if able.get("status") == "False":
        line = f"cannot scale {what}: {_said(able)}"
        remedy, blamed = "see that the target exists and may be scaled", what
    elif active.get("status") == "False":
        line = f"keeps {what} at {current} replicas: no metric can be read: {_said(active)}"
        if active.get("reason") == "ScalingDisabled":
            line = f"is off: {what} has 0 replicas"
            remedy, blamed = "scale the target to at least 1", what
        elif "request" in str(active.get("message")):
            remedy, blamed = "give every container of the target a cpu or memory request", what
        else:
            remedy, blamed = "see that the metrics server answers: kubectl top pods", f"hpa/{key}"
    elif not status.get("conditions"):
        line = "has not been reconciled: no controller has written its status"
    elif limited.get("status") == "True":
        at_most = limited.get("reason") in ("TooManyReplicas",)
        bound = (
            f"maxReplicas {most}"
            if at_most
            else f"minReplicas {least}"
            if limited.get("reason") == "TooFewReplicas"
            else "its behavior"
        )
        line = f"keeps {what} at {desired} replicas: limited by {bound}"
        remedy, blamed = (f"raise maxReplicas above {most}", f"hpa/{key}") if at_most else ("", "")
    elif current != desired:
        line = f"scales {what} from {current} to {desired} replicas"
    else:
        line = f"keeps {what} at {current} replicas: {_said(able) or 'its metrics are at their targets'}"
    conflicts = _conflicts(obj, vpas)
    if conflicts:
        line = f"{line}; it {conflicts[0]}"
        remedy, blamed = remedy or _SEPARATE, blamed or f"hpa/{key}"
    return Answer(
        subject=f"hpa/{key}",
        line=line + (f"; {remedy}" if remedy else ""),
        object=blamed,
        remedy=remedy,
        details=(f"minReplicas {least}, maxReplicas {most}", *_metrics(spec, status), *conflicts, *_conditions(obj)),
        deep=tuple(event_lines(about_object(events, "HorizontalPodAutoscaler", key))),
        facts={"current": current, "desired": desired, "min": least, "max": most, "target": what},
    )


def _said(condition: Json) -> str:
    return str(condition.get("message") or condition.get("reason") or "")


def _metrics(spec: Json, status: Json) -> list[str]:
    """Each metric: its value now, and its target."""
    current = list(status.get("currentMetrics") or ())
    metrics = []
    for number, metric in enumerate(spec.get("metrics") or ()):
        kind = str(metric.get("type", ""))
        body = metric.get(kind[:1].lower() + kind[1:]) or {}
        name = body.get("name") or (body.get("metric") or {}).get("name") or kind
        target = body.get("target") or {}
        now: Json = {}
        if number < len(current):
            there = current[number] or {}
            now = (there.get(kind[:1].lower() + kind[1:]) or {}).get("current") or {}
        metrics.append(f"metric {name}: {_value(now) or 'unknown'} now, target {_value(target) or 'unknown'}")
    return metrics


def _value(amounts: Json) -> str:
    if amounts.get("averageUtilization") is not None:
        return f"{amounts['averageUtilization']}%"
    return str(amounts.get("averageValue") or amounts.get("value") or "")


def vpa(
    obj: Json,
    pods: int | None = None,
    min_replicas: int = 2,
    events: Sequence[Event] = (),
    hpas: Sequence[Json] = (),
) -> Answer:
    """What a VPA recommends, and why it is not applied.

    `pods` are those that its target has, if that is known; `hpas` are those of its namespace.
    """
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    key = f"{metadata.get('namespace')}/{metadata.get('name')}"
    policy = spec.get("updatePolicy") or {}
    mode = policy.get("updateMode", "Auto")
    least = policy.get("minReplicas") or min_replicas
    recommended = (status.get("recommendation") or {}).get("containerRecommendations") or ()
    unsupported, unmatched = _condition(obj, "ConfigUnsupported"), _condition(obj, "NoPodsMatched")
    target = spec.get("targetRef") or {}
    what = f"{str(target.get('kind', '')).lower()}/{target.get('name')}"
    advice = "; ".join(
        f"{recommendation.get('containerName')}: {_amounts(recommendation.get('target') or {})}"
        for recommendation in recommended
    )
    remedy = ""
    if unsupported.get("status") == "True":
        line, remedy = f"does nothing: {_said(unsupported)}", "correct spec.targetRef"
    elif unmatched.get("status") == "True" or pods == 0:
        line, remedy = f"matches no pod of {what}", "see that the target exists and has pods"
    elif not recommended:
        provided = _condition(obj, "RecommendationProvided")
        line = f"has no recommendation yet{': ' + _said(provided) if provided else ''}"
        remedy = "see that vpa-recommender runs and the metrics server answers: kubectl top pods"
    elif mode == "Off":
        line, remedy = (
            f"recommends {advice}; not applied, because updateMode is Off",
            "set spec.updatePolicy.updateMode",
        )
    elif mode == "Initial":
        line = f"recommends {advice}; applied only to new pods, because updateMode is Initial"
    elif pods is not None and pods < least:
        line = f"recommends {advice}; not applied to running pods: {pods} replica(s), fewer than minReplicas {least}"
        remedy = f"run {least} replicas, or set spec.updatePolicy.minReplicas: {pods}"
    else:
        line = f"recommends {advice}; pods are updated where they differ enough"
    conflicts = _conflicts(obj, hpas)
    if conflicts:
        line, remedy = f"{line}; it {conflicts[0]}", remedy or _SEPARATE
    return Answer(
        subject=f"vpa/{key}",
        line=line + (f"; {remedy}" if remedy else ""),
        object=f"vpa/{key}" if remedy else "",
        remedy=remedy,
        details=(
            f"updateMode {mode}; target {what}",
            *conflicts,
            *map(_recommendation_line, recommended),
            *_conditions(obj),
        ),
        deep=tuple(event_lines(about_object(events, "VerticalPodAutoscaler", key))),
        facts={"updateMode": mode, "recommendation": list(recommended), "pods": pods, "minReplicas": least},
    )


def _amounts(amounts: Json) -> str:
    return " ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"
