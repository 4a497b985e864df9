"""NodeClaim v1: one requested node, from the request to its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from dovetail.model import duration
from dovetail.model.kinds.common import (
    AMOUNT,
    EXPIRE_AFTER,
    REQUIREMENTS,
    STARTUP_TAINTS,
    TAINTS,
    TERMINATION_GRACE,
    ClaimTerm,
    NodeClassRef,
    Taint,
)
from dovetail.model.kinds.conditions import CONDITIONS, ClaimCondition
from dovetail.model.kinds.schema import Field, SchemaRule
from dovetail.model.labels import NODEPOOL
from dovetail.model.meta import Amount, ObjectMeta, View

IMMUTABLE = SchemaRule("self == oldSelf", "spec is immutable", moves=lambda new, old: bool(new == old))


class Requests(View, frozen=True, kw_only=True):
    requests: Annotated[
        Mapping[str, Amount], Field("The least the node must have for the pods it is launched for.", each=AMOUNT)
    ] = {}


#: How long a node lives where nothing is said.
LIFE = "720h"


class NodeClaimSpec(View, frozen=True, kw_only=True):
    """What is asked for. It never changes: another request is another claim."""

    requirements: Annotated[tuple[ClaimTerm, ...], REQUIREMENTS] = ()
    resources: Annotated[Requests, Field("Resources the node must have.")] = Requests()
    taints: Annotated[tuple[Taint, ...], TAINTS] = ()
    startup_taints: Annotated[tuple[Taint, ...], STARTUP_TAINTS] = ()
    node_class_ref: Annotated[NodeClassRef, Field("The node class with the cloud's settings.", required=True)] = (
        NodeClassRef()
    )
    expire_after: Annotated[str, EXPIRE_AFTER] = LIFE
    termination_grace_period: Annotated[str | None, TERMINATION_GRACE] = None

    @property
    def by_pool(self) -> bool:
        """Whether the claim is of an older generation and was never converted: then its pool says how long it lives."""
        return not self.node_class_ref.group and self.expire_after == LIFE

    @property
    def life(self) -> timedelta | None:
        """How long the node is to live; None is for ever, and so is a time too long to count."""
        return duration.countable(self.expire_after)

    @property
    def grace(self) -> timedelta | None:
        """How long its drain may take; None is as long as it takes, and so is a time too long to count."""
        return duration.countable(self.termination_grace_period)


class NodeClaimStatus(View, frozen=True, kw_only=True):
    node_name: Annotated[str, Field("Name of the node that the node became.")] = ""
    provider_id: Annotated[str, Field("The cloud's name for the node: its identity.")] = msgspec.field(
        default="", name="providerID"
    )
    image_id: Annotated[str, Field("Machine image the node runs.")] = msgspec.field(default="", name="imageID")
    capacity: Annotated[Mapping[str, Amount], Field("What the node has.", each=AMOUNT)] = {}
    allocatable: Annotated[Mapping[str, Amount], Field("What pods may have of it.", each=AMOUNT)] = {}
    conditions: Annotated[tuple[ClaimCondition, ...], CONDITIONS] = ()
    last_pod_event_time: Annotated[datetime | None, Field("When a pod last came to the node or left it.")] = None


class NodeClaim(View, frozen=True, kw_only=True):
    """One node: what was requested, what was launched, and how far it has come."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[NodeClaimSpec, Field("What is asked for.", required=True, rules=(IMMUTABLE,))] = NodeClaimSpec()
    status: Annotated[NodeClaimStatus, Field("What was launched.")] = NodeClaimStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def node_pool(self) -> str | None:
        """The pool the node belongs to; a claim made by hand has none."""
        return self.metadata.labels.get(NODEPOOL)

    def condition(self, kind: str) -> ClaimCondition | None:
        for condition in self.status.conditions:
            if condition.type == kind:
                return condition
        return None

    def is_true(self, kind: str) -> bool:
        condition = self.condition(kind)
        return condition is not None and condition.status == "True"
