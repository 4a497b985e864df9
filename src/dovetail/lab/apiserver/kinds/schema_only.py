"""Kinds stored by schema alone (certificate requests, revisions, runtime classes): defaults and little else."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.admission import storage
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, invalid, required


class RevisionStrategy(KindStrategy):
    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors = numbers.nonnegative(obj.get("revision"), "revision")
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(obj["data"], dict):
            errors.append(required("data", "data must be a valid JSON object"))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = metadata.check_own(obj["metadata"], True, formats.subdomain)
        errors += numbers.nonnegative(obj.get("revision"), "revision")
        return errors + immutable(obj.get("data"), old.get("data"), "data")


class RuntimeClassStrategy(KindStrategy):
    rechecks_all = True
    owned_finalizers = False


class CertificateRequestStrategy(KindStrategy):
    has_status_subresource = True

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        spec = obj.setdefault("spec", {})
        spec["username"] = ctx.user
        if ctx.groups:
            spec["groups"] = list(ctx.groups)

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if not spec.get("request"):
            errors.append(invalid("spec.request", spec.get("request"), "PEM block type must be CERTIFICATE REQUEST"))
        if not spec.get("usages"):
            errors.append(required("spec.usages"))
        if not spec.get("signerName"):
            errors.append(required("spec.signerName"))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return []


class WithStatusStrategy(KindStrategy):
    """A kind with a spec and a status subresource, and no validation of ours."""

    has_status_subresource = True

    def __init__(self, counts: bool = True) -> None:
        self.generation = counts


class ApiServiceStrategy(WithStatusStrategy):
    def default(self, obj: Object) -> None:
        service = (obj.get("spec") or {}).get("service")
        if service is not None:
            service.setdefault("port", 443)


class PriorityLevelStrategy(KindStrategy):
    generation = True
    has_status_subresource = True

    def default(self, obj: Object) -> None:
        limited = (obj.get("spec") or {}).get("limited")
        if limited is not None:
            limited.setdefault("lendablePercent", 0)
            limited.setdefault("nominalConcurrencyShares", 30)


class FlowSchemaStrategy(KindStrategy):
    generation = True
    has_status_subresource = True


class DeviceStrategy(KindStrategy):
    """Kinds of resource.k8s.io: counted, and shown when deleted."""

    returns_deleted = True

    def __init__(self, counts: bool = True) -> None:
        self.generation = counts

    def default(self, obj: Object) -> None:
        spec = obj.get("spec") or {}
        inner = spec.get("spec") or spec
        for request in (inner.get("devices") or {}).get("requests") or ():
            for choice in [request.get("exactly"), *(request.get("firstAvailable") or ())]:
                if choice is not None and choice.setdefault("allocationMode", "ExactCount") == "ExactCount":
                    choice.setdefault("count", 1)


class AttributesClassStrategy(KindStrategy):
    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if obj is not None and ctx.operation == "CREATE":
            storage.protect(obj, "kubernetes.io/vac-protection")


class StorageCapacityStrategy(KindStrategy):
    rechecks_all = True
