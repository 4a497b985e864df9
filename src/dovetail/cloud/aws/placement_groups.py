"""Placement groups: how near to each other, or how far apart, the instances of a class stand.

A class names one group. All its instances go into it, types that its strategy does not take are not launched, and what
is refused inside a group says nothing about the same instance outside. The partitions of a group are places that pods
may choose among; where none is chosen, EC2 chooses, and an instance tells its partition before pods come to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.ec2nodeclass import wanted
from dovetail.cloud.aws.errors import code_of
from dovetail.cloud.aws.ttl_cache import TtlCache
from dovetail.cloud.provider import NodeClassNotReady
from dovetail.language import source
from dovetail.model.labels import PLACEMENT_GROUP, PLACEMENT_PARTITION

PARTITION = "partition"
#: What EC2 says when a spread group has as many instances in a zone as it takes.
_FULL = "limit of instances in this spread placement group"
_UNKNOWN = frozenset({"InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.NotFound"})


class Ec2PlacementGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group; `partitions` counts those of a group that has any."""

    id: str
    name: str
    strategy: str
    partitions: int = 0

    def labels(self) -> dict[str, tuple[str, ...]]:
        """What an instance of the group may carry."""
        numbers = tuple(str(number) for number in range(1, self.partitions + 1))
        return {PLACEMENT_GROUP: (self.id,)} | ({PLACEMENT_PARTITION: numbers} if numbers else {})


class InstancePlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Where an instance is to stand; without a `partition` EC2 chooses one, if the group has any."""

    group: Ec2PlacementGroup | None = None
    partition: str = ""

    @property
    def group_id(self) -> str:
        return self.group.id if self.group else ""

    def ec2(self) -> dict[str, Any]:
        """As a launch template tells it."""
        number = {"PartitionNumber": int(self.partition)} if self.partition else {}
        return {"GroupId": self.group_id, **number} if self.group else {}

    def labels(self) -> dict[str, str]:
        """What the instance carries; a partition that EC2 is to choose stays empty until it has."""
        if self.group is None:
            return {}
        number = {PLACEMENT_PARTITION: self.partition} if self.group.partitions else {}
        return {PLACEMENT_GROUP: self.group.id, **number}


def selector(node_class: Mapping[str, Any]) -> Mapping[str, str]:
    """The group that a class asks for, by `name` or `id`; empty for none."""
    return (node_class.get("spec") or {}).get("placementGroupSelector") or {}


def missing(node_class: Mapping[str, Any]) -> str:
    """The message for a group that does not exist."""
    term = selector(node_class)
    return source('Placement group "{group}" not found; create it or change the selector').format(
        group=term.get("name") or term.get("id")
    )


def is_full(message: str) -> bool:
    """Whether EC2 refused an instance because its zone has as many of the group as it takes, whatever their type."""
    return _FULL in message


class PlacementGroups:
    """Groups as EC2 knows them, asked for once a minute; one that it no longer tells of stands as it was."""

    def __init__(self, calls: Calls, clock: Clock) -> None:
        self._calls = calls
        self._found: TtlCache[Ec2PlacementGroup | None] = TtlCache(clock, 60.0)

    async def of(self, node_class: Mapping[str, Any]) -> Ec2PlacementGroup | None:
        """The group that a class asks for; None if it asks for none, or if there is none such."""
        term = selector(node_class)
        if not term:
            return None
        return await self._found.get(tuple(sorted(term.items())), lambda: self._ask(term))

    async def place(self, node_class: Mapping[str, Any], claim: Mapping[str, Any]) -> InstancePlacement:
        """Where an instance of a class goes for a claim: of the partitions that it may choose among, the lowest."""
        group = await self.of(node_class)
        if group is None:
            if selector(node_class):
                raise NodeClassNotReady(f"{missing(node_class)} (BAD_NODECLASS)")
            return InstancePlacement()
        requested = wanted(claim, PLACEMENT_PARTITION)
        numbers = group.labels().get(PLACEMENT_PARTITION, ()) if requested else ()
        return InstancePlacement(
            group=group, partition=next((number for number in numbers if requested and requested.has(number)), "")
        )

    async def _ask(self, term: Mapping[str, str]) -> Ec2PlacementGroup | None:
        named: dict[str, Any] = {"GroupIds": [term["id"]]} if term.get("id") else {"GroupNames": [term["name"]]}
        try:
            answer = await self._calls("ec2", "describe_placement_groups", **named)
        except Exception as error:
            if code_of(error) in _UNKNOWN:
                return None
            raise
        rows = [row for row in answer.get("PlacementGroups") or () if row.get("State") == "available"]
        return _group(rows[0]) if rows else None


def _group(row: Mapping[str, Any]) -> Ec2PlacementGroup:
    strategy = row.get("Strategy", "")
    return Ec2PlacementGroup(
        id=row["GroupId"],
        name=row.get("GroupName", ""),
        strategy=strategy,
        partitions=row.get("PartitionCount", 0) if strategy == PARTITION else 0,
    )
