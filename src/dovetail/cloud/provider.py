"""The cloud interface: what the controllers ask of a cloud provider.

Every failure is one of four kinds, because a controller can do only four things about it: try again,
take the next offering, take the next pool, or tell the operator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.model.instance_type import InstanceType, Offering, Resources


class Remedy(StrEnum):
    RETRY = "retry"
    NEXT_OFFERING = "next-offering"
    NEXT_POOL = "next-pool"
    OPERATOR = "operator"


#: The reason of an error that says we may not, or no longer.
UNAUTHORIZED = "Unauthorized"


class CloudError(Exception):
    """`reason` is CamelCase, fit for a condition; `remedy` is what a controller does about it.

    `message` is for people, with the way out; `detail` is all that was said, for the log.
    """

    def __init__(self, reason: str, message: str, remedy: Remedy, *, detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.remedy = remedy
        self.detail = detail or message


class InsufficientCapacity(CloudError):
    """No offering of the request can be had now; they are remembered as unavailable."""

    def __init__(self, message: str, offerings: Sequence[tuple[str, str, str]] = ()) -> None:
        super().__init__("InsufficientCapacityError", message, Remedy.NEXT_OFFERING)
        self.offerings = tuple(offerings)


class NodeClassNotReady(CloudError):
    def __init__(self, message: str) -> None:
        super().__init__("NodeClassNotReady", message, Remedy.OPERATOR)


class InstanceNotFound(CloudError):
    """The instance is known to be gone; a delete that finds nothing has done its work. `why` it ended, if known."""

    def __init__(self, provider_id: str, why: str = "") -> None:
        super().__init__("NodeClaimNotFound", f"no instance {provider_id}" + (f": {why}" if why else ""), Remedy.RETRY)
        self.provider_id = provider_id
        self.why = why


class RebootUnsupported(CloudError):
    """This cloud cannot restart an instance in place."""

    def __init__(self, provider_id: str) -> None:
        super().__init__("NodeRebootNotImplemented", f"instance {provider_id} cannot be rebooted", Remedy.OPERATOR)


class RebootRejected(CloudError):
    """The cloud will not restart this instance, however often it is asked."""

    def __init__(self, message: str) -> None:
        super().__init__("NodeRebootFailed", message, Remedy.OPERATOR)


class LaunchOption(msgspec.Struct, frozen=True, kw_only=True):
    """One offering a launch may use, with its type; the order of options is the order of preference."""

    instance_type: InstanceType
    offering: Offering


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything needed to launch one instance. `token` makes it idempotent: the claim's UID.

    `node_class`, `node_pool` and `claim` are the objects in their v1 form.
    """

    token: str
    claim: Mapping[str, Any]
    node_class: Mapping[str, Any]
    options: tuple[LaunchOption, ...]
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...] = ()
    tags: Mapping[str, str] = {}


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that was launched. `labels` has the type's, the offering's and the claim's labels."""

    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str
    capacity: Resources
    allocatable: Resources
    labels: Mapping[str, str]
    created: datetime
    claim_uid: str | None
    claim_name: str | None
    node_pool: str | None
    state: str = "running"
    tags: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: Its place in the network, for drift detection: `subnet`, `security-groups` (comma list).
    network: Mapping[str, str] = {}


class NodeRole(msgspec.Struct, frozen=True):
    """The identity instances of a class present to the cluster.

    `admitted`: whether the cloud itself lets it in; None where it may not be asked.
    """

    arn: str
    admitted: bool | None


class NodeClassStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a node class's selectors select now, as its status shows it, and what is wrong with it."""

    status: Mapping[str, Any]
    conditions: tuple[tuple[str, str, str, str], ...]  # type, status, reason, message
    annotations: Mapping[str, str] = {}  # what a class carries so that its instances can be compared with it
    details: Mapping[str, str] = {}  # all that was said about a condition, for the log


class Interruption(msgspec.Struct, frozen=True, kw_only=True):
    """A message about instances: `kind` is spot-interruption, rebalance, scheduled-change and the like.

    `sent` is when the cloud says that it happened.
    """

    kind: str
    provider_ids: tuple[str, ...]
    received: datetime
    sent: datetime | None = None
    detail: str = ""
    receipt: str = ""


class RepairAction(StrEnum):
    """What is done about a node condition, the gentler first."""

    REBOOT = "RebootNode"
    REPLACE = "ReplaceNode"


class RepairPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that makes a node unhealthy, and what is done about it once it has lasted.

    Exactly one policy of a set has no `reason_regex`: it stands in where a condition is covered and none of its own
    policies knows the reason. `grace_seconds` bounds the drain: None leaves it to the claim, 0 allows none.
    """

    condition_type: str
    condition_status: str
    toleration_seconds: float
    reason_regex: str = ""
    grace_seconds: float | None = None
    priority: int = 0
    action: RepairAction = RepairAction.REPLACE


class Cloud(Protocol):
    """A provider. Calls may be repeated after a crash: `launch` with a known token returns the same instance.

    `node_class_required`: whether a pool without its NodeClass object can launch nothing.
    """

    name: str
    node_class_required: bool
    unavailable: UnavailableOfferings

    async def instance_types(
        self, node_pool: Mapping[str, Any], node_class: Mapping[str, Any]
    ) -> tuple[InstanceType, ...]: ...

    async def launch(self, launch: LaunchRequest) -> Instance: ...

    async def get(self, provider_id: str) -> Instance: ...

    async def instances(self) -> tuple[Instance, ...]:
        """All instances of this cluster that carry our tags; raises rather than answer in part."""
        ...

    async def terminate(self, provider_id: str) -> None:
        """Ask for the instance's end; raises InstanceNotFound once it is gone."""
        ...

    async def reboot(self, provider_id: str, operation: str) -> None:
        """Restart an instance in place; returns once that is accepted. The same `operation` is the same restart.

        Raises RebootUnsupported, RebootRejected or InstanceNotFound where asking again would not help.
        """
        ...

    async def resolve(
        self, node_class: Mapping[str, Any], node_pools: Sequence[Mapping[str, Any]] = ()
    ) -> NodeClassStatus:
        """What a node class selects now; `node_pools` are those that launch their instances by it."""
        ...

    async def release(self, node_class: Mapping[str, Any]) -> None:
        """Give back what was made for a node class that is being deleted (profiles, templates)."""
        ...

    async def drift(self, claim: Mapping[str, Any], instance: Instance, node_class: Mapping[str, Any]) -> str | None:
        """The reason this instance no longer matches its class, from positive evidence alone."""
        ...

    async def node_role(self, node_class: Mapping[str, Any]) -> NodeRole | None:
        """Who the instances of a class are to the cluster; None where a cloud needs no such mapping."""
        ...

    def interruptions(self) -> AsyncIterator[Sequence[Interruption]]: ...

    async def acknowledge(self, messages: Sequence[Interruption]) -> None: ...

    async def unhealthy(self) -> Sequence[Interruption]:
        """What the cloud knows of unhealthy instances now: `status-check-failed`, `scheduled-event`. Needs no queue."""
        ...

    def repair_policies(self) -> tuple[RepairPolicy, ...]: ...
