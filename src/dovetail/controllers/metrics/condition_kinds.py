"""Conditions of an object, whichever kind it is of: for the condition metrics and events.

Which kinds are watched, and which of their labels the metrics have, is as Karpenter has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from dovetail.cluster.state import ClusterState
from dovetail.kube import resources as kinds
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import Resource
from dovetail.model.kinds.conditions import StatusCondition
from dovetail.model.labels import INITIALIZED, NODECLASS, NODEPOOL
from dovetail.model.meta import Condition

AnyCondition = Condition | StatusCondition


class ConditionKind(msgspec.Struct, frozen=True):
    """A kind whose conditions are exported. `general`: also by the metric names that have the kind as a label."""

    resource: Resource
    labels: tuple[str, ...] = ()
    general: bool = True

    @property
    def name(self) -> str:
        return self.resource.kind.lower()

    @property
    def called(self) -> tuple[str, ...]:
        """The labels as metrics have them."""
        return tuple(label.translate(str.maketrans("/.-", "___")) for label in self.labels)


class Seen(msgspec.Struct, frozen=True):
    """Status and metadata of one object."""

    name: str
    deleted: datetime | None
    finalizers: tuple[str, ...]
    conditions: Mapping[str, AnyCondition]
    values: tuple[str, ...]
    """Those of the kind's labels."""


CLAIMS = ConditionKind(kinds.NODECLAIMS, (NODECLASS, NODEPOOL))
POOLS = ConditionKind(kinds.NODEPOOLS)
CLASSES = ConditionKind(kinds.EC2NODECLASSES)
NODES = ConditionKind(kinds.NODES, (NODECLASS, NODEPOOL, INITIALIZED), general=False)


def watched(cluster_state: ClusterState) -> tuple[tuple[ConditionKind, Reflector[Any]], ...]:
    """The kinds, and their reflectors."""
    return (
        (CLAIMS, cluster_state.claims),
        (POOLS, cluster_state.pools),
        (CLASSES, cluster_state.node_classes),
        (NODES, cluster_state.nodes),
    )


def seen(kind: ConditionKind, obj: Any) -> Seen:
    """Status and metadata of an object; NodeClasses are kept as untyped dictionaries."""
    if isinstance(obj, dict):
        obj = msgspec.convert(obj, _Plain, strict=False)
    meta = obj.metadata
    return Seen(
        name=meta.name,
        deleted=meta.deletion_timestamp,
        finalizers=meta.finalizers,
        conditions={condition.type: condition for condition in obj.status.conditions},
        values=tuple(meta.labels.get(label, "") for label in kind.labels),
    )


class _PlainMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    deletion_timestamp: datetime | None = None
    finalizers: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}


class _PlainStatus(msgspec.Struct):
    conditions: tuple[Condition, ...] = ()


class _Plain(msgspec.Struct):
    metadata: _PlainMeta = msgspec.field(default_factory=_PlainMeta)
    status: _PlainStatus = msgspec.field(default_factory=_PlainStatus)
