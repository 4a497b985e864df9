"""Horizontal and Vertical Pod Autoscalers: what they want, and why they do not do it. From their status and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.controllers.explain.answer import Answer, Event, about_object, condition_text, event_lines
from dovetail.language import message, plural, source
from dovetail.model.pod_autoscalers import conflicting_resources

Json = Mapping[str, Any]


def _condition(obj: Json, kind: str) -> Json:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def _conditions(obj: Json) -> list[str]:
    return [condition_text(condition) for condition in (obj.get("status") or {}).get("conditions") or ()]


def _conflict(hpa_object: Json, vpa_object: Json, other: str) -> str:
    """How an HPA and a VPA on one workload move against each other; "" if they do not. `other` is the one to name."""
    shared = conflicting_resources(hpa_object, vpa_object)
    if not shared:
        return ""
    metadata = (vpa_object if other == "vpa" else hpa_object).get("metadata") or {}
    return message(
        "moves against {kind}/{namespace}/{name}: the HPA holds a percentage of the {shared} "
        "requests that the VPA changes",
        kind=other,
        namespace=metadata.get("namespace"),
        name=metadata.get("name"),
        shared=" and ".join(shared),
    )


#: What the API server says where metrics-server is not registered, or does not answer.
_NOT_SERVED = ("could not find the requested resource", "currently unable to handle the request")
#: What to do about an HPA and a VPA that act on one resource.
_SEPARATE = source("give the HPA an averageValue, or leave the resource out of the VPA's controlledResources")


def hpa(obj: Json, events: Sequence[Event] = (), vpas: Sequence[Json] = ()) -> Answer:
    """Why a workload has as many replicas as it has. `vpas` are those of its namespace."""
    metadata, spec, status = obj.get("metadata") or {}, obj.get("spec") or {}, obj.get("status") or {}
    key = f"{metadata.get('namespace')}/{metadata.get('name')}"
    target = spec.get("scaleTargetRef") or {}
    what = f"{str(target.get('kind', '')).lower()}/{target.get('name')}"
    current, desired = status.get("currentReplicas") or 0, status.get("desiredReplicas") or 0
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    line, remedy, blamed = _scaling(obj, what, key)
    conflicts = [text for vpa_object in vpas if (text := _conflict(obj, vpa_object, "vpa"))]
    if conflicts:
        line = message("{line}; it {conflict}", line=line, conflict=conflicts[0])
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


def _scaling(obj: Json, what: str, key: str) -> tuple[str, str, str]:
    """What the HPA does with its target `what`: the line, the remedy, and the object to change."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    current, desired = status.get("currentReplicas") or 0, status.get("desiredReplicas") or 0
    least, most = spec.get("minReplicas", 1), spec.get("maxReplicas")
    able, active, limited = (
        _condition(obj, condition_type) for condition_type in ("AbleToScale", "ScalingActive", "ScalingLimited")
    )
    remedy, blamed = "", ""
    if able.get("status") == "False":
        line = message("cannot scale {what}: {said}", what=what, said=_said(able))
        remedy, blamed = message("see that the target exists and may be scaled"), what
    elif active.get("status") == "False":
        line, remedy, blamed = _without_metrics(active, what, current, f"hpa/{key}")
    elif not status.get("conditions"):
        line = message("has not been reconciled: no controller has written its status")
    elif limited.get("status") == "True":
        at_most = limited.get("reason") in ("TooManyReplicas",)
        bound = (
            f"maxReplicas {most}"
            if at_most
            else f"minReplicas {least}"
            if limited.get("reason") == "TooFewReplicas"
            else message("its behavior")
        )
        line = plural(
            "keeps {what} at {n} replica: limited by {bound}",
            "keeps {what} at {n} replicas: limited by {bound}",
            n=desired,
            what=what,
            bound=bound,
        )
        remedy, blamed = (message("raise maxReplicas above {most}", most=most), f"hpa/{key}") if at_most else ("", "")
    elif current != desired:
        line = message(
            "scales {what} from {current} to {desired} replicas", what=what, current=current, desired=desired
        )
    else:
        line = plural(
            "keeps {what} at {n} replica: {said}",
            "keeps {what} at {n} replicas: {said}",
            n=current,
            what=what,
            said=_said(able) or message("its metrics are at their targets"),
        )
    return line, remedy, blamed


def _without_metrics(active: Json, target: str, current: int, subject: str) -> tuple[str, str, str]:
    """ScalingActive is False: its line, the remedy, and the object to change."""
    if active.get("reason") == "ScalingDisabled":
        return message("is off: {what} has 0 replicas", what=target), message("scale the target to at least 1"), target
    line = plural(
        "keeps {what} at {n} replica: no metric can be read: {said}",
        "keeps {what} at {n} replicas: no metric can be read: {said}",
        n=current,
        what=target,
        said=_said(active),
    )
    if "missing request for" in str(active.get("message")):
        return line, message("give every container of the target a cpu or memory request"), target
    if active.get("reason") in ("FailedGetPodsMetric", "FailedGetObjectMetric", "FailedGetExternalMetric"):
        return line, message("install an adapter that serves this metric, or correct its name"), subject
    if any(text in str(active.get("message")) for text in _NOT_SERVED):
        remedy = message("dovetail doctor --only D20 says what is wrong with the metrics server")
        return line, remedy, "apiservice/v1beta1.metrics.k8s.io"
    return line, message("see that the metrics server answers: kubectl top pods"), subject


def _said(condition: Json) -> str:
    return str(condition.get("message") or condition.get("reason") or "")


def _metrics(spec: Json, status: Json) -> list[str]:
    """Each metric: its value now, and its target."""
    current = list(status.get("currentMetrics") or ())
    texts = []
    for number, metric in enumerate(spec.get("metrics") or ()):
        kind = str(metric.get("type", ""))
        body = metric.get(kind[:1].lower() + kind[1:]) or {}
        name = body.get("name") or (body.get("metric") or {}).get("name") or kind
        target = body.get("target") or {}
        now: Json = {}
        if number < len(current):
            there = current[number] or {}
            now = (there.get(kind[:1].lower() + kind[1:]) or {}).get("current") or {}
        texts.append(
            message(
                "metric {name}: {value} now, target {value_2}",
                name=name,
                value=_value(now) or message("unknown"),
                value_2=_value(target) or message("unknown"),
            )
        )
    return texts


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
    target = spec.get("targetRef") or {}
    what = f"{str(target.get('kind', '')).lower()}/{target.get('name')}"
    line, remedy = _applied(obj, what, pods, least)
    conflicts = [text for hpa_object in hpas if (text := _conflict(hpa_object, obj, "hpa"))]
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
            *(
                message(
                    "container {containerName}: from {amounts} to {amounts_2}, uncapped {amounts_3}",
                    containerName=recommendation.get("containerName"),
                    amounts=_amounts(recommendation.get("lowerBound") or {}),
                    amounts_2=_amounts(recommendation.get("upperBound") or {}),
                    amounts_3=_amounts(recommendation.get("uncappedTarget") or {}),
                )
                for recommendation in recommended
            ),
            *_conditions(obj),
        ),
        deep=tuple(event_lines(about_object(events, "VerticalPodAutoscaler", key))),
        facts={"updateMode": mode, "recommendation": list(recommended), "pods": pods, "minReplicas": least},
    )


def _applied(obj: Json, what: str, pods: int | None, least: int) -> tuple[str, str]:
    """What a VPA recommends for the target `what` and whether it is applied, with the remedy where it is not."""
    mode = ((obj.get("spec") or {}).get("updatePolicy") or {}).get("updateMode", "Auto")
    recommended = ((obj.get("status") or {}).get("recommendation") or {}).get("containerRecommendations") or ()
    unsupported, unmatched = _condition(obj, "ConfigUnsupported"), _condition(obj, "NoPodsMatched")
    advice = "; ".join(
        f"{recommendation.get('containerName')}: {_amounts(recommendation.get('target') or {})}"
        for recommendation in recommended
    )
    remedy = ""
    if unsupported.get("status") == "True":
        line, remedy = message("does nothing: {said}", said=_said(unsupported)), message("correct spec.targetRef")
    elif unmatched.get("status") == "True" or pods == 0:
        line, remedy = (
            message("matches no pod of {what}", what=what),
            message("see that the target exists and has pods"),
        )
    elif not recommended:
        provided = _condition(obj, "RecommendationProvided")
        line = message("has no recommendation yet{value}", value=": " + _said(provided) if provided else "")
        remedy = message("see that vpa-recommender runs and the metrics server answers: kubectl top pods")
    elif mode == "Off":
        line, remedy = (
            message("recommends {advice}; not applied, because updateMode is Off", advice=advice),
            message("set spec.updatePolicy.updateMode"),
        )
    elif mode == "Initial":
        line = message("recommends {advice}; applied only to new pods, because updateMode is Initial", advice=advice)
    elif pods is not None and pods < least:
        line = message(
            "recommends {advice}; not applied to running pods: {pods} replica(s), fewer than minReplicas {least}",
            advice=advice,
            pods=pods,
            least=least,
        )
        remedy = message("run {least} replicas, or set spec.updatePolicy.minReplicas: {pods}", least=least, pods=pods)
    else:
        line = message("recommends {advice}; pods are updated where they differ enough", advice=advice)
    return line, remedy


def _amounts(amounts: Json) -> str:
    return " ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "nothing"
