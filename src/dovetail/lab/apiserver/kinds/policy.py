"""PodDisruptionBudgets and PriorityClasses: what may be disturbed, and what goes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.admission import priority
from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden as refuse
from dovetail.lab.apiserver.kinds.base import CountedStrategy, KindStrategy, immutable
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported
from dovetail.model.validation.selectors import label_name, label_selector

_SYSTEM = {"system-node-critical": 2000001000, "system-cluster-critical": 2000000000}
_HIGHEST = 1_000_000_000


class BudgetStrategy(CountedStrategy):
    generation = True
    has_status_subresource = True
    name_rule = staticmethod(formats.path_segment)
    owned_finalizers = False
    rechecks_change = False
    rechecks_status = False

    def clear_status(self, obj: Object) -> None:
        names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        obj["status"] = dict.fromkeys(names, 0)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        errors: list[FieldError] = []
        if least is not None and most is not None:
            shown = internal("policy.PodDisruptionBudgetSpec", spec)
            errors.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        for field, value in (("minAvailable", least), ("maxUnavailable", most)):
            if value is not None:
                errors += numbers.int_or_percent(value, f"spec.{field}") + numbers.not_above_100(value, f"spec.{field}")
        errors += label_selector(spec.get("selector"), "spec.selector")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy not in (None, "AlwaysAllow", "IfHealthyBudget"):
            policies = ("AlwaysAllow", "IfHealthyBudget")
            errors.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, policies))
        return errors

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return self.check(obj, ctx) or metadata.check(obj["metadata"], True, formats.path_segment)

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        status = obj.get("status") or {}
        errors = conditions(status.get("conditions") or (), "status.conditions")
        names = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        return errors + numbers.all_nonnegative(status, names, "status")


def conditions(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """Conditions in the common form of newer kinds."""
    errors: list[FieldError] = []
    for index, condition in enumerate(entries):
        field_path = f"{path}[{index}]"
        errors += label_name(condition.get("type", ""), f"{field_path}.type")
        if condition.get("status", "") not in ("True", "False", "Unknown"):
            statuses = ("False", "True", "Unknown")
            errors.append(unsupported(f"{field_path}.status", condition.get("status", ""), statuses))
        if not condition.get("lastTransitionTime"):
            errors.append(required(f"{field_path}.lastTransitionTime"))
        if not condition.get("reason"):
            errors.append(required(f"{field_path}.reason"))
    return errors


class PriorityClassStrategy(KindStrategy):
    generation = True
    generation_fields = ()

    def default(self, obj: Object) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        errors: list[FieldError] = []
        if name.startswith("system-"):
            complaint = self._reserved(name, value, bool(obj.get("globalDefault")))
            if complaint:
                text = (
                    f"priority class names with 'system-' prefix are reserved for system use only. error: {complaint}"
                )
                errors.append(forbidden("metadata.name", text))
        elif value > _HIGHEST:
            text = f"maximum allowed value of a user defined priority is {_HIGHEST}"
            errors.append(forbidden("value", text))
        if obj.get("preemptionPolicy") == "":
            errors.append(required("preemptionPolicy"))
        elif obj.get("preemptionPolicy") not in (None, "PreemptLowerPriority", "Never"):
            policies = ("PreemptLowerPriority", "Never")
            errors.append(unsupported("preemptionPolicy", obj["preemptionPolicy"], policies))
        return errors

    def _reserved(self, name: str, value: int, default: bool) -> str | None:
        if name not in _SYSTEM:
            return f"{name} is not a known system priority class"
        if _SYSTEM[name] != value:
            return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
        return f"globalDefault of {name} PriorityClass must be false" if default else None

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors: list[FieldError] = []
        if obj.get("value", 0) != old.get("value", 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        return errors + immutable(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if ctx.operation == "DELETE" and ctx.name in _SYSTEM:
            raise refuse(obj, ctx, "this is a system priority class and cannot be deleted")

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        if obj is not None and ctx.operation in ("CREATE", "UPDATE"):
            priority.review_class(obj, ctx)
