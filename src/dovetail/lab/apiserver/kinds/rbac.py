"""Roles and bindings: stored, checked, served."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, invalid, required, unsupported
from dovetail.model.validation.selectors import label_selector

GROUP = "rbac.authorization.k8s.io"


class RbacStrategy(KindStrategy):
    """Names need only fit into a URL; on updates the metadata is checked last."""

    rechecks_all = True
    rechecks_change = False
    name_rule = staticmethod(formats.path_segment)

    def __init__(self, namespaced: bool) -> None:
        self.namespaced = namespaced

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        meta = obj["metadata"]
        return self.check(obj, ctx) + metadata.check_update(meta, old["metadata"]) + metadata.own_finalizers(meta)


class RoleStrategy(RbacStrategy):
    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            field_path = f"rules[{index}]"
            if not rule.get("verbs"):
                errors.append(required(f"{field_path}.verbs", "verbs must contain at least one value"))
            urls = rule.get("nonResourceURLs")
            if urls:
                if self.namespaced:
                    text = "namespaced rules cannot apply to non-resource URLs"
                    errors.append(invalid(f"{field_path}.nonResourceURLs", urls, text))
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    text = "rules cannot apply to both regular resources and non-resource URLs"
                    errors.append(invalid(f"{field_path}.nonResourceURLs", urls, text))
                continue
            if not rule.get("apiGroups"):
                errors.append(required(f"{field_path}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                errors.append(required(f"{field_path}.resources", "resource rules must supply at least one resource"))
        aggregation = obj.get("aggregationRule")
        if aggregation is not None:
            field_path = "aggregationRule.clusterRoleSelectors"
            if not aggregation.get("clusterRoleSelectors"):
                text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                errors.append(required(field_path, text))
            for index, selector in enumerate(aggregation.get("clusterRoleSelectors") or ()):
                errors += label_selector(selector, f"{field_path}[{index}]")
        return errors


class BindingStrategy(RbacStrategy):
    def default(self, obj: Object) -> None:
        reference = obj.setdefault("roleRef", {})
        if not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = GROUP

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        reference = obj.get("roleRef") or {}
        errors: list[FieldError] = []
        if reference.get("apiGroup") != GROUP:
            errors.append(unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (GROUP,)))
        kinds = ("Role", "ClusterRole") if self.namespaced else ("ClusterRole",)
        if reference.get("kind", "") not in kinds:
            errors.append(unsupported("roleRef.kind", reference.get("kind", ""), kinds))
        name = reference.get("name", "")
        if not name:
            errors.append(required("roleRef.name"))
        errors += [invalid("roleRef.name", name, text) for text in formats.path_segment(name)]
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._subject(subject, f"subjects[{index}]")
        return errors

    def _subject(self, subject: Object, field_path: str) -> list[FieldError]:
        name, kind = subject.get("name", ""), subject.get("kind", "")
        group = subject.get("apiGroup", "")
        errors: list[FieldError] = [] if name else [required(f"{field_path}.name")]
        if kind == "ServiceAccount":
            if name:
                errors += [invalid(f"{field_path}.name", name, text) for text in formats.subdomain(name)]
            if group:
                errors.append(unsupported(f"{field_path}.apiGroup", group, ("",)))
            if not self.namespaced and not subject.get("namespace"):
                errors.append(required(f"{field_path}.namespace"))
        elif kind in ("User", "Group"):
            if group != GROUP:
                errors.append(unsupported(f"{field_path}.apiGroup", group, (GROUP,)))
        else:
            errors.append(unsupported(f"{field_path}.kind", kind, ("ServiceAccount", "User", "Group")))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        errors = super().check_change(obj, old, ctx)
        if obj.get("roleRef") != old.get("roleRef"):
            reference = obj.get("roleRef") or {}
            shown = {"APIGroup": reference.get("apiGroup", ""), "Kind": reference.get("kind", "")}
            shown["Name"] = reference.get("name", "")
            errors.append(invalid("roleRef", shown, "cannot change roleRef"))
        return errors
