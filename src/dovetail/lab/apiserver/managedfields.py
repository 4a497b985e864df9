"""Field ownership."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from dovetail.lab.apiserver.registry import ResourceType

Json = dict[str, Any]


def track_create(resource: ResourceType, obj: Json, manager: str, now: datetime) -> None:
    obj["metadata"].pop("managedFields", None)


def track_update(
    resource: ResourceType, old: Json, obj: Json, manager: str, subresource: str, now: datetime
) -> None:
    obj["metadata"].pop("managedFields", None)
