"""Probes and lifecycle handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.model import formats
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported

_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def port_or_name(port: int | str, path: str) -> list[FieldError]:
    texts = formats.port_name(port) if isinstance(port, str) else formats.port_number(port)
    return [invalid(path, port, text) for text in texts]


def probe(value: Mapping[str, Any], name: str, path: str, grace: int | None) -> list[FieldError]:
    errors = handler(value, path, grace)
    for field in _NUMBERS:
        if value.get(field, 0) < 0:
            errors.append(invalid(f"{path}.{field}", value[field], "must be greater than or equal to 0"))
    period = value.get("terminationGracePeriodSeconds")
    if period is not None and period <= 0:
        errors.append(invalid(f"{path}.terminationGracePeriodSeconds", period, "must be greater than 0"))
    if name == "readinessProbe":
        if period is not None:
            text = "must not be set for readinessProbes"
            errors.append(invalid(f"{path}.terminationGracePeriodSeconds", period, text))
    elif value.get("successThreshold") != 1:
        errors.append(invalid(f"{path}.successThreshold", value.get("successThreshold", 0), "must be 1"))
    return errors


def lifecycle(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for hook in ("postStart", "preStop"):
        if hook in value:
            errors += handler(value[hook], f"{path}.{hook}", grace)
    return errors


def handler(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    """Exactly one way to act."""
    kinds = [kind for kind in _HANDLERS if kind in value]
    if not kinds:
        return [required(path, "must specify a handler type")]
    errors = _HANDLER_CHECKS[kinds[0]](value[kinds[0]], f"{path}.{kinds[0]}", grace)
    return errors + [forbidden(f"{path}.{kind}", "may not specify more than 1 handler type") for kind in kinds[1:]]


def _exec(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    return [] if value.get("command") else [required(f"{path}.command")]


def _http(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    errors = [] if value.get("path") else [required(f"{path}.path")]
    errors += port_or_name(value.get("port", 0), f"{path}.port")
    if value.get("scheme", "") not in ("HTTP", "HTTPS"):
        errors.append(unsupported(f"{path}.scheme", value.get("scheme", ""), ("HTTP", "HTTPS")))
    for header in value.get("httpHeaders", ()):
        name = header.get("name", "")
        errors += [invalid(f"{path}.httpHeaders", name, text) for text in formats.header_name(name)]
    return errors


def _port(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    return port_or_name(value.get("port", 0), f"{path}.port")


def _sleep(value: Mapping[str, Any], path: str, grace: int | None) -> list[FieldError]:
    seconds = value.get("seconds", 0)
    if grace is None or 0 <= seconds <= grace:
        return []
    text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [invalid(path, seconds, text)]


_HANDLER_CHECKS = {"exec": _exec, "httpGet": _http, "tcpSocket": _port, "grpc": _port, "sleep": _sleep}
