"""Leases."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation.field_errors import FieldError, invalid


class LeaseStrategy(KindStrategy):
    unconditional_update = False
    create_on_update = True
    owned_finalizers = False

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return errors

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        _without_strategy(obj)

    def prepare_update(self, obj: Object, old: Object, ctx: RequestContext) -> None:
        super().prepare_update(obj, old, ctx)
        _without_strategy(obj)


def _without_strategy(obj: Object) -> None:
    """Drop the fields of coordinated leader election: the feature gate is off."""
    spec = obj.get("spec") or {}
    for field in ("strategy", "preferredHolder"):
        spec.pop(field, None)
