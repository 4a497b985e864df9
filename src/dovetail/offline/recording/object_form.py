"""What readers of a recording rely on in every object: the types of the fields that they look into.

An API server has checked what a recorder sees. A file from elsewhere may say anything, and a number or a text where a
mapping belongs must be an error with its place, not a failure of whatever reads it first.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.meta import Amounts
from dovetail.model.quantity import parse
from dovetail.model.validation.metadata import labels
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


class _ContainerResources(msgspec.Struct):
    requests: Amounts | None = None
    limits: Amounts | None = None


class _ConfigSource(msgspec.Struct, rename="camel"):
    config_map_ref: dict[str, Any] | None = None
    secret_ref: dict[str, Any] | None = None


class _Volume(msgspec.Struct, rename="camel"):
    config_map: dict[str, Any] | None = None
    secret: dict[str, Any] | None = None
    persistent_volume_claim: dict[str, Any] | None = None


class _Variable(msgspec.Struct, rename="camel"):
    value_from: dict[str, dict[str, Any] | None] | None = None


class _Container(msgspec.Struct, rename="camel"):
    resources: _ContainerResources | None = None
    env: list[_Variable] | None = None
    env_from: list[_ConfigSource] | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    """What pods and the templates of workloads have in common."""

    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: Amounts | None = None
    volumes: list[_Volume] | None = None


class _Template(msgspec.Struct, rename="camel"):
    metadata: _TemplateMetadata | None = None
    spec: _PodSpec | None = None


class _Spec(_PodSpec, rename="camel"):
    node_name: str | None = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    replicas: int | None = None
    template: _Template | None = None
    taints: list[dict[str, Any]] | None = None


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
    capacity: Amounts | None = None
    allocatable: Amounts | None = None


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def check(source: dict[str, Any]) -> None:
    """`BadDifference` names the object and the field."""
    try:
        if source["kind"] == "NodePool" and source.get("apiVersion") == "karpenter.sh/v1":
            _check_amounts(msgspec.convert(source, NodePool).spec.limits)
        form = msgspec.convert(source, _Object)
        _check_labels(tuple((form.metadata.labels or {}).items()))
        for amounts in _amounts(form):
            _check_amounts(amounts)
    except (msgspec.ValidationError, ValueError) as problem:
        raise BadDifference(f"{source['kind']} {source['metadata']['name']}: {problem}") from problem


def _amounts(source: _Object) -> Iterator[Amounts]:
    """The resources that a pod or a template requests, and that a node has."""
    status = source.status
    template = source.spec.template if source.spec is not None else None
    for spec in (source.spec, template.spec if template is not None else None):
        if spec is None:
            continue
        for container in (*(spec.containers or ()), *(spec.init_containers or ())):
            if container.resources is not None:
                yield container.resources.requests or {}
                yield container.resources.limits or {}
        yield spec.overhead or {}
    if status is not None:
        yield status.capacity or {}
        yield status.allocatable or {}


@lru_cache(maxsize=4096)
def _check_labels(given: tuple[tuple[str, str], ...]) -> None:
    """Many objects have the same labels; only those that can be are remembered."""
    for error in labels(dict(given), "metadata.labels"):
        raise ValueError(str(error))


def _check_amounts(amounts: Amounts) -> None:
    for name, text in amounts.items():
        if parse(text).milli < 0:
            raise ValueError(message("{name}: {amount} is below zero", name=name, amount=text))
