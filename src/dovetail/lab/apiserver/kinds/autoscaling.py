"""HorizontalPodAutoscalers: what a good one looks like. They are kept as v2."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.autoscalingv1 import METRICS, SOURCES, cpu_metric, from_v1, to_v1
from dovetail.lab.apiserver.kinds.base import CountedStrategy
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported
from dovetail.model.validation.resources import amount, container_resource_name

Spec = Mapping[str, Any]
_KINDS = ("ContainerResource", "External", "Object", "Pods", "Resource")
_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


class AutoscalerStrategy(CountedStrategy):
    has_status_subresource = True

    def __init__(self, version: str) -> None:
        self.version = version

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if self.version == "v1":
            if METRICS not in (obj["metadata"].get("annotations") or {}):
                spec.setdefault("targetCPUUtilizationPercentage", 80)
            return
        if not spec.get("metrics"):
            spec["metrics"] = [cpu_metric(80)]
        behavior = spec.get("behavior")
        if behavior is not None:
            behavior["scaleUp"] = {**copy.deepcopy(_UP), **(behavior.get("scaleUp") or {})}
            behavior["scaleDown"] = {**copy.deepcopy(_DOWN), **(behavior.get("scaleDown") or {})}

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"desiredReplicas": 0, "currentMetrics": None}

    def to_storage(self, obj: Object, version: str) -> Object:
        return from_v1(obj) if version == "v1" else obj

    def from_storage(self, obj: Object, version: str) -> Object:
        return to_v1(obj) if version == "v1" else obj

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
        errors: list[FieldError] = []
        if least is not None and least < 1:
            errors.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
        if most == 0:
            errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
        elif most < 0:
            errors.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
        if least is not None and most < least:
            text = "must be greater than or equal to `minReplicas`"
            errors.append(invalid("spec.maxReplicas", most, text))
        errors += self._reference(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", empty_group=False)
        errors += self._metrics(spec.get("metrics") or (), least)
        for name in ("scaleUp", "scaleDown"):
            rules = (spec.get("behavior") or {}).get(name)
            if rules is not None:
                errors += self._rules(rules, f"spec.behavior.{name}")
        return errors

    def _reference(self, reference: Spec, path: str, empty_group: bool) -> list[FieldError]:
        errors: list[FieldError] = []
        for field in ("kind", "name"):
            value = reference.get(field, "")
            if not value:
                errors.append(required(f"{path}.{field}"))
            else:
                errors += [invalid(f"{path}.{field}", value, text) for text in formats.path_segment(value)]
        version = reference.get("apiVersion", "")
        if version.count("/") > 1:
            errors.append(invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
        elif not empty_group and "/" not in version and not _is_core(reference):
            errors.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))
        return errors

    def _metrics(self, metrics: Any, least: int | None) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, metric in enumerate(metrics):
            errors += self._metric(metric, f"spec.metrics[{index}]")
        if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
            text = "must specify at least one Object or External metric to support scaling to zero replicas"
            errors.append(forbidden("spec.metrics", text))
        return errors

    def _metric(self, metric: Spec, path: str) -> list[FieldError]:
        kind = metric.get("type", "")
        errors: list[FieldError] = []
        if not kind:
            errors.append(required(f"{path}.type", "must specify a metric source type"))
        if kind not in SOURCES:
            errors.append(unsupported(f"{path}.type", kind, _KINDS))
        present = [name for name in SOURCES.values() if name in metric]
        if present:
            errors += self._source(present[0], metric[present[0]], f"{path}.{present[0]}")
        expected = SOURCES.get(kind)
        if expected is None:
            errors.append(unsupported(f"{path}.type", kind, _KINDS))
        elif expected not in metric:
            text = "must populate information for the given metric source"
            errors.append(required(f"{path}.{expected}", text))
        if len(present) != 1:
            text = "must populate the given metric source only"
            errors += [forbidden(f"{path}.{name}", text) for name in present if name != expected]
        return errors

    def _source(self, name: str, source: Spec, path: str) -> list[FieldError]:
        target = source.get("target") or {}
        errors: list[FieldError] = []
        if name == "object":
            errors += self._reference(source.get("describedObject") or {}, f"{path}.describedObject", empty_group=True)
        if name in ("object", "external", "pods"):
            metric = (source.get("metric") or {}).get("name", "")
            if not metric:
                errors.append(required(f"{path}.metric.name", "must specify a metric name"))
        elif not source.get("name"):
            errors.append(required(f"{path}.name", "must specify a resource name"))
        if name == "containerResource":
            errors += self._container(source, path)
        errors += self._target(target, f"{path}.target")
        return errors + self._exclusive(name, target, f"{path}.target")

    def _container(self, source: Spec, path: str) -> list[FieldError]:
        errors = container_resource_name(source["name"], f"{path}.name") if source.get("name") else []
        if not source.get("container"):
            return [*errors, required(f"{path}.container", "must specify a container")]
        field_path, given = f"{path}.container", source["container"]
        return errors + [invalid(field_path, given, text) for text in formats.label(given)]

    def _exclusive(self, name: str, target: Spec, path: str) -> list[FieldError]:
        value, average = "value" in target, "averageValue" in target
        utilization = "averageUtilization" in target
        if name == "object" and not value and not average:
            return [required(f"{path}.averageValue", "must set either a target value or averageValue")]
        if name == "external":
            if not value and not average:
                text = "must set either a target value for metric or a per-pod target"
                return [required(f"{path}.averageValue", text)]
            if value and average:
                text = "may not set both a target value for metric and a per-pod target"
                return [forbidden(f"{path}.value", text)]
        if name == "pods" and not average:
            return [required(f"{path}.averageValue", "must specify a positive target averageValue")]
        if name in ("resource", "containerResource"):
            if not utilization and not average:
                text = "must set either a target raw value or a target utilization"
                return [required(f"{path}.averageUtilization", text)]
            if utilization and average:
                text = "may not set both a target raw value and a target utilization"
                return [forbidden(f"{path}.averageValue", text)]
        return []

    def _target(self, target: Spec, path: str) -> list[FieldError]:
        kind = target.get("type", "")
        errors: list[FieldError] = []
        if not kind:
            errors.append(required(f"{path}.type", "must specify a metric target type"))
        if kind not in ("Utilization", "Value", "AverageValue"):
            errors.append(invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
        for field in ("value", "averageValue"):
            if field in target and not amount(target[field]) > amount("0"):
                errors.append(invalid(f"{path}.{field}", target[field], "must be positive"))
        percent = target.get("averageUtilization")
        if percent is not None and percent < 1:
            errors.append(invalid(f"{path}.averageUtilization", percent, "must be greater than 0"))
        return errors

    def _rules(self, rules: Spec, path: str) -> list[FieldError]:
        errors: list[FieldError] = []
        window = rules.get("stabilizationWindowSeconds")
        field_path = f"{path}.stabilizationWindowSeconds"
        if window is not None and window < 0:
            errors.append(invalid(field_path, window, "must be greater than or equal to zero"))
        if window is not None and window > 3600:
            errors.append(invalid(field_path, window, "must be less than or equal to 3600"))
        select = rules.get("selectPolicy")
        if select not in (None, "Max", "Min", "Disabled"):
            errors.append(unsupported(f"{path}.selectPolicy", select, ("Disabled", "Max", "Min")))
        if not rules.get("policies"):
            errors.append(required(f"{path}.policies", "must specify at least one Policy"))
        for index, policy in enumerate(rules.get("policies") or ()):
            place = f"{path}.policies[{index}]"
            if policy.get("type", "") not in ("Pods", "Percent"):
                errors.append(unsupported(f"{place}.type", policy.get("type", ""), ("Percent", "Pods")))
            if policy.get("value", 0) <= 0:
                errors.append(invalid(f"{place}.value", policy.get("value", 0), "must be greater than zero"))
            period = policy.get("periodSeconds", 0)
            if period <= 0:
                errors.append(invalid(f"{place}.periodSeconds", period, "must be greater than zero"))
            if period > 1800:
                errors.append(invalid(f"{place}.periodSeconds", period, "must be less than or equal to 1800"))
        if "tolerance" in rules and amount(rules["tolerance"]) < amount("0"):
            errors.append(invalid(f"{path}.tolerance", rules["tolerance"], numbers.NEGATIVE))
        return errors

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return numbers.all_nonnegative(obj.get("status") or {}, ("currentReplicas", "desiredReplicas"), "status")


def _is_core(reference: Spec) -> bool:
    return reference.get("kind") == "ReplicationController"
