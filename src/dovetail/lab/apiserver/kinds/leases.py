"""Leases."""

from __future__ import annotations

from dovetail.lab.apiserver.fielderror import FieldError, forbidden, invalid
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Context, Object


class LeaseStrategy(KindStrategy):
    unconditional_update = False
    create_on_update = True
    owned_finalizers = False

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found: list[FieldError] = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        if spec.get("preferredHolder") and not spec.get("strategy"):
            text = "may only be specified if `strategy` is defined"
            found.append(forbidden("spec.preferredHolder", text))
        return found
