"""HorizontalPodAutoscalers in v1, which shows what it cannot say as JSON in annotations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.registry import Object

Spec = Mapping[str, Any]
METRICS = "autoscaling.alpha.kubernetes.io/metrics"
CURRENT = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ANNOTATIONS = (METRICS, CURRENT, CONDITIONS, BEHAVIOR)
SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def cpu_metric(percent: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def to_v1(obj: Object) -> Object:
    """The v1 view of a stored autoscaler."""
    spec, status = obj["spec"], obj.get("status") or {}
    shown: Object = {key: value for key, value in spec.items() if key not in ("metrics", "behavior")}
    others = []
    for metric in spec.get("metrics") or ():
        percent = _cpu_percent(metric)
        if percent is not None:
            shown.setdefault("targetCPUUtilizationPercentage", percent)
        else:
            others.append(_metric_to_v1(metric))
    notes = dict(obj["metadata"].get("annotations") or {})
    if others:
        notes[METRICS] = _json(others)
    if status.get("currentMetrics"):
        notes[CURRENT] = _json([_status_to_v1(metric) for metric in status["currentMetrics"]])
    if spec.get("behavior") is not None:
        notes[BEHAVIOR] = _json(_behavior_to_internal(spec["behavior"]))
    if status.get("conditions"):
        notes[CONDITIONS] = _json([_in_order(condition) for condition in status["conditions"]])
    meta = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    if notes:
        meta["annotations"] = notes
    keep = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    visible = {key: status[key] for key in keep if key in status}
    visible.setdefault("currentReplicas", 0)
    visible.setdefault("desiredReplicas", 0)
    for metric in status.get("currentMetrics") or ():
        if metric.get("type") == "Resource" and metric.get("resource", {}).get("name") == "cpu":
            percent = metric["resource"].get("current", {}).get("averageUtilization")
            if percent is not None:
                visible["currentCPUUtilizationPercentage"] = percent
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": meta, "spec": shown, "status": visible}


def from_v1(obj: Object) -> Object:
    """A v1 body as it is stored."""
    notes = dict(obj["metadata"].get("annotations") or {})
    spec = dict(obj["spec"])
    metrics = [_metric_from_v1(metric) for metric in _load(notes, METRICS) or ()]
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        metrics.append(cpu_metric(percent))
    spec["metrics"] = metrics or [cpu_metric(80)]
    behavior = _load(notes, BEHAVIOR)
    if behavior:
        spec["behavior"] = _behavior_from_internal(behavior)
    status = dict(obj.get("status") or {})
    status.pop("currentCPUUtilizationPercentage", None)
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)
    status.setdefault("desiredReplicas", 0)
    status["currentMetrics"] = [_status_from_v1(metric) for metric in _load(notes, CURRENT) or ()] or None
    conditions = _load(notes, CONDITIONS)
    if conditions:
        status["conditions"] = conditions
    meta = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
    rest = {key: value for key, value in notes.items() if key not in _ANNOTATIONS}
    if rest:
        meta["annotations"] = rest
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": meta, "spec": spec, "status": status}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _in_order(condition: Object) -> Object:
    """The fields of a condition as Go declares them."""
    names = ("type", "status", "lastTransitionTime", "reason", "message")
    return {name: condition[name] for name in names if name in condition}


def _load(notes: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(notes[key]) if key in notes else None
    except ValueError:
        return None


def _cpu_percent(metric: Spec) -> int | None:
    if metric.get("type") != "Resource" or metric.get("resource", {}).get("name") != "cpu":
        return None
    percent: int | None = metric["resource"].get("target", {}).get("averageUtilization")
    return percent


def _compact(values: Object) -> Object:
    return {key: value for key, value in values.items() if value is not None}


def _metric_to_v1(metric: Spec) -> Object:
    kind = metric.get("type", "")
    name = SOURCES.get(kind, "")
    source = metric.get(name) or {}
    target, identity = source.get("target") or {}, source.get("metric") or {}
    value, average = target.get("value"), target.get("averageValue")
    own: Object
    if name == "object":
        own = {"target": source.get("describedObject"), "metricName": identity.get("name", "")}
        own |= {"targetValue": value or "0", "selector": identity.get("selector"), "averageValue": average}
    elif name == "pods":
        own = {"metricName": identity.get("name", ""), "targetAverageValue": average or "0"}
        own["selector"] = identity.get("selector")
    elif name == "external":
        own = {"metricName": identity.get("name", ""), "metricSelector": identity.get("selector")}
        own |= {"targetValue": value, "targetAverageValue": average}
    else:
        own = {"name": source.get("name", ""), "targetAverageUtilization": target.get("averageUtilization")}
        own["targetAverageValue"] = average
        if name == "containerResource":
            own["container"] = source.get("container", "")
    return {"type": kind, name: _compact(own)}


def _metric_from_v1(metric: Spec) -> Object:
    kind = metric.get("type", "")
    name = SOURCES.get(kind, "")
    own = metric.get(name) or {}
    if name == "object":
        average = own.get("averageValue")
        target: Object = {"type": "AverageValue", "averageValue": average} if average else {"type": "Value"}
        if own.get("targetValue", "0") != "0" or not average:
            target["value"] = own.get("targetValue", "0")
        identity = _compact({"name": own.get("metricName", ""), "selector": own.get("selector")})
        return {"type": kind, name: {"describedObject": own.get("target"), "target": target, "metric": identity}}
    if name == "pods":
        identity = _compact({"name": own.get("metricName", ""), "selector": own.get("selector")})
        target = {"type": "AverageValue", "averageValue": own.get("targetAverageValue", "0")}
        return {"type": kind, name: {"metric": identity, "target": target}}
    if name == "external":
        value = own.get("targetValue")
        target = {"type": "Value" if value is not None else "AverageValue"}
        target |= _compact({"value": value, "averageValue": own.get("targetAverageValue")})
        identity = _compact({"name": own.get("metricName", ""), "selector": own.get("metricSelector")})
        return {"type": kind, name: {"metric": identity, "target": target}}
    percent = own.get("targetAverageUtilization")
    target = {"type": "Utilization" if percent is not None else "AverageValue"}
    target |= _compact({"averageValue": own.get("targetAverageValue"), "averageUtilization": percent})
    extra = {"container": own["container"]} if "container" in own else {}
    return {"type": kind, name: {"name": own.get("name", ""), **extra, "target": target}}


def _status_to_v1(metric: Spec) -> Object:
    kind = metric.get("type", "")
    name = SOURCES.get(kind, "")
    source = metric.get(name) or {}
    current, identity = source.get("current") or {}, source.get("metric") or {}
    average = current.get("averageValue")
    own: Object
    if name == "object":
        own = {"target": source.get("describedObject"), "metricName": identity.get("name", "")}
        own |= {"currentValue": current.get("value", "0"), "averageValue": average}
        own["selector"] = identity.get("selector")
    elif name == "pods":
        own = {"metricName": identity.get("name", ""), "currentAverageValue": average or "0"}
        own["selector"] = identity.get("selector")
    elif name == "external":
        own = {"metricName": identity.get("name", ""), "metricSelector": identity.get("selector")}
        own |= {"currentValue": current.get("value", "0"), "currentAverageValue": average}
    else:
        own = {"name": source.get("name", ""), "currentAverageUtilization": current.get("averageUtilization")}
        own["currentAverageValue"] = average or "0"
        if name == "containerResource":
            own["container"] = source.get("container", "")
    return {"type": kind, name: _compact(own)}


def _status_from_v1(metric: Spec) -> Object:
    kind = metric.get("type", "")
    name = SOURCES.get(kind, "")
    own = metric.get(name) or {}
    current = _compact(
        {
            "value": own.get("currentValue"),
            "averageValue": own.get("currentAverageValue", own.get("averageValue")),
            "averageUtilization": own.get("currentAverageUtilization"),
        }
    )
    if name in ("resource", "containerResource"):
        extra = {"container": own["container"]} if "container" in own else {}
        return {"type": kind, name: {"name": own.get("name", ""), "current": current, **extra}}
    selector = own.get("selector", own.get("metricSelector"))
    shown: Object = {"metric": _compact({"name": own.get("metricName", ""), "selector": selector}), "current": current}
    if name == "object":
        shown["describedObject"] = own.get("target")
    return {"type": kind, name: shown}


def _behavior_to_internal(behavior: Spec) -> Object:
    """The annotation holds the internal struct: Go names, every field."""
    return {name[0].upper() + name[1:]: _rules_to_internal(behavior.get(name)) for name in ("scaleUp", "scaleDown")}


def _rules_to_internal(rules: Spec | None) -> Object | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": policies
        and [
            {"Type": p.get("type"), "Value": p.get("value"), "PeriodSeconds": p.get("periodSeconds")} for p in policies
        ],
        "Tolerance": rules.get("tolerance"),
    }


def _behavior_from_internal(value: Any) -> Any:
    if isinstance(value, dict):
        return {k[0].lower() + k[1:]: _behavior_from_internal(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_behavior_from_internal(item) for item in value]
    return value
