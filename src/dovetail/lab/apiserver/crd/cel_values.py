"""Values as rules see them: times, durations and bytes instead of the texts JSON has for them, doubles for numbers."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.crd.cel import CelError
from dovetail.lab.apiserver.crd.structural import FORMATS, Structural


def typed(node: Structural, value: Any) -> Any:
    """A value for an expression; the same object where its JSON is all there is to it."""
    if not node.rich:
        return value
    if isinstance(value, dict):
        return {name: _below(node.properties.get(name) or node.additional, item) for name, item in value.items()}
    if isinstance(value, list):
        return value if node.items is None else [typed(node.items, item) for item in value]
    if node.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    read = FORMATS.get(node.raw.get("format", ""))
    if node.type == "string" and read is not None and isinstance(value, str):
        try:
            return read(value)
        except (CelError, ValueError):
            return value  # its format is complained about elsewhere
    return value


def _below(node: Structural | None, value: Any) -> Any:
    return value if node is None else typed(node, value)
