"""Rules, selectors and conditions, which webhooks and admission policies have in common, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.lab.apiserver.crd.cel_admission import BOOL, Declarations, complaint
from dovetail.lab.apiserver.kinds.pod.defaults import fill
from dovetail.lab.apiserver.registry import Object
from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, duplicate, invalid, required, too_many, unsupported
from dovetail.model.validation.selectors import label_name, label_selector

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
MAX_CONDITIONS = 64


def match_defaults(match: Any) -> None:
    """The defaults of matchConstraints and matchResources."""
    if match is not None:
        fill(match, {"matchPolicy": "Equivalent"})
        match.setdefault("namespaceSelector", {})
        match.setdefault("objectSelector", {})
        for field in ("resourceRules", "excludeResourceRules"):
            for rule in match.get(field) or ():
                rule.setdefault("scope", "*")


def check_rule(rule: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    operations = rule.get("operations") or []
    if not operations:
        errors.append(required(f"{path}.operations"))
    if len(operations) > 1 and "*" in operations:
        errors.append(invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations"))
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            errors.append(unsupported(f"{path}.operations[{index}]", operation, OPERATIONS))
    for field, word in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(field) or []
        if not values:
            errors.append(required(f"{path}.{field}"))
        if len(values) > 1 and "*" in values:
            errors.append(invalid(f"{path}.{field}", values, f"if '*' is present, must not specify other {word}"))
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    errors += _resources(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in ("*", "Cluster", "Namespaced"):
        errors.append(unsupported(f"{path}.scope", scope, ("*", "Cluster", "Namespaced")))
    return errors


def _resources(resources: list[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if not resources:
        errors.append(required(path))
    whole_resources: set[str] = set()
    whole_subresources: set[str] = set()
    plain = False
    for index, name in enumerate(resources):
        if not name:
            errors.append(required(f"{path}[{index}]"))
            continue
        resource, slash, subresource = name.partition("/")
        if not slash:
            plain = name != "*"
            continue
        if resource in whole_resources:
            text = f"if '{resource}/*' is present, must not specify {name}"
            errors.append(invalid(f"{path}[{index}]", name, text))
        if subresource in whole_subresources:
            text = f"if '*/{subresource}' is present, must not specify {name}"
            errors.append(invalid(f"{path}[{index}]", name, text))
        if subresource == "*":
            whole_resources.add(resource)
        if resource == "*":
            whole_subresources.add(subresource)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        text = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, text))
    return errors


def check_choice(obj: Object, field: str, path: str, choices: Sequence[str]) -> list[FieldError]:
    value = obj.get(field)
    return [] if value is None or value in choices else [unsupported(f"{path}.{field}", value, choices)]


def check_conditions(conditions: Sequence[Object], path: str, *, params: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    if len(conditions) > MAX_CONDITIONS:
        errors.append(too_many(path, len(conditions), MAX_CONDITIONS))
    for index, condition in enumerate(conditions):
        place, name = f"{path}[{index}]", condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if not expression:
            errors.append(required(f"{place}.expression"))
        else:
            text = complaint(expression, [BOOL], Declarations(params=params))
            if text:
                errors.append(invalid(f"{place}.expression", expression, text))
        if not name:
            errors.append(required(f"{place}.name"))
            continue
        errors += label_name(name, f"{place}.name")
        if name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
    return errors


def check_match(match: Object | None, path: str) -> list[FieldError]:
    """matchConstraints of a policy, matchResources of a binding."""
    if match is None:
        return []
    errors = check_choice(match, "matchPolicy", path, MATCH_POLICIES)
    errors += label_selector(match.get("namespaceSelector"), f"{path}.namespaceSelector")
    errors += label_selector(match.get("objectSelector"), f"{path}.objectSelector")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field) or ()):
            place = f"{path}.{field}[{index}]"
            errors += _names(rule.get("resourceNames") or (), f"{place}.resourceNames")
            errors += check_rule(rule, place)
    return errors


def _names(names: Sequence[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, name in enumerate(names):
        errors += [invalid(f"{path}[{index}]", name, text) for text in formats.path_segment(name)]
        if name in names[:index]:
            errors.append(duplicate(f"{path}[{index}]", name))
    return errors
