"""Jobs and CronJobs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.fielderror import (
    OMIT,
    FieldError,
    duplicate,
    invalid,
    required,
    too_long,
    too_many,
    unsupported,
)
from dovetail.lab.apiserver.kinds import formats, metadata, numbers
from dovetail.lab.apiserver.kinds.base import KindStrategy, immutable
from dovetail.lab.apiserver.kinds.internal import internal
from dovetail.lab.apiserver.kinds.pod.defaults import template_defaults
from dovetail.lab.apiserver.kinds.pod.spec import check_template
from dovetail.lab.apiserver.kinds.pod.warnings import warnings as template_warnings
from dovetail.lab.apiserver.kinds.schedules import schedule_complaint, zone_complaint
from dovetail.lab.apiserver.kinds.selectors import label_name, label_selector, match_labels
from dovetail.lab.apiserver.registry import Context, Object

Spec = Mapping[str, Any]
_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def job_defaults(spec: Object) -> None:
    """What a Job gets, and the template of a CronJob does not: counts and modes."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    failure_policy_defaults(spec)


def failure_policy_defaults(spec: Object) -> None:
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            if not pattern.get("status"):
                pattern["status"] = "True"


def check_job_spec(spec: Spec, path: str) -> list[FieldError]:
    counts = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")
    found = numbers.all_nonnegative(spec, (*counts, "backoffLimitPerIndex", "maxFailedIndexes"), path)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        found.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        found += _managed_by(spec["managedBy"], f"{path}.managedBy")
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        found.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        found += _indexed(spec, path)
    if mode == "NonIndexed":
        text = "requires indexed completion mode"
        names = ("backoffLimitPerIndex", "maxFailedIndexes")
        found += [invalid(f"{path}.{name}", spec[name], text) for name in names if name in spec]
    if "podFailurePolicy" in spec:
        found += _failure_policy(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec and mode != "Indexed":
        shown = internal("batch.SuccessPolicy", spec["successPolicy"])
        found.append(invalid(f"{path}.successPolicy", shown, "requires indexed completion mode"))
    found += _replacement(spec, f"{path}.podReplacementPolicy")
    template = spec.get("template") or {}
    found += check_template(template, f"{path}.template")
    return found + _restart(spec, template, f"{path}.template.spec.restartPolicy")


def _managed_by(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    host, _, rest = name.partition("/")
    found: list[FieldError] = []
    if not host or not rest:
        found.append(invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        found += [invalid(path, host, text) for text in formats.subdomain(host)]
    if formats.size(name) > 63:
        found.append(too_long(path, 63))
    return found


def _indexed(spec: Spec, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    if "completions" not in spec:
        found.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if spec.get("parallelism", 0) > 100_000:
        text = "must be less than or equal to 100000 when completion mode is Indexed"
        found.append(invalid(f"{path}.parallelism", spec["parallelism"], text))
    failed = spec.get("maxFailedIndexes")
    if failed is not None and failed > spec.get("completions", failed):
        found.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    return found


def _replacement(spec: Spec, path: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return []
    known = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    return [] if policy in known else [unsupported(path, policy, known)]


def _restart(spec: Spec, template: Spec, path: str) -> list[FieldError]:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("Always", ""):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [unsupported(path, policy, ("OnFailure", "Never"))]
    if "podFailurePolicy" in spec and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _failure_policy(spec: Spec, path: str) -> list[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    found = [too_many(f"{path}.rules", len(rules), 20)] if len(rules) > 20 else []
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {c.get("name") for group in ("containers", "initContainers") for c in pod.get(group) or ()}
    for index, rule in enumerate(rules):
        found += _rule(spec, rule, f"{path}.rules[{index}]", names)
    return found


def _rule(spec: Spec, rule: Spec, path: str, names: set[Any]) -> list[FieldError]:
    found: list[FieldError] = []
    action = rule.get("action", "")
    if not action:
        found.append(required(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'))
    elif action == "FailIndex":
        if "backoffLimitPerIndex" not in spec:
            text = "requires the backoffLimitPerIndex to be set"
            found.append(invalid(f"{path}.action", action, text))
    elif action not in _ACTIONS:
        found.append(unsupported(f"{path}.action", action, _ACTIONS))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        found += _exit_codes(codes, f"{path}.onExitCodes", names)
    for index, pattern in enumerate(conditions):
        at = f"{path}.onPodConditions[{index}]"
        found += label_name(pattern.get("type", ""), f"{at}.type")
        if pattern.get("status", "") not in ("False", "True", "Unknown"):
            found.append(unsupported(f"{at}.status", pattern.get("status", ""), ("False", "True", "Unknown")))
    if codes is not None and conditions:
        found.append(invalid(path, OMIT, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        found.append(invalid(path, OMIT, "specifying one of OnExitCodes and OnPodConditions is required"))
    return found


def _exit_codes(codes: Spec, path: str, names: set[Any]) -> list[FieldError]:
    found: list[FieldError] = []
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        found.append(required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in ("In", "NotIn"):
        found.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    name = codes.get("containerName")
    if name is not None and name not in names:
        text = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(f"{path}.containerName", name, text))
    if not values:
        found.append(invalid(f"{path}.values", codes.get("values"), "at least one value is required"))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            found.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            found.append(duplicate(f"{path}.values[{index}]", value))
        seen.add(value)
    if any(a > b for a, b in itertools.pairwise(values)):
        found.append(invalid(f"{path}.values", values, "must be ordered"))
    return found


class JobStrategy(KindStrategy):
    generation = True
    status_door = True

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        template = spec.setdefault("template", {"metadata": {}, "spec": {}})
        template_defaults(template)
        labels = (template.get("metadata") or {}).get("labels")
        if labels and not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)
        job_defaults(spec)

    def prepare_create(self, obj: Object, ctx: Context) -> None:
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
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(merged)
        selector = spec.setdefault("selector", {})
        matched = selector.get("matchLabels") or {}
        if _UID not in matched:
            selector["matchLabels"] = matched | {_UID: uid}

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        spec = obj["spec"]
        found = self._generated(obj) if not spec.get("manualSelector") else []
        found += self._spec(spec)
        if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
            name = obj["metadata"].get("name", "")
            longest = f"{name}-{spec['completions'] - 1}"
            if formats.label(longest):
                text = f"will not able to create pod with invalid DNS label: {longest}"
                found.append(invalid("metadata.name", name, text))
        return found

    def _generated(self, obj: Object) -> list[FieldError]:
        meta, spec = obj["metadata"], obj["spec"]
        path = "spec.template.metadata.labels"
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        found: list[FieldError] = []
        expected = {_UID: meta.get("uid", ""), _NAME: meta.get("name", "")}
        legacy = {"controller-uid": meta.get("uid", ""), "job-name": meta.get("name", "")}
        for key, value in (legacy | expected).items():
            if key not in labels:
                found.append(required(f"{path}[{key}]", f"must be '{value}'"))
            elif labels[key] != value:
                found.append(invalid(f"{path}[{key}]", labels, f"must be '{value}'"))
        selector = spec.get("selector") or {}
        if not label_selector(selector, "") and not match_labels(selector, expected | legacy):
            found.append(invalid("spec.selector", selector, "`selector` not auto-generated"))
        return found

    def _spec(self, spec: Spec) -> list[FieldError]:
        found = check_job_spec(spec, "spec")
        selector = spec.get("selector")
        if selector is None:
            return [*found, required("spec.selector")]
        found += label_selector(selector, "spec.selector")
        labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if not label_selector(selector, "") and not match_labels(selector, labels):
            text = "`selector` does not match template `labels`"
            found.append(invalid("spec.template.metadata.labels", labels or None, text))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        spec, before = obj["spec"], old["spec"]
        found = self._spec(spec) + self._completions(spec, before)
        found += immutable(spec.get("selector"), before.get("selector"), "spec.selector")
        found += self._template(spec, before, old)
        found += immutable(spec.get("completionMode"), before.get("completionMode"), "spec.completionMode")
        for field, kind in (("podFailurePolicy", "batch.PodFailurePolicy"), ("successPolicy", "batch.SuccessPolicy")):
            if spec.get(field) != before.get(field):
                shown = internal(f"*{kind}", spec.get(field))
                found.append(invalid(f"spec.{field}", shown, metadata.IMMUTABLE))
        for field in ("backoffLimitPerIndex", "managedBy"):
            found += immutable(spec.get(field), before.get(field), f"spec.{field}")
        return found

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
        if before.get("suspend") and "startTime" not in (old.get("status") or {}):
            was = _with_directives(was, new)
        if new == was:
            return []
        return [invalid("spec.template", internal("core.PodTemplateSpec", new), metadata.IMMUTABLE)]

    def check_status(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        status = obj.get("status") or {}
        names = ("active", "succeeded", "failed", "ready", "terminating")
        found = numbers.all_nonnegative(status, names, "status")
        true = {c.get("type") for c in status.get("conditions", ()) if c.get("status") == "True"}
        at = "status.conditions"
        if {"Complete", "Failed"} <= true:
            found.append(invalid(at, OMIT, "cannot set Complete=True and Failed=true conditions"))
        if {"Complete", "FailureTarget"} <= true:
            found.append(invalid(at, OMIT, "cannot set Complete=True and FailureTarget=true conditions"))
        if "completionTime" in status and "Complete" not in true:
            text = "cannot set completionTime when there is no Complete=True condition"
            found.append(invalid("status.completionTime", status["completionTime"], text))
        if "completionTime" not in status and "Complete" in true:
            found.append(required("status.completionTime", "completionTime is required for Complete jobs"))
        if "Failed" in true and "FailureTarget" not in true:
            text = "cannot set Failed=True condition without the FailureTarget=true condition"
            found.append(invalid(at, OMIT, text))
        if "Complete" in true and "SuccessCriteriaMet" not in true:
            text = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
            found.append(invalid(at, OMIT, text))
        if true & {"Complete", "Failed"}:
            if status.get("active", 0) > 0:
                found.append(invalid("status.active", status["active"], "active>0 is invalid for finished job"))
            if "startTime" not in status:
                found.append(required("status.startTime", "startTime is required for finished job"))
        if status.get("ready", 0) > status.get("active", 0):
            found.append(invalid("status.ready", status["ready"], "cannot set more ready pods than active"))
        return found

    def warnings(self, obj: Object, old: Object | None, ctx: Context) -> list[str]:
        if old is not None:
            return []
        template = obj["spec"].get("template") or {}
        return template_warnings(template.get("spec") or {}, template.get("metadata") or {}, "spec.template")

    def selectable(self, obj: Object) -> Mapping[str, str]:
        return {"status.successful": str((obj.get("status") or {}).get("succeeded", 0))}

    def selectable_fields(self) -> frozenset[str]:
        return frozenset(("status.successful",))

    def unknown_selector(self, label: str) -> str:
        return f'field label "{label}" not supported for Job'

    def admit(self, obj: Object | None, old: Object | None, ctx: Context) -> None:
        super().admit(obj, old, ctx)
        if ctx.operation == "DELETE" and not {"propagationPolicy", "orphanDependents"} & set(ctx.options):
            ctx.warn(
                "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
                "remove them or set propagationPolicy=Orphan to suppress this warning"
            )

    def delete_finalizers(self, obj: Object, options: Object) -> tuple[str, ...] | None:
        """A Job orphans its pods unless told otherwise."""
        have = obj["metadata"].get("finalizers") or ()
        return (*have, "orphan") if "orphan" not in have else tuple(have)


def _with_directives(template: Spec, new: Spec) -> dict[str, Any]:
    """A suspended Job that never ran may still be steered."""
    copy = dict(template)
    spec, wanted = dict(template.get("spec") or {}), new.get("spec") or {}
    for field in ("nodeSelector", "tolerations", "schedulingGates", "affinity"):
        spec.pop(field, None)
        if field in wanted:
            spec[field] = wanted[field]
    copy["spec"] = spec
    copy["metadata"] = new.get("metadata") or {}
    return copy


class CronJobStrategy(KindStrategy):
    generation = True
    status_door = True
    name_rule = staticmethod(formats.subdomain)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        job = spec.setdefault("jobTemplate", {}).setdefault("spec", {})
        template_defaults(job.setdefault("template", {"metadata": {}, "spec": {}}))
        failure_policy_defaults(job)

    def check(self, obj: Object, ctx: Context) -> list[FieldError]:
        name = obj["metadata"].get("name", "")
        found = self._spec(obj["spec"])
        if formats.size(name) > 52:
            found.append(invalid("metadata.name", name, "must be no more than 52 characters"))
        return found

    def check_change(self, obj: Object, old: Object, ctx: Context) -> list[FieldError]:
        return self._spec(obj["spec"])

    def _spec(self, spec: Spec) -> list[FieldError]:
        found: list[FieldError] = []
        schedule = spec.get("schedule", "")
        if not schedule:
            found.append(required("spec.schedule"))
        else:
            complaint = schedule_complaint(schedule)
            if complaint:
                found.append(invalid("spec.schedule", schedule, complaint))
            if "TZ" in schedule:
                text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
                found.append(invalid("spec.schedule", schedule, text))
        found += numbers.nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
        policy = spec.get("concurrencyPolicy", "")
        known = ("Allow", "Forbid", "Replace")
        if policy not in known:
            at = "spec.concurrencyPolicy"
            found.append(unsupported(at, policy, known) if policy else required(at))
        found += numbers.nonnegative(spec.get("successfulJobsHistoryLimit"), "spec.successfulJobsHistoryLimit")
        found += numbers.nonnegative(spec.get("failedJobsHistoryLimit"), "spec.failedJobsHistoryLimit")
        if "timeZone" in spec:
            complaint = zone_complaint(spec["timeZone"])
            if complaint:
                found.append(invalid("spec.timeZone", spec["timeZone"], complaint))
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        found += check_job_spec(job, "spec.jobTemplate.spec")
        if "selector" in job:
            text = "`selector` will be auto-generated"
            found.append(invalid("spec.jobTemplate.spec.selector", job["selector"], text))
        if job.get("manualSelector"):
            found.append(unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
        return found

    def warnings(self, obj: Object, old: Object | None, ctx: Context) -> list[str]:
        if old is not None:
            return []
        found = []
        texts = formats.label(obj["metadata"].get("name", ""))
        if texts:
            found.append(
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
                f"a DNS label is recommended: [{' '.join(texts)}]"
            )
        template = (obj["spec"].get("jobTemplate") or {}).get("spec", {}).get("template") or {}
        path = "spec.jobTemplate.spec.template"
        return found + template_warnings(template.get("spec") or {}, template.get("metadata") or {}, path)
