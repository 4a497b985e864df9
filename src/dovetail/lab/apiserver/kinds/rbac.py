"""Roles and bindings: stored, checked, served."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.registry import Context, Object
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

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        meta = obj["metadata"]
        return self.check(obj, ctx) + metadata.check_update(meta, old["metadata"]) + metadata.own_finalizers(meta)


class RoleStrategy(RbacStrategy):
    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        found: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            at = f"rules[{index}]"
            if not rule.get("verbs"):
                found.append(required(f"{at}.verbs", "verbs must contain at least one value"))
            urls = rule.get("nonResourceURLs")
            if urls:
                if self.namespaced:
                    text = "namespaced rules cannot apply to non-resource URLs"
                    found.append(invalid(f"{at}.nonResourceURLs", urls, text))
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    text = "rules cannot apply to both regular resources and non-resource URLs"
                    found.append(invalid(f"{at}.nonResourceURLs", urls, text))
                continue
            if not rule.get("apiGroups"):
                found.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                found.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
        aggregation = obj.get("aggregationRule")
        if aggregation is not None:
            at = "aggregationRule.clusterRoleSelectors"
            if not aggregation.get("clusterRoleSelectors"):
                text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                found.append(required(at, text))
            for index, selector in enumerate(aggregation.get("clusterRoleSelectors") or ()):
                found += label_selector(selector, f"{at}[{index}]")
        return found


class BindingStrategy(RbacStrategy):
    def default(self, obj: Object) -> None:
        reference = obj.setdefault("roleRef", {})
        if not reference.get("apiGroup"):
            reference["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = GROUP

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        reference = obj.get("roleRef") or {}
        found: list[FieldError] = []
        if reference.get("apiGroup") != GROUP:
            found.append(unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (GROUP,)))
        kinds = ("Role", "ClusterRole") if self.namespaced else ("ClusterRole",)
        if reference.get("kind", "") not in kinds:
            found.append(unsupported("roleRef.kind", reference.get("kind", ""), kinds))
        name = reference.get("name", "")
        if not name:
            found.append(required("roleRef.name"))
        found += [invalid("roleRef.name", name, text) for text in formats.path_segment(name)]
        for index, subject in enumerate(obj.get("subjects") or ()):
            found += self._subject(subject, f"subjects[{index}]")
        return found

    def _subject(self, subject: Object, at: str) -> list[FieldError]:
        name, kind = subject.get("name", ""), subject.get("kind", "")
        group = subject.get("apiGroup", "")
        found: list[FieldError] = [] if name else [required(f"{at}.name")]
        if kind == "ServiceAccount":
            if name:
                found += [invalid(f"{at}.name", name, text) for text in formats.subdomain(name)]
            if group:
                found.append(unsupported(f"{at}.apiGroup", group, ("",)))
            if not self.namespaced and not subject.get("namespace"):
                found.append(required(f"{at}.namespace"))
        elif kind in ("User", "Group"):
            if group != GROUP:
                found.append(unsupported(f"{at}.apiGroup", group, (GROUP,)))
        else:
            found.append(unsupported(f"{at}.kind", kind, ("ServiceAccount", "User", "Group")))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        found = super().check_change(obj, old, ctx)
        if obj.get("roleRef") != old.get("roleRef"):
            reference = obj.get("roleRef") or {}
            shown = {"APIGroup": reference.get("apiGroup", ""), "Kind": reference.get("kind", "")}
            shown["Name"] = reference.get("name", "")
            found.append(invalid("roleRef", shown, "cannot change roleRef"))
        return found
