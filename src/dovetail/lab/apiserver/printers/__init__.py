"""kubectl's own columns, a module for each family of kinds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.printers.cells import Header

Json = dict[str, Any]
Layout = tuple[tuple[Header, ...], Callable[[Json, datetime], list[Any]]]

NAME = Header("Name", format="name")
CREATED = Header("Created At", "date")
#: Kinds without columns of their own.
DEFAULT: Layout = (
    (NAME, CREATED),
    lambda obj, now: [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")],
)

_layouts: dict[tuple[str, str], Layout] = {}


def of(group: str, plural: str) -> Layout | None:
    """The layout of a built-in kind that has one."""
    if not _layouts:
        from dovetail.lab.apiserver.printers import registry

        _layouts.update(registry.LAYOUTS)
    return _layouts.get((group, plural))
