"""Resource names and quantities of containers and pods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from dovetail.model import formats, quantity
from dovetail.model.validation.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)

HUGEPAGES = "hugepages-"
STANDARD = frozenset(
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
COUNTED = frozenset(
    [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ]
)
NEGATIVE = "must be greater than or equal to 0"

amount = lru_cache(maxsize=8192)(quantity.parse)


def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=1024)
def is_extended(name: str) -> bool:
    return not is_native(name) and not name.startswith("requests.") and not formats.qualified_name(f"requests.{name}")


def overcommit_allowed(name: str) -> bool:
    return is_native(name) and not name.startswith(HUGEPAGES)


def is_standard(name: str) -> bool:
    return name in STANDARD or name.startswith((HUGEPAGES, "requests." + HUGEPAGES))


def resource_name(name: str, path: str) -> list[FieldError]:
    errors = [invalid(path, name, text) for text in formats.qualified_name(name)]
    if not errors and "/" not in name and not is_standard(name):
        errors.append(invalid(path, name, "must be a standard resource type or fully qualified"))
    return errors


def container_resource_name(name: str, path: str) -> list[FieldError]:
    if name in ("cpu", "memory"):
        return []
    errors = resource_name(name, path)
    if "/" not in name:
        if name != "ephemeral-storage" and not name.startswith(HUGEPAGES):
            errors.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        errors.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return errors


def pod_resource_name(name: str, path: str) -> list[FieldError]:
    errors = resource_name(name, path)
    if not errors and name not in ("cpu", "memory") and not name.startswith(HUGEPAGES):
        errors.append(unsupported(path, name, ("cpu", "hugepages-", "memory")))
    return errors


def value(name: str, text: str, path: str) -> list[FieldError]:
    """A quantity of a resource: not negative, whole where the resource is counted."""
    number = amount(text)
    errors = []
    if number < amount("0"):
        errors.append(invalid(path, text, NEGATIVE))
    if (name in COUNTED or is_extended(name)) and number.milli % 1000:
        errors.append(invalid(path, text, "must be an integer"))
    return errors


def huge_page(name: str, text: str, path: str) -> list[FieldError]:
    try:
        page = amount(name.removeprefix(HUGEPAGES))
        fits = page.milli > 0 and page.milli % 1000 == 0 and amount(text).whole % page.whole == 0
    except quantity.QuantityError:
        fits = False
    return [] if fits else [invalid(path, text, f"{text} is not positive integer multiple of {name}")]


def requirements(
    resources: Mapping[str, Any],
    path: str,
    claims: frozenset[str] = frozenset(),
    name_rule: Callable[[str, str], list[FieldError]] = container_resource_name,
) -> list[FieldError]:
    """Limits and requests of a container (or of a pod, with its own name rule)."""
    errors: list[FieldError] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name in sorted(limits):
        field_path = f"{path}.limits[{name}]"
        errors += name_rule(name, field_path) + value(name, limits[name], field_path)
        if name.startswith(HUGEPAGES):
            errors += huge_page(name, limits[name], field_path)
    for name in sorted(requests):
        field_path = f"{path}.requests[{name}]"
        errors += name_rule(name, field_path) + value(name, requests[name], field_path)
        errors += _against_limit(name, requests[name], limits, path)
        if name.startswith(HUGEPAGES):
            errors += huge_page(name, requests[name], field_path)
    both = {*limits, *requests}
    if not both & {"cpu", "memory"} and any(name.startswith(HUGEPAGES) for name in both):
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    if "claims" in resources:
        errors += _claims(resources["claims"], claims, f"{path}.claims")
    return errors


def _against_limit(name: str, request: str, limits: Mapping[str, str], path: str) -> list[FieldError]:
    limit = limits.get(name)
    if limit is None:
        if overcommit_allowed(name):
            return []
        return [required(f"{path}.limits", "Limit must be set for non overcommitable resources")]
    if request == limit:
        return []
    requested, allowed = amount(request), amount(limit)
    field_path = f"{path}.requests"
    if requested != allowed and not overcommit_allowed(name):
        return [invalid(field_path, request, f"must be equal to {name} limit of {limit}")]
    if requested > allowed:
        return [invalid(field_path, request, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _claims(claims: Any, claim_names: frozenset[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        name, field_path = claim.get("name", ""), f"{path}[{index}]"
        if not name:
            errors.append(required(field_path))
            continue
        key = f"{name}/{claim['request']}" if claim.get("request") else name
        if name in seen or key in seen:
            errors.append(duplicate(field_path, key))
        seen.add(key)
        if name not in claim_names:
            hint = ": " + ", ".join(sorted(claim_names)) if claim_names else " which is empty"
            error = not_found(field_path, name)
            detail = f"must be one of the names in pod.spec.resourceClaims{hint}"
            errors.append(FieldError(error.type, field_path, name, detail))
    return errors
