"""Reviews: questions that are answered and not kept."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.lab.apiserver import rbac
from dovetail.lab.apiserver.kinds.admission import lifecycle
from dovetail.lab.apiserver.registry import Object, RequestContext, RequestRefused, RestStrategy
from dovetail.model.validation.field_errors import FieldError, invalid


class ReviewStrategy(RestStrategy):
    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        lifecycle.admit(obj, ctx)

    def validate_create(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        return self.check(obj.get("spec") or {}, obj)

    def check(self, spec: Object, obj: Object) -> list[FieldError]:
        return []


class AccessReviewStrategy(ReviewStrategy):
    """SelfSubjectAccessReview, SubjectAccessReview and the local one."""

    def __init__(self, subject: bool, local: bool = False) -> None:
        self.subject = subject
        self.local = local

    def check(self, spec: Object, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        both = ("resourceAttributes" in spec) + ("nonResourceAttributes" in spec)
        if both == 2:
            text = "cannot be specified in combination with resourceAttributes"
            errors.append(invalid("spec.nonResourceAttributes", _path(spec["nonResourceAttributes"]), text))
        if both == 0:
            text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            errors.append(invalid("spec.resourceAttributes", spec.get("nonResourceAttributes"), text))
        if self.subject and not spec.get("user") and not spec.get("groups"):
            text = "at least one of user or group must be specified"
            errors.append(invalid("spec.user", spec.get("user", ""), text))
        return errors + self._local(spec, obj) if self.local else errors

    def _local(self, spec: Object, obj: Object) -> list[FieldError]:
        access, errors = spec.get("resourceAttributes"), list[FieldError]()
        if access is not None and access.get("namespace", "") != obj["metadata"].get("namespace"):
            field_path = "spec.resourceAttributes.namespace"
            errors.append(invalid(field_path, access.get("namespace", ""), "must match metadata.namespace"))
        if "nonResourceAttributes" in spec:
            text = "disallowed on this kind of request"
            errors.append(invalid("spec.nonResourceAttributes", _path(spec["nonResourceAttributes"]), text))
        return errors

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        spec = obj.get("spec") or {}
        if self.subject:
            groups = spec.get("groups") or ()
            user = spec.get("user", "")
            ruled = rbac.MASTERS in groups or rbac.in_force(ctx.cluster)
            if (path := spec.get("nonResourceAttributes")) is not None:
                allowed = ruled and rbac.path_allowed(
                    ctx.cluster, user, groups, path.get("verb", ""), path.get("path", "")
                )
            else:
                allowed = ruled and _may(spec.get("resourceAttributes"), ctx, user, groups)
        else:
            allowed = _may(spec.get("resourceAttributes"), ctx, ctx.user, ctx.groups)
        return obj | {"status": {"allowed": allowed}}


def _path(access: Object) -> Object:
    return {"Path": access.get("path", ""), "Verb": access.get("verb", "")}


def _may(access: Object | None, ctx: RequestContext, user: str, groups: Iterable[str]) -> bool:
    """Whether the user may do it to a resource; paths are open to every authenticated user."""
    if access is None:
        return True
    parts = (access.get("resource", ""), access.get("subresource", ""))
    ask = rbac.Ask(
        verb=access.get("verb", ""),
        group=access.get("group", ""),
        resource="/".join(part for part in parts if part),
        namespace=access.get("namespace", ""),
        name=access.get("name", ""),
    )
    return rbac.allowed(ctx.cluster, user, groups, ask)


class RulesReviewStrategy(ReviewStrategy):
    def check(self, spec: Object, obj: Object) -> list[FieldError]:
        return []

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        if not (obj.get("spec") or {}).get("namespace"):
            raise RequestRefused(400, "BadRequest", "no namespace on request")
        return {**obj, "metadata": {}, "spec": {}, "status": _rules(obj["spec"]["namespace"], ctx)}


def _rules(namespace: str, ctx: RequestContext) -> Object:
    """What the user may do: the rules of its roles, those about paths apart."""
    if not rbac.in_force(ctx.cluster):
        return _EVERYTHING
    held = list(rbac.rules(ctx.cluster, ctx.user, frozenset(ctx.groups), namespace))
    return {
        "resourceRules": [_only(rule, _ABOUT_RESOURCES) for rule in held if rule.get("resources")],
        "nonResourceRules": [_only(rule, _ABOUT_PATHS) for rule in held if rule.get("nonResourceURLs")],
        "incomplete": False,
    }


def _only(rule: Object, fields: tuple[str, ...]) -> Object:
    return {field: rule[field] for field in fields if rule.get(field)}


_ABOUT_RESOURCES = ("verbs", "apiGroups", "resources", "resourceNames")
_ABOUT_PATHS = ("verbs", "nonResourceURLs")


_PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
_DISCOVERY = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]
_ACCESS = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
_EVERYTHING: Object = {
    "resourceRules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["create"], "apiGroups": ["authorization.k8s.io"], "resources": _ACCESS},
        {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]},
    ],
    "nonResourceRules": [
        {"verbs": ["get"], "nonResourceURLs": [*_DISCOVERY, "/version", "/version/"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
        {"verbs": ["get"], "nonResourceURLs": _PUBLIC},
    ],
    "incomplete": False,
}


class SelfReviewStrategy(ReviewStrategy):
    """Who am I."""

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        user: Object = {"username": ctx.user}
        if rbac.MASTERS in ctx.groups:
            user["uid"] = ctx.user  # an impersonated user has none
        if ctx.groups:
            user["groups"] = list(ctx.groups)
        meta = {**obj.get("metadata", {}), "creationTimestamp": ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        return obj | {"metadata": meta, "status": {"userInfo": user}}


class TokenReviewStrategy(ReviewStrategy):
    def check(self, spec: Object, obj: Object) -> list[FieldError]:
        return []

    def answer(self, obj: Object, ctx: RequestContext) -> Object:
        if not (obj.get("spec") or {}).get("token"):
            raise RequestRefused(400, "BadRequest", "token is required for TokenReview in authentication")
        user = ctx.identify(obj["spec"]["token"])
        if user is None:
            return obj | {"status": {"user": {}, "error": "invalid bearer token"}}
        audiences = obj["spec"].get("audiences") or ["https://kubernetes.default.svc"]
        return obj | {"status": {"authenticated": True, "user": user, "audiences": audiences}}
