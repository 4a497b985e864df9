"""Environment variables and where their values come from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, invalid, required, unsupported

ENV_FIELDS = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
]
VOLUME_FIELDS = ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"]
_CONVERTIBLE = {*ENV_FIELDS, *VOLUME_FIELDS, "spec.restartPolicy", "status.phase", "metadata.labels"}
RESOURCE_FIELDS = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
]
_BYTE_DIVISORS = frozenset(["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"])
_SUBSCRIPT = re.compile(r"^([^\[]+)\['(.*)'\]$")


def variables(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, variable in enumerate(entries):
        field_path, name = f"{path}[{index}]", variable.get("name", "")
        if not name:
            errors.append(required(f"{field_path}.name"))
        elif not name.isidentifier():
            errors += [invalid(f"{field_path}.name", name, text) for text in formats.env_name(name)]
        if "valueFrom" in variable:
            errors += _value_from(variable, f"{field_path}.valueFrom")
    return errors


def _value_from(variable: Mapping[str, Any], path: str) -> list[FieldError]:
    source = variable["valueFrom"]
    errors: list[FieldError] = []
    if "fieldRef" in source:
        errors += field_reference(source["fieldRef"], ENV_FIELDS, f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        errors += resource_reference(source["resourceFieldRef"], f"{path}.resourceFieldRef", volume=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            errors += _key_reference(source[kind], f"{path}.{kind}")
    if not source:
        text = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid(path, "", text))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _key_reference(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    name, key = reference.get("name", ""), reference.get("key", "")
    errors = [invalid(f"{path}.name", name, text) for text in formats.subdomain(name)]
    if not key:
        errors.append(required(f"{path}.key"))
    else:
        errors += [invalid(f"{path}.key", key, text) for text in formats.config_key(key)]
    return errors


def field_reference(reference: Mapping[str, Any], allowed: Sequence[str], path: str) -> list[FieldError]:
    """A downward API reference to a field of the pod."""
    if not reference.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    label = reference.get("fieldPath", "")
    if not label:
        return [required(f"{path}.fieldPath")]
    if reference["apiVersion"] != "v1":
        text = f"error converting fieldPath: unsupported pod version: {reference['apiVersion']}"
        return [invalid(f"{path}.fieldPath", label, text)]
    subscripted = _SUBSCRIPT.match(label)
    if subscripted:
        field, key = subscripted[1], subscripted[2]
        if field == "metadata.annotations":
            return [invalid(path, key.lower(), text) for text in formats.qualified_name(key.lower())]
        if field == "metadata.labels":
            return [invalid(path, key, text) for text in formats.qualified_name(key)]
        text = f"error converting fieldPath: field label does not support subscript: {label}"
        return [invalid(f"{path}.fieldPath", label, text)]
    if label not in _CONVERTIBLE:
        text = f"error converting fieldPath: field label not supported: {label}"
        return [invalid(f"{path}.fieldPath", label, text)]
    return [] if label in allowed else [unsupported(f"{path}.fieldPath", label, sorted(allowed))]


def resource_reference(reference: Mapping[str, Any], path: str, volume: bool) -> list[FieldError]:
    """A downward API reference to a container's limit or request."""
    resource = reference.get("resource", "")
    errors: list[FieldError] = []
    if volume and not reference.get("containerName"):
        errors.append(required(f"{path}.containerName"))
    elif not resource:
        errors.append(required(f"{path}.resource"))
    elif resource not in RESOURCE_FIELDS and not resource.startswith(("requests.hugepages-", "limits.hugepages-")):
        errors.append(unsupported(f"{path}.resource", resource, RESOURCE_FIELDS))
    divisor = reference.get("divisor", "0")
    if divisor != "0":
        errors += _divisor(resource, divisor, path)
    return errors


def _divisor(resource: str, divisor: str, path: str) -> list[FieldError]:
    _, _, name = resource.partition(".")
    field_path = f"{path}.divisor"
    if name == "cpu":
        if divisor in ("1m", "1"):
            return []
        return [invalid(field_path, resource, "only divisor's values 1m and 1 are supported with the cpu resource")]
    words = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name)
    if words is None and name.startswith("hugepages-"):
        words = "hugepages"
    if words is None or divisor in _BYTE_DIVISORS:
        return []
    text = (
        "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported "
        f"with the {words} resource"
    )
    return [invalid(field_path, resource, text)]


def sources(entries: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    """envFrom."""
    errors: list[FieldError] = []
    for index, entry in enumerate(entries):
        field_path = f"{path}[{index}]"
        prefix = entry.get("prefix", "")
        if prefix:
            errors += [invalid(f"{field_path}.prefix", prefix, text) for text in formats.env_name(prefix)]
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in entry]
        for kind in kinds:
            name = entry[kind].get("name", "")
            if not name:
                errors.append(required(f"{field_path}.{kind}.name"))
            else:
                texts = formats.subdomain(name[:-2] + "a" if name.endswith("-") and len(name) > 1 else name)
                errors += [invalid(f"{field_path}.{kind}.name", name, text) for text in texts]
        if not kinds:
            errors.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(kinds) > 1:
            errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors
