"""Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.base import CountedStrategy, immutable
from dovetail.lab.apiserver.kinds.job_validation import check_job_spec, job_defaults, job_warnings
from dovetail.lab.apiserver.kinds.pod.defaults import template_defaults
from dovetail.lab.apiserver.kinds.pod.warnings import name_warnings
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import OMIT, FieldError, invalid, required
from dovetail.model.validation.selectors import label_selector, match_labels

Spec = Mapping[str, Any]
_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


class JobStrategy(CountedStrategy):
    rechecks_all = True
    generation = True
    has_status_subresource = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        template = spec.setdefault("template", {"metadata": {}, "spec": {}})
        template_defaults(template)
        labels = (template.get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = labels  # one and the same map, so that it gains what the template gains
        job_defaults(spec)

    def prepare_create(self, obj: Object, ctx: RequestContext) -> None:
        super().prepare_create(obj, ctx)
        spec = obj["spec"]
        if spec.get("manualSelector"):
            return
        uid, name = obj["metadata"].get("uid", ""), obj["metadata"].get("name", "")
        labels = {_UID: uid, _NAME: name, "controller-uid": uid, "job-name": name}
        template = spec["template"]
        meta = template.get("metadata") or {}
        existing = meta.get("labels") or {}
        merged = dict(sorted((labels | existing).items()))
        template["metadata"] = meta | {"labels": merged}
        if existing and obj["metadata"].get("labels") is existing:
            obj["metadata"]["labels"] = dict(merged)
        selector = spec.setdefault("selector", {})
        matched = selector.get("matchLabels") or {}
        if _UID not in matched:
            selector["matchLabels"] = matched | {_UID: uid}

    def review(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        """A job without labels shows its template's; they were not there to be checked."""
        super().review(obj, old, ctx)
        if obj is not None and ctx.operation == "CREATE" and not obj["metadata"].get("labels"):
            labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
            obj["metadata"] |= {"labels": dict(labels)} if labels else {}

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        spec = obj["spec"]
        errors = [] if spec.get("manualSelector") or spec.get("selector") is None else self._generated(obj)
        errors += self._spec(spec)
        if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
            name = obj["metadata"].get("name", "")
            longest = f"{name}-{spec['completions'] - 1}"
            if formats.label(longest):
                text = f"will not able to create pod with invalid DNS label: {longest}"
                errors.append(invalid("metadata.name", name, text))
        return errors

    def _generated(self, obj: Object) -> list[FieldError]:
        meta, spec = obj["metadata"], obj["spec"]
        path = "spec.template.metadata.labels"
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        errors: list[FieldError] = []
        expected = {_UID: meta.get("uid", ""), _NAME: meta.get("name", "")}
        legacy = {"controller-uid": meta.get("uid", ""), "job-name": meta.get("name", "")}
        for key, value in (legacy | expected).items():
            if key not in labels:
                errors.append(required(f"{path}[{key}]", f"must be '{value}'"))
            elif labels[key] != value:
                errors.append(invalid(f"{path}[{key}]", labels, f"must be '{value}'"))
        selector = spec.get("selector") or {}
        if not label_selector(selector, "") and not match_labels(selector, expected | legacy):
            errors.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
        return errors

    def _spec(self, spec: Spec) -> list[FieldError]:
        errors = check_job_spec(spec, "spec")
        selector = spec.get("selector")
        errors += [required("spec.selector")] if selector is None else label_selector(selector, "spec.selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if selector is None or (not label_selector(selector, "") and not match_labels(selector, labels)):
            text = "`selector` does not match template `labels`"
            errors.append(invalid("spec.template.metadata.labels", labels or None, text))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        errors = self.check(obj, ctx) + self._spec(spec) + self._completions(spec, before)
        errors += immutable(spec.get("selector"), before.get("selector"), "spec.selector")
        errors += self._template(spec, before, old)
        errors += immutable(spec.get("completionMode"), before.get("completionMode"), "spec.completionMode")
        for field, kind in (("podFailurePolicy", "batch.PodFailurePolicy"), ("successPolicy", "batch.SuccessPolicy")):
            if spec.get(field) != before.get(field):
                shown = internal(f"*{kind}", spec.get(field))
                errors.append(invalid(f"spec.{field}", shown, metadata.IMMUTABLE))
        for field in ("backoffLimitPerIndex", "managedBy"):
            errors += immutable(spec.get(field), before.get(field), f"spec.{field}")
        return errors

    def _completions(self, spec: Spec, before: Spec) -> list[FieldError]:
        new, old = spec.get("completions"), before.get("completions")
        if new == old:
            return []
        if spec.get("completionMode") != "Indexed":
            return [invalid("spec.completions", new, metadata.IMMUTABLE)]
        if new is not None and new != spec.get("parallelism"):
            text = "can only be modified in tandem with spec.parallelism"
            return [invalid("spec.completions", new, text)]
        return []

    def _template(self, spec: Spec, before: Spec, old: Object) -> list[FieldError]:
        new, was = spec.get("template") or {}, before.get("template") or {}
        if not _steerable(old):
            if new == was:
                return []
            return [invalid("spec.template", internal("core.PodTemplateSpec", new), metadata.IMMUTABLE)]
        new_spec = new.get("spec") or {}
        if new_spec == _steered(was.get("spec") or {}, new_spec):
            return []
        return [invalid("spec.template.spec", internal("core.PodSpec", new_spec), metadata.IMMUTABLE)]

    def check_status(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        status = obj.get("status") or {}
        names = ("active", "succeeded", "failed", "ready", "terminating")
        errors = numbers.all_nonnegative(status, names, "status")
        true = {c.get("type") for c in status.get("conditions", ()) if c.get("status") == "True"}
        field_path = "status.conditions"
        if {"Complete", "Failed"} <= true:
            errors.append(invalid(field_path, OMIT, "cannot set Complete=True and Failed=true conditions"))
        if {"Complete", "FailureTarget"} <= true:
            errors.append(invalid(field_path, OMIT, "cannot set Complete=True and FailureTarget=true conditions"))
        if "completionTime" in status and "Complete" not in true:
            text = "cannot set completionTime when there is no Complete=True condition"
            errors.append(invalid("status.completionTime", status["completionTime"], text))
        if "completionTime" not in status and "Complete" in true:
            errors.append(required("status.completionTime", "completionTime is required for Complete jobs"))
        if "Failed" in true and "FailureTarget" not in true:
            text = "cannot set Failed=True condition without the FailureTarget=true condition"
            errors.append(invalid(field_path, OMIT, text))
        if "Complete" in true and "SuccessCriteriaMet" not in true:
            text = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            errors.append(invalid(field_path, OMIT, text))
        if true & {"Complete", "Failed"}:
            if status.get("active", 0) > 0:
                errors.append(invalid("status.active", status["active"], "active>0 is invalid for finished job"))
            if "startTime" not in status:
                errors.append(required("status.startTime", "startTime is required for finished job"))
        if "ready" in status and status["ready"] > status.get("active", 0):
            errors.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
        return errors

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if old is None:
            return name_warnings(obj["metadata"].get("name", "")) + job_warnings(obj["spec"], "spec")
        if obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return []
        return job_warnings(obj["spec"], "spec")

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("status.successful",))

    def unknown_selector(self, label: str) -> str:
        return f'field label "{label}" not supported for Job'

    def admit(self, obj: Object | None, old: Object | None, ctx: RequestContext) -> None:
        super().admit(obj, old, ctx)
        if ctx.operation == "DELETE" and not {"propagationPolicy", "orphanDependents"} & set(ctx.options):
            ctx.warn(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
                "remove them or set propagationPolicy=Orphan to suppress this warning"
            )

    def delete_finalizers(self, obj: Object, options: Object) -> tuple[str, ...] | None:
        """A Job orphans its pods unless the request sets a propagation policy."""
        have = obj["metadata"].get("finalizers") or ()
        return (*have, "orphan") if "orphan" not in have else tuple(have)


def _steerable(job: Object) -> bool:
    """A suspended Job with no pods may still change where and how large its pods are."""
    status = job.get("status") or {}
    rests = any(c.get("type") == "Suspended" and c.get("status") == "True" for c in status.get("conditions") or ())
    return bool(job["spec"].get("suspend") and ("startTime" not in status or rests) and not status.get("active"))


def _steered(spec: Spec, new_spec: Spec) -> dict[str, Any]:
    """The old spec with everything taken over that a resting Job may change."""
    copy = dict(spec)
    for field in ("nodeSelector", "tolerations", "schedulingGates"):
        copy.pop(field, None)
        if field in new_spec:
            copy[field] = new_spec[field]
    affinity = {kind: terms for kind, terms in (spec.get("affinity") or {}).items() if kind != "nodeAffinity"}
    given = new_spec.get("affinity")
    if given is not None and "nodeAffinity" in given:
        affinity["nodeAffinity"] = given["nodeAffinity"]
    copy.pop("affinity", None)
    if affinity or given is not None:
        copy["affinity"] = affinity
    for group in ("containers", "initContainers"):
        ours, theirs = spec.get(group) or (), new_spec.get(group) or ()
        if ours and len(ours) == len(theirs):
            copy[group] = [_resized(own, other) for own, other in zip(ours, theirs, strict=True)]
    return copy


def _resized(container: Spec, new_spec: Spec) -> Spec:
    if container.get("name") != new_spec.get("name"):
        return container
    rest = {field: value for field, value in container.items() if field != "resources"}
    return rest | ({"resources": new_spec["resources"]} if "resources" in new_spec else {})
