"""A table's layout: its headers, and the cells of one object."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.printers.cells import ColumnHeader

Json = dict[str, Any]
Layout = tuple[tuple[ColumnHeader, ...], Callable[[Json, datetime], list[Any]]]

NAME = ColumnHeader("Name", format="name")
CREATED = ColumnHeader("Created At", "date")
#: Kinds without columns of their own.
DEFAULT: Layout = (
    (NAME, CREATED),
    lambda obj, now: [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")],
)
