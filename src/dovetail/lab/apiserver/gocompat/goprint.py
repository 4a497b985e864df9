"""Values as Go prints them in messages: `%v` without quotes and `%#v` as source text."""

from __future__ import annotations

from typing import Any

from dovetail.model.validation.field_errors import quoted


def plain(value: Any) -> str:
    """Go's %v."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{plain(item)}" for name, item in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(plain(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def syntax(value: Any) -> str:
    """Go's %#v."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{quoted(name)}:{syntax(item)}" for name, item in sorted(value.items()))
        return "map[string]interface {}{" + inner + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(syntax(item) for item in value) + "}"
    return "interface {}(nil)" if value is None else str(value)
