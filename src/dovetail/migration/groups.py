"""Node groups as a migration sees them, and the calls that it makes about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from dovetail.model.labels import ON_DEMAND
from dovetail.model.nodes import Taint

#: Processes of an Auto Scaling group that end instances of its own choice.
UNATTENDED = ("AZRebalance", "AlarmNotification", "ScheduledActions")
LAUNCH, TERMINATE = "Launch", "Terminate"


class Sizes(msgspec.Struct, frozen=True):
    """The bounds and the desired capacity of a group."""

    least: int
    most: int
    desired: int


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One Auto Scaling group; `managed` is the name of the EKS managed node group that it belongs to.

    `instances` are provider ids of instances that live, `leaving` of those that end. `family` is the alias of its
    images (al2023, bottlerocket), empty where it is not known.
    """

    name: str
    sizes: Sizes
    managed: str = ""
    instances: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = (ON_DEMAND,)
    zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    family: str = ""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    #: Block devices and metadata options of the launch template, as an EC2NodeClass writes them.
    node_class_fields: Mapping[str, Any] = {}
    #: Processes of the Auto Scaling group that are suspended.
    suspended: frozenset[str] = frozenset()
    #: What a NodePool does not take over, in words.
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.managed or self.name

    @property
    def least_maximum(self) -> int:
        """EKS refuses a managed node group whose maximum is 0."""
        return 1 if self.managed else 0

    @property
    def frozen(self) -> Sizes:
        """The sizes at which the group neither grows nor is filled up again."""
        return Sizes(0, max(self.sizes.desired, self.least_maximum), self.sizes.desired)


#: So many instances without a Node, or this share of the group's size, may be ones that never joined.
MAX_STRANGERS, MAX_STRANGERS_SHARE = 2, 0.1


def are_strangers(size: int, count: int) -> bool:
    """Whether so many instances without a Node are rather a wrong cluster, or a broken view of it.

    `size` is the desired capacity of their group before the migration: a group that is drained shrinks.
    """
    return count > max(MAX_STRANGERS, MAX_STRANGERS_SHARE * size)


class GroupBusy(Exception):
    """The group is still carrying out an earlier change; the call can be made again later."""


class GroupCalls(Protocol):
    """The cloud side of a migration."""

    async def groups(self) -> Sequence[Group]:
        """The groups of the cluster, read now."""

    async def set_sizes(self, group: Group, sizes: Sizes) -> None:
        """Set bounds and desired capacity. Raises `GroupBusy`."""

    async def terminate(self, group: Group, provider_id: str) -> None:
        """End one instance and lower the desired capacity by one. An instance that is gone already is no error."""

    async def suspend(self, group: Group, processes: Sequence[str]) -> None:
        """Suspend processes of the Auto Scaling group; those that are suspended already are no error."""

    async def resume(self, group: Group, processes: Sequence[str]) -> None:
        """The reverse."""

    def suspend_command(self, group: Group, processes: Sequence[str]) -> str:
        """The same with the AWS command."""

    def resume_command(self, group: Group, processes: Sequence[str]) -> str: ...

    def set_sizes_command(self, group: Group, sizes: Sizes) -> str:
        """Bounds and desired capacity with the AWS command."""

    def terminate_command(self, group: Group, provider_id: str) -> str: ...
