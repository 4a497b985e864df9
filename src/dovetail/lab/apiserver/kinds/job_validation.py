"""The spec of a job: of a Job, and of what a CronJob makes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dovetail.lab.apiserver.gocompat.internal_types import internal
from dovetail.lab.apiserver.kinds import numbers
from dovetail.lab.apiserver.kinds.pod.spec import check_template
from dovetail.lab.apiserver.kinds.pod.warnings import warnings
from dovetail.lab.apiserver.registry import Object
from dovetail.model import formats
from dovetail.model.validation.field_errors import (
    OMIT,
    FieldError,
    duplicate,
    invalid,
    quoted,
    required,
    too_long,
    too_many,
    unsupported,
)
from dovetail.model.validation.selectors import label_name

Spec = Mapping[str, Any]


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
    errors = numbers.all_nonnegative(spec, (*counts, "backoffLimitPerIndex", "maxFailedIndexes"), path)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errors.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        errors += _managed_by(spec["managedBy"], f"{path}.managedBy")
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in ("NonIndexed", "Indexed"):
        errors.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        errors += _indexed(spec, path)
    if mode == "NonIndexed":
        text = "requires indexed completion mode"
        names = ("backoffLimitPerIndex", "maxFailedIndexes")
        errors += [invalid(f"{path}.{name}", spec[name], text) for name in names if name in spec]
    if "podFailurePolicy" in spec:
        errors += _failure_policy(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        errors += _success_policy(spec, f"{path}.successPolicy", mode == "Indexed")
    errors += _replacement(spec, f"{path}.podReplacementPolicy")
    template = spec.get("template") or {}
    errors += check_template(template, f"{path}.template")
    return errors + _restart(spec, template, f"{path}.template.spec.restartPolicy")


def _managed_by(name: str, path: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    host, _, rest = name.partition("/")
    errors: list[FieldError] = []
    if not host or not rest:
        errors.append(invalid(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        errors += [invalid(path, host, text) for text in formats.subdomain(host)]
    if formats.size(name) > 63:
        errors.append(too_long(path, 63))
    return errors


def _indexed(spec: Spec, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if "completions" not in spec:
        errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if spec.get("parallelism", 0) > 100_000:
        text = "must be less than or equal to 100000 when completion mode is Indexed"
        errors.append(invalid(f"{path}.parallelism", spec["parallelism"], text))
    failed = spec.get("maxFailedIndexes")
    if failed is not None and failed > spec.get("completions", failed):
        errors.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    return errors


def _success_policy(spec: Spec, path: str, indexed: bool) -> list[FieldError]:
    policy = spec["successPolicy"]
    if not indexed:
        return [invalid(path, internal("batch.SuccessPolicy", policy), "requires indexed completion mode")]
    rules = policy.get("rules") or ()
    errors: list[FieldError] = []
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        errors.append(required(f"{path}.rules", text))
    for index, rule in enumerate(rules):
        errors += _success_rule(rule, spec.get("completions", 0), f"{path}.rules[{index}]")
    return errors


def _success_rule(rule: Spec, completions: int, path: str) -> list[FieldError]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        return [required(path, "at least one of succeededCount or succeededIndexes must be specified")]
    errors: list[FieldError] = []
    total, problem = _count_indexes(indexes or "", completions)
    if problem:
        text = f"error parsing succeededIndexes: {problem}"
        errors.append(invalid(f"{path}.succeededIndexes", indexes, text))
    if count is None:
        return errors
    field_path = f"{path}.succeededCount"
    errors += numbers.nonnegative(count, field_path)
    if count > completions:
        text = f"must be less than or equal to {completions} (the number of specified completions)"
        errors.append(invalid(field_path, count, text))
    if indexes is not None and count > total:
        text = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        errors.append(invalid(field_path, count, text))
    return errors


def _count_indexes(text: str, completions: int) -> tuple[int, str]:
    """How many indexes intervals such as `0-3,5` name, or why they name none."""
    total, last = 0, -1
    for interval in text.split(",") if text else ():
        parts = interval.split("-")
        if len(parts) > 2:
            rule = "an index interval can have at most two parts separated by '-'"
            return 0, f"the fragment {quoted(interval)} violates the requirement that {rule}"
        ends: list[int] = []
        for part in parts:
            if not re.fullmatch(r"[+]?[0-9]+", part):
                return 0, f"cannot convert string to integer for index: {quoted(part)}"
            if int(part) >= completions:
                return 0, f"too large index: {quoted(part)}"
            if ends and ends[0] >= int(part):
                return 0, f"non-increasing order, previous: {ends[0]}, current: {part}"
            ends.append(int(part))
        if last >= ends[0]:
            return 0, f"non-increasing order, previous: {last}, current: {ends[0]}"
        total, last = total + ends[-1] - ends[0] + 1, ends[-1]
    return total, ""


def _replacement(spec: Spec, path: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return []
    policies = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    return [] if policy in policies else [unsupported(path, policy, policies)]


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
    errors = [too_many(f"{path}.rules", len(rules), 20)] if len(rules) > 20 else []
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {c.get("name") for group in ("containers", "initContainers") for c in pod.get(group) or ()}
    for index, rule in enumerate(rules):
        errors += _rule(spec, rule, f"{path}.rules[{index}]", names)
    return errors


def _rule(spec: Spec, rule: Spec, path: str, names: set[Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    action = rule.get("action", "")
    if not action:
        errors.append(required(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]'))
    elif action == "FailIndex":
        if "backoffLimitPerIndex" not in spec:
            text = "requires the backoffLimitPerIndex to be set"
            errors.append(invalid(f"{path}.action", action, text))
    elif action not in _ACTIONS:
        errors.append(unsupported(f"{path}.action", action, _ACTIONS))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if codes is not None:
        errors += _exit_codes(codes, f"{path}.onExitCodes", names)
    for index, pattern in enumerate(conditions):
        field_path = f"{path}.onPodConditions[{index}]"
        errors += label_name(pattern.get("type", ""), f"{field_path}.type")
        if pattern.get("status", "") not in ("False", "True", "Unknown"):
            errors.append(unsupported(f"{field_path}.status", pattern.get("status", ""), ("False", "True", "Unknown")))
    if codes is not None and conditions:
        errors.append(invalid(path, OMIT, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        errors.append(invalid(path, OMIT, "specifying one of OnExitCodes and OnPodConditions is required"))
    return errors


def _exit_codes(codes: Spec, path: str, names: set[Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        errors.append(required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in ("In", "NotIn"):
        errors.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    name = codes.get("containerName")
    if name is not None and name not in names:
        text = "must be one of the container or initContainer names in the pod template"
        errors.append(invalid(f"{path}.containerName", name, text))
    if not values:
        errors.append(invalid(f"{path}.values", codes.get("values"), "at least one value is required"))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            errors.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            errors.append(duplicate(f"{path}.values[{index}]", value))
        seen.add(value)
    if any(a > b for a, b in pairwise(values)):
        errors.append(invalid(f"{path}.values", values, "must be ordered"))
    return errors


def job_warnings(spec: Spec, path: str) -> list[str]:
    texts: list[str] = []
    many = spec.get("completions", 0) > 100_000 and spec.get("parallelism", 0) > 10_000
    if many and spec.get("completionMode") == "Indexed":
        texts.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than "
            "10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    template = spec.get("template") or {}
    return texts + warnings(template.get("spec") or {}, template.get("metadata") or {}, f"{path}.template")
