"""What every Kubernetes object has, and how its views are made.

A view is a frozen struct with the few fields we read. Every field has a default, so that a view decodes
from any object of its kind, and unknown fields cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

#: A quantity as it stands in a manifest; `dovetail.model.quantity` reads it.
Amount = str | int | float
Amounts = Mapping[str, Amount]
IntOrString = int | str


class View(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base of every view: frozen, camel-cased on the wire, defaults left out when written."""


class OwnerReference(View, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(View, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone for a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(View, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_probe_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    observed_generation: int = 0


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of that type, if it was ever reported."""
    for condition in conditions:
        if condition.type == kind:
            return condition
    return None


class ObjectReference(View, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


def stamp(instant: datetime) -> str:
    """An instant in UTC as Kubernetes writes a Time: whole seconds."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(instant: datetime) -> str:
    """An instant in UTC as Kubernetes writes a MicroTime."""
    return instant.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def view(obj: Any, kind: type[T]) -> T:
    """Read an object written by hand: a null says the same as silence."""
    return msgspec.convert(without_nulls(obj), kind)


def without_nulls(value: Any) -> Any:
    """The value with every null member of an object left out, at any depth."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(member) for member in value]
    return value
