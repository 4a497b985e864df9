"""Cells: the small conventions every table shares."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dovetail.lab.apiserver.gocompat import gotime

Json = dict[str, Any]


class ColumnHeader(msgspec.Struct, frozen=True):
    """A column definition."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def age(stamp: str | None, now: datetime) -> str:
    """How long ago, in the words of kubectl."""
    if not stamp:
        return "<unknown>"
    try:
        then = gotime.parse(stamp)
    except ValueError:
        return "<invalid>"
    return human((now - then).total_seconds())


def human(seconds: float) -> str:
    """A duration with at most three figures of interest."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        rest = whole % 60
        return f"{minutes}m" if rest == 0 else f"{minutes}m{rest}s"
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h" if rest == 0 else f"{hours}h{rest}m"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        rest = hours % 24
        return f"{hours // 24}d" if rest == 0 else f"{hours // 24}d{rest}h"
    days = hours // 24
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        rest = days % 365
        return f"{days // 365}y" if rest == 0 else f"{days // 365}y{rest}d"
    return f"{days // 365}y"


def created(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def containers(template: Json | None) -> tuple[str, str]:
    """Names and images of a template's containers."""
    containers = ((template or {}).get("spec") or {}).get("containers") or []
    return ",".join(container.get("name", "") for container in containers), ",".join(
        container.get("image", "") for container in containers
    )


def labels(values: Json | None) -> str:
    """A set of labels, or <none>."""
    if not values:
        return "<none>"
    return ",".join(f"{name}={item}" for name, item in sorted(values.items()))


_WORDS = {"In": "in", "NotIn": "notin"}


def selector(value: Json | None) -> str:
    """A label selector in its canonical text; empty if it selects everything."""
    parts: list[tuple[str, str]] = []
    for name, item in ((value or {}).get("matchLabels") or {}).items():
        parts.append((name, f"{name}={item}"))
    for match_expression in (value or {}).get("matchExpressions") or []:
        name, operator = match_expression["key"], match_expression["operator"]
        if operator == "Exists":
            parts.append((name, name))
        elif operator == "DoesNotExist":
            parts.append((name, f"!{name}"))
        else:
            values = ",".join(sorted(match_expression.get("values") or []))
            parts.append((name, f"{name} {_WORDS.get(operator, operator)} ({values})"))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def shown_selector(value: Json | None) -> str:
    return "<none>" if value is None else selector(value) or "<none>"


def listed(items: list[str], count: int, most: int) -> str:
    """A list cut after a few."""
    text = ",".join(items[:most])
    if not items:
        return "<unset>"
    return f"{text} + {count - most} more..." if count > most else text
