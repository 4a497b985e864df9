"""Kinds at the edge of our world (webhooks, certificate requests, revisions): defaults and little else."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.fielderror import FieldError, invalid, required
from dovetail.lab.apiserver.kinds import formats, metadata, numbers
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.kinds.pod.defaults import fill
from dovetail.lab.apiserver.registry import Context, Object


class WebhookStrategy(KindStrategy):
    """Mutating and validating webhook configurations."""

    generation = True
    generation_fields = ("webhooks",)

    def default(self, obj: Object) -> None:
        for webhook in obj.get("webhooks") or ():
            fill(webhook, {"failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10})
            webhook.setdefault("namespaceSelector", {})
            webhook.setdefault("objectSelector", {})
            if obj.get("kind") == "MutatingWebhookConfiguration":
                webhook.setdefault("reinvocationPolicy", "Never")
            for rule in webhook.get("rules") or ():
                rule.setdefault("scope", "*")
            service = (webhook.get("clientConfig") or {}).get("service")
            if service is not None:
                service.setdefault("port", 443)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        found: list[FieldError] = []
        for index, webhook in enumerate(obj.get("webhooks") or ()):
            at = f"webhooks[{index}]"
            name = webhook.get("name", "")
            if not name:
                found.append(required(f"{at}.name"))
            elif len(name.split(".")) < 3:
                text = "should be a domain with at least three segments separated by dots"
                found.append(invalid(f"{at}.name", name, text))
            if not webhook.get("sideEffects"):
                found.append(required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun"))
            if not webhook.get("admissionReviewVersions"):
                text = "must specify one of v1, v1beta1"
                found.append(required(f"{at}.admissionReviewVersions", text))
        return found


class PolicyStrategy(KindStrategy):
    """Admission policies."""

    generation = True
    status_door = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        _match_defaults(spec.get("matchConstraints"))


class PolicyBindingStrategy(KindStrategy):
    generation = True

    def default(self, obj: Object) -> None:
        _match_defaults((obj.get("spec") or {}).get("matchResources"))


def _match_defaults(match: Any) -> None:
    if match is not None:
        fill(match, {"matchPolicy": "Equivalent"})
        match.setdefault("namespaceSelector", {})
        match.setdefault("objectSelector", {})
        for field in ("resourceRules", "excludeResourceRules"):
            for rule in match.get(field) or ():
                rule.setdefault("scope", "*")


class RevisionStrategy(KindStrategy):
    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        found = numbers.nonnegative(obj.get("revision"), "revision")
        if obj.get("data") is None:
            found.append(required("data", "data is mandatory"))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = metadata.check_own(obj["metadata"], True, formats.subdomain)
        found += numbers.nonnegative(obj.get("revision"), "revision")
        return found + immutable(obj.get("data"), old.get("data"), "data")


class RuntimeClassStrategy(KindStrategy):
    generation = True
    generation_fields = ()

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        handler = obj.get("handler", "")
        return [invalid("handler", handler, text) for text in formats.label(handler)]

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        return immutable(obj.get("handler"), old.get("handler"), "handler")


class CertificateRequestStrategy(KindStrategy):
    status_door = True

    def prepare_create(self, obj: Object, ctx: Context) -> None:
        super().prepare_create(obj, ctx)
        spec = obj.setdefault("spec", {})
        spec["username"] = ctx.user
        if ctx.groups:
            spec["groups"] = list(ctx.groups)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj.get("spec") or {}
        found = [] if spec.get("usages") else [required("spec.usages", "usages must be set")]
        if not spec.get("signerName"):
            found.append(required("spec.signerName"))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        return []


class WithStatusStrategy(KindStrategy):
    """A kind with a spec, a status door and a generation, and no rules of ours."""

    generation = True
    status_door = True


class NamedByUrlStrategy(KindStrategy):
    name_rule = staticmethod(formats.path_segment)
    generation = True
    status_door = True
