"""Deployments, ReplicaSets and DaemonSets, and what all workloads share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.base import CountedStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.defaults import template_defaults
from dovetail.lab.apiserver.kinds.pod.spec import check_template
from dovetail.lab.apiserver.kinds.pod.warnings import name_warnings
from dovetail.lab.apiserver.kinds.pod.warnings import warnings as template_warnings
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported
from dovetail.model.validation.selectors import label_selector, match_labels

Spec = Mapping[str, Any]
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
MISMATCH = "`selector` does not match template `labels`"


def check_selector(spec: Spec, kind: str, path: str = "spec") -> list[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        return [required(f"{path}.selector")]
    errors = label_selector(selector, f"{path}.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid(f"{path}.selector", selector, f"empty selector is invalid for {kind}"))
    return errors


def valid_selector(selector: Spec | None) -> bool:
    return not label_selector(selector, "")


def template_labels(template: Spec) -> dict[str, str]:
    labels: dict[str, str] = (template.get("metadata") or {}).get("labels") or {}
    return dict(sorted(labels.items()))


def shown_labels(template: Spec) -> dict[str, str] | None:
    """Labels as a message shows them: null where there never were any."""
    return template_labels(template) if "labels" in (template.get("metadata") or {}) else None


def is_selective(selector: Spec) -> bool:
    """Whether a selector asks for anything: an empty one is no requirement."""
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _replica_template(spec: Spec, kind: str, path: str = "spec") -> list[FieldError]:
    """The template of a Deployment or a ReplicaSet."""
    selector = spec.get("selector")
    if not valid_selector(selector):
        text = "invalid label selector"
        return [invalid(f"{path}.selector", selector, text)]
    template = spec.get("template") or {}
    field_path = f"{path}.template"
    errors: list[FieldError] = []
    if selector is None or (is_selective(selector) and not match_labels(selector, template_labels(template))):
        errors.append(invalid(f"{field_path}.metadata.labels", shown_labels(template), MISMATCH))
    errors += check_template(template, field_path)
    return errors + always_restarts(template, field_path, kind)


def always_restarts(template: Spec, path: str, kind: str) -> list[FieldError]:
    pod = template.get("spec") or {}
    errors: list[FieldError] = []
    if pod.get("restartPolicy") != "Always":
        errors.append(unsupported(f"{path}.spec.restartPolicy", pod.get("restartPolicy", ""), ("Always",)))
    if "activeDeadlineSeconds" in pod:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", text))
    return errors


class WorkloadStrategy(CountedStrategy):
    generation = True
    has_status_subresource = True
    names_pods = True  # a name that is no host name earns a warning

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        template_defaults(spec.setdefault("template", {"metadata": {}, "spec": {}}))

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if old is not None and not self._new_spec(obj, old):
            return []
        texts = name_warnings(obj["metadata"].get("name", "")) if old is None and self.names_pods else []
        template = obj["spec"].get("template") or {}
        return texts + template_warnings(template.get("spec") or {}, template.get("metadata") or {}, "spec.template")

    def _new_spec(self, obj: Object, old: Object) -> bool:
        return bool(obj["metadata"].get("generation") != old["metadata"].get("generation"))


class DeploymentStrategy(WorkloadStrategy):
    status_keeps = ("labels",)

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        notes = obj["metadata"].get("annotations") or {}
        if not ctx.subresource and notes != (old["metadata"].get("annotations") or {}):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = numbers.nonnegative(spec.get("replicas"), "spec.replicas") + check_selector(spec, "deployment")
        errors += _replica_template(spec, "ReplicaSet")
        errors += self._strategy(spec["strategy"])
        errors += numbers.all_nonnegative(spec, ("minReadySeconds", "revisionHistoryLimit"), "spec")
        deadline = spec.get("progressDeadlineSeconds")
        if deadline is not None:
            field_path = "spec.progressDeadlineSeconds"
            errors += numbers.nonnegative(deadline, field_path)
            if deadline <= spec.get("minReadySeconds", 0):
                errors.append(invalid(field_path, deadline, "must be greater than minReadySeconds"))
        return errors

    def _strategy(self, strategy: Spec) -> list[FieldError]:
        kind, rolling, path = strategy.get("type", ""), strategy.get("rollingUpdate"), "spec.strategy"
        if kind == "Recreate":
            if rolling is None:
                return []
            text = "may not be specified when strategy `type` is 'Recreate'"
            return [forbidden(f"{path}.rollingUpdate", text)]
        if kind != "RollingUpdate":
            shown = internal("apps.DeploymentStrategy", strategy)
            return [unsupported(path, shown, ("Recreate", "RollingUpdate"))]
        field_path = f"{path}.rollingUpdate"
        rolling = rolling or {}
        down, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        errors = numbers.int_or_percent(down, f"{field_path}.maxUnavailable") + numbers.int_or_percent(
            surge, f"{field_path}.maxSurge"
        )
        if numbers.amount_of(down) == 0 and numbers.amount_of(surge) == 0:
            errors.append(invalid(f"{field_path}.maxUnavailable", down, "may not be 0 when `maxSurge` is 0"))
        return errors + numbers.not_above_100(down, f"{field_path}.maxUnavailable")

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        return errors + immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector")

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        names = [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ]
        status = obj.get("status") or {}
        errors = numbers.all_nonnegative(status, names, "status")
        errors += above(status, ("updatedReplicas", "readyReplicas", "availableReplicas"))
        return errors + decremented(status, old.get("status") or {})


def above(status: Spec, names: tuple[str, ...], ready: str = "readyReplicas") -> list[FieldError]:
    total = status.get("replicas", 0)
    errors = [
        invalid(f"status.{name}", status.get(name, 0), "cannot be greater than status.replicas")
        for name in names
        if status.get(name, 0) > total
    ]
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        errors.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))
    return errors


def decremented(status: Spec, before: Spec) -> list[FieldError]:
    old, new = before.get("collisionCount"), status.get("collisionCount")
    if old is not None and (new is None or new < old):
        return [invalid("status.collisionCount", new or 0, "cannot be decremented")]
    return []


class ReplicaSetStrategy(WorkloadStrategy):
    def default(self, obj: Object) -> None:
        super().default(obj)
        obj["spec"].setdefault("replicas", 1)

    def clear_status(self, obj: Object) -> None:
        obj["status"] = {"replicas": 0}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = numbers.all_nonnegative(spec, ("replicas", "minReadySeconds"), "spec")
        return errors + check_selector(spec, "deployment") + _replica_template(spec, "ReplicaSet")

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = self.check(obj, ctx)
        return errors + immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector")

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        names = "replicas fullyLabeledReplicas readyReplicas availableReplicas observedGeneration terminatingReplicas"
        status = obj.get("status") or {}
        errors = numbers.all_nonnegative(status, names.split(), "status")
        return errors + above(status, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))


class DaemonSetStrategy(WorkloadStrategy):
    names_pods = False

    def _new_spec(self, obj: Object, old: Object) -> bool:
        return bool(obj["spec"].get("template") != old["spec"].get("template"))

    def default(self, obj: Object) -> None:
        super().default(obj)
        spec = obj["spec"]
        notes = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {_TEMPLATE_GENERATION: "0", **notes}
        strategy = spec.setdefault("updateStrategy", {})
        if not strategy.get("type"):
            strategy["type"] = "RollingUpdate"
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def clear_status(self, obj: Object) -> None:
        names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        obj["status"] = dict.fromkeys(names, 0)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        notes = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = notes | {_TEMPLATE_GENERATION: "1"}

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        if ctx.subresource:
            return
        key = _TEMPLATE_GENERATION
        before = (old["metadata"].get("annotations") or {}).get(key, "0")
        number = int(before) if before.isdigit() else 0
        if obj["spec"].get("template") != old["spec"].get("template"):
            number += 1
        notes = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = notes | {key: str(number)}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        selector = spec.get("selector")
        errors = label_selector(selector, "spec.selector")
        template = spec.get("template") or {}
        if valid_selector(selector) and not match_labels(selector, template_labels(template)):
            errors.append(invalid("spec.template.metadata.labels", shown_labels(template), MISMATCH))
        if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
            errors.append(invalid("spec.selector", selector, "empty selector is invalid for daemonset"))
        errors += check_template(template, "spec.template") + always_restarts(template, "spec.template", "DaemonSet")
        errors += numbers.nonnegative(spec.get("minReadySeconds"), "spec.minReadySeconds")
        errors += self._strategy(spec["updateStrategy"])
        return errors + numbers.nonnegative(spec.get("revisionHistoryLimit"), "spec.revisionHistoryLimit")

    def _strategy(self, strategy: Spec) -> list[FieldError]:
        kind, path = strategy.get("type", ""), "spec.updateStrategy"
        if kind == "OnDelete":
            return []
        if kind != "RollingUpdate":
            shown = internal("apps.DaemonSetUpdateStrategy", strategy)
            return [unsupported(path, shown, ("RollingUpdate", "OnDelete"))]
        field_path = f"{path}.rollingUpdate"
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            return [required(field_path)]
        down, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        errors = numbers.int_or_percent(down, f"{field_path}.maxUnavailable") + numbers.int_or_percent(
            surge, f"{field_path}.maxSurge"
        )
        errors += numbers.not_above_100(down, f"{field_path}.maxUnavailable") + numbers.not_above_100(
            surge, f"{field_path}.maxSurge"
        )
        if numbers.amount_of(down) and numbers.amount_of(surge):
            errors.append(invalid(f"{field_path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
        elif not numbers.amount_of(down) and not numbers.amount_of(surge):
            errors.append(required(f"{field_path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = immutable(obj["spec"].get("selector"), old["spec"].get("selector"), "spec.selector")
        return errors + self.check(obj, ctx)

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        names = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ]
        status = obj.get("status") or {}
        return numbers.all_nonnegative(status, names, "status") + decremented(status, old.get("status") or {})
