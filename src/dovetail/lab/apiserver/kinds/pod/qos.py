"""A pod's quality-of-service class: what it asked for, in one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.model.validation.resources import amount

_COMPUTE = ("cpu", "memory")


def qos_class(spec: Mapping[str, Any]) -> str:
    own = spec.get("resources") or {}
    if own.get("requests") or own.get("limits"):
        return _class([own])
    groups = (spec.get("containers") or (), spec.get("initContainers") or ())
    return _class([container.get("resources") or {} for group in groups for container in group])


def _class(entries: list[Mapping[str, Any]]) -> str:
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    guaranteed = True
    for entry in entries:
        _add(requests, entry.get("requests") or {})
        count = _add(limits, entry.get("limits") or {})
        guaranteed = guaranteed and count == 2
    if not requests and not limits:
        return "BestEffort"
    if (
        guaranteed
        and all(limits.get(name) == total for name, total in requests.items())
        and len(requests) == len(limits)
    ):
        return "Guaranteed"
    return "Burstable"


def _add(totals: dict[str, Any], amounts: Mapping[str, str]) -> int:
    count = 0
    for name in _COMPUTE:
        text = amounts.get(name)
        if text is not None and text != "0":
            totals[name] = totals[name] + amount(text) if name in totals else amount(text)
            count += 1
    return count
