"""What readers of a recording rely on in every object: the types of the fields that they look into.

An API server has checked what a recorder sees. A file from elsewhere may say anything, and a number or a text where a
mapping belongs must be an error with its place, not a failure of whatever reads it first.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dovetail.offline.recording.differences import BadDifference


class _Owner(msgspec.Struct, rename="camel"):
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class _TemplateMetadata(msgspec.Struct, rename="camel"):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct, rename="camel"):
    metadata: _TemplateMetadata | None = None
    spec: dict[str, Any] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    replicas: int | None = None
    template: _Template | None = None
    taints: list[dict[str, Any]] | None = None
    containers: list[dict[str, Any]] | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    last_transition_time: datetime | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    reason: str | None = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    conditions: list[_Condition] | None = None
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def check(source: dict[str, Any]) -> None:
    """`BadDifference` names the object and the field."""
    try:
        msgspec.convert(source, _Object)
    except msgspec.ValidationError as problem:
        raise BadDifference(f"{source['kind']} {source['metadata']['name']}: {problem}") from problem
