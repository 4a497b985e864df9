"""Node groups as a cloud keeps them: sizes, instances, templates, and the calls that change them.

A node group adds and removes alike instances. An autoscaler of node groups sets its target size and names the
instances to end; which instance a new unit of size becomes is the cloud's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from dovetail.model.nodes import Node
from dovetail.model.pods import Pod


class InstanceState(Enum):
    """The life of an instance as its group tells it."""

    CREATING = "Creating"
    RUNNING = "Running"
    DELETING = "Deleting"


class ErrorClass(Enum):
    """What kind of failure kept an instance from being created; the names appear in events."""

    OUT_OF_RESOURCES = "OutOfResource"
    OTHER = "Other"


class InstanceError(msgspec.Struct, frozen=True):
    """Why an instance could not be created."""

    kind: ErrorClass
    code: str
    message: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}.{self.code}"


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group, by provider id. `state` is None where the cloud does not tell."""

    provider_id: str
    state: InstanceState | None = InstanceState.RUNNING
    error: InstanceError | None = None


class GroupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ from group to group; everything else is one setting for all."""

    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    scale_down_unneeded_s: float = 600.0
    scale_down_unready_s: float = 1200.0
    max_node_provision_s: float = 900.0
    max_node_startup_s: float = 900.0
    ignore_daemonsets_utilization: bool = False
    #: The group has either no node or its maximum, and nothing between.
    zero_or_max: bool = False


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group at one moment."""

    id: str
    min_size: int = 0
    max_size: int = 0
    target_size: int = 0
    instances: tuple[GroupMember, ...] = ()
    options: GroupOptions = GroupOptions()
    #: False for a group that could be created and is not there yet.
    exists: bool = True
    #: How far the sizes of its instance types lie apart, in words; empty for a group of one size.
    mixed_sizes: str = ""

    @property
    def room(self) -> int:
        """How many nodes may still be added."""
        return max(0, self.max_size - self.target_size)


class NodeTemplate(msgspec.Struct, frozen=True):
    """A node that a group would add, and the pods that come with it."""

    node: Node
    pods: tuple[Pod, ...] = ()


class GroupInitiatedTermination(msgspec.Struct, frozen=True):
    """An instance that its group ended of its own choice. `rebalancing`: to even out zones."""

    group: str
    provider_id: str
    cause: str
    rebalancing: bool = False


class NodeGroupError(Exception):
    """A call to the cloud about a group failed; the text names the group and the remedy."""


class SizeRefused(NodeGroupError):
    """The group cannot take that size: its bounds or its real instances are in the way."""


class NodeGroupCloud(Protocol):
    """The cloud side of node groups. Reads come from a cache that `refresh` keeps; calls that act go out at once."""

    async def refresh(self, *, force: bool = False) -> None:
        """Read the groups again if what is known is too old."""

    def groups(self) -> Sequence[NodeGroup]:
        """The groups under control, in a fixed order."""

    def group_of(self, provider_id: str) -> NodeGroup | None:
        """The group that an instance belongs to, if it is one of ours."""

    def group_initiated_terminations(self) -> Sequence[GroupInitiatedTermination]:
        """Instances that groups ended of their own choice, read since the last call."""

    async def template(self, group: NodeGroup) -> NodeTemplate:
        """What a new node of a group without nodes would look like."""

    async def increase(self, group: NodeGroup, delta: int) -> None:
        """Ask for `delta` more instances."""

    async def decrease_target(self, group: NodeGroup, delta: int) -> None:
        """Withdraw `delta` requested instances that do not exist yet."""

    async def delete(self, group: NodeGroup, provider_ids: Sequence[str]) -> None:
        """End these instances and lower the target by as many. An instance that is gone already is no error."""

    def prices(self) -> Mapping[str, float]:
        """Dollars per hour by instance type, of the types that are known; empty where prices are not known."""

    def spot_prices(self) -> Mapping[str, float]:
        """The same of spot instances."""

    async def close(self) -> None:
        """Let go of connections."""
