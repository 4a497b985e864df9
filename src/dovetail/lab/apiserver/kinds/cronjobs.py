"""CronJobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.base import CountedStrategy
from dovetail.lab.apiserver.kinds.job_validation import check_job_spec, failure_policy_defaults, job_warnings
from dovetail.lab.apiserver.kinds.pod.defaults import template_defaults
from dovetail.lab.apiserver.kinds.pod.warnings import name_warnings
from dovetail.lab.apiserver.kinds.schedules import schedule_complaint, zone_complaints
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, invalid, required, unsupported

Spec = Mapping[str, Any]


class CronJobStrategy(CountedStrategy):
    rechecks_status = False
    generation = True
    has_status_subresource = True
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

    def check(self, obj: Object, ctx: RequestContext) -> list[FieldError]:
        name = obj["metadata"].get("name", "")
        errors = self._spec(obj["spec"])
        if formats.size(name) > 52:
            errors.append(invalid("metadata.name", name, "must be no more than 52 characters"))
        return errors

    def check_change(self, obj: Object, old: Object, ctx: RequestContext) -> list[FieldError]:
        return self._spec(obj["spec"])

    def _spec(self, spec: Spec) -> list[FieldError]:
        errors: list[FieldError] = []
        schedule = spec.get("schedule", "")
        if not schedule:
            errors.append(required("spec.schedule"))
        else:
            complaint = schedule_complaint(schedule)
            if complaint:
                errors.append(invalid("spec.schedule", schedule, complaint))
            if "TZ" in schedule:
                text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
                errors.append(invalid("spec.schedule", schedule, text))
        errors += numbers.nonnegative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
        if "timeZone" in spec:
            zone = spec["timeZone"]
            errors += [invalid("spec.timeZone", zone, complaint) for complaint in zone_complaints(zone)]
        policy = spec.get("concurrencyPolicy", "")
        policies = ("Allow", "Forbid", "Replace")
        if policy not in policies:
            field_path = "spec.concurrencyPolicy"
            errors.append(unsupported(field_path, policy, policies) if policy else required(field_path))
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        errors += check_job_spec(job, "spec.jobTemplate.spec")
        if "selector" in job:
            text = "`selector` will be auto-generated"
            errors.append(invalid("spec.jobTemplate.spec.selector", job["selector"], text))
        if job.get("manualSelector"):
            errors.append(unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
        errors += numbers.nonnegative(spec.get("successfulJobsHistoryLimit"), "spec.successfulJobsHistoryLimit")
        errors += numbers.nonnegative(spec.get("failedJobsHistoryLimit"), "spec.failedJobsHistoryLimit")
        return errors

    def warnings(self, obj: Object, old: Object | None, ctx: RequestContext) -> list[str]:
        if ctx.subresource:
            return []
        warnings = name_warnings(obj["metadata"].get("name", "")) if old is None else []
        if old is None or obj["metadata"].get("generation") != old["metadata"].get("generation"):
            job = (obj["spec"].get("jobTemplate") or {}).get("spec") or {}
            warnings += job_warnings(job, "spec.jobTemplate.spec")
        if old is not None and "TZ" in obj["spec"].get("schedule", ""):
            warnings.append(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see "
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
        return warnings
