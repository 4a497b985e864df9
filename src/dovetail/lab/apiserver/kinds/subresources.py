"""The doors of built-in kinds that do more than show the object: scale, eviction, binding, token, log."""

from __future__ import annotations

from typing import Any

_DOORS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}


def doors(group: str, plural: str) -> dict[str, dict[str, Any]]:
    """The handlers of a resource's subresources, as arguments of `Subresource`."""
    return _DOORS.get((group, plural), {})
