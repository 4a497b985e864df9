"""Placement groups of the lab's account; moto has none.

`aws ec2 create-placement-group`, `describe-placement-groups` and `delete-placement-group` answer here; the fleet puts
instances into them. Members are read from the running instances, so that it is always true.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

import msgspec

from dovetail.cloud.aws import catalog
from dovetail.lab.aws.http_forms import Answer, Environ, Form, body_of, one, refused, values, xml

#: How many instances of a spread group EC2 puts into one zone.
MOST_SPREAD = 7
FULL = (
    "You've reached the limit of instances in this spread placement group. A spread placement group can have up to"
    " seven instances per Availability Zone."
)
_UNKNOWN = "InvalidPlacementGroup.Unknown"


class LabPlacementGroup(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    strategy: str = "cluster"
    partitions: int = 0

    def shown(self) -> str:
        facts = {"groupName": self.name, "groupId": self.id, "state": "available", "strategy": self.strategy}
        if self.strategy == "partition":
            facts["partitionCount"] = str(self.partitions)
        if self.strategy == "spread":
            facts["spreadLevel"] = "rack"
        return "".join(f"<{name}>{escape(value)}</{name}>" for name, value in facts.items())


class LabPlacementGroups:
    """The groups by name, shared by the threads that serve AWS. `instances` are all that EC2 knows."""

    def __init__(self, instances: Callable[[], list[Any]]) -> None:
        self._instances = instances
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._made: dict[str, LabPlacementGroup] = {}

    def put(self, name: str, strategy: str = "cluster", partitions: int = 0) -> LabPlacementGroup:
        with self._lock:
            made = LabPlacementGroup(
                id=f"pg-{next(self._numbers):017x}",
                name=name,
                strategy=strategy,
                partitions=(partitions or 2) if strategy == "partition" else 0,
            )
            self._made[name] = made
            return made

    def clear(self) -> None:
        with self._lock:
            self._made.clear()

    def refusal(self, placement: Mapping[str, Any], instance_type: str, zone: str) -> tuple[str, str] | None:
        """The error for launching an instance with this placement, if that cannot be: code and message."""
        if not _grouped(placement):
            return None
        group = self._group(placement)
        if group is None:
            return _UNKNOWN, "The Placement Group is unknown."
        spec = catalog.specs().get(instance_type)
        if spec is not None and spec.placement and group.strategy not in spec.placement:
            return "InvalidParameterCombination", f"{group.strategy} placement groups are not supported by the type."
        if group.strategy == "spread" and self._count(group)[zone] >= MOST_SPREAD:
            return "InsufficientInstanceCapacity", FULL
        return None

    def enter(self, instance: Any, placement: Mapping[str, Any]) -> None:
        """Put an instance where its placement says; of partitions, unless one is named, into the emptiest."""
        group = self._group(placement) if _grouped(placement) else None
        if group is None:
            return
        held = Counter(instance.placement.partition_number for instance in self._within(group))
        instance.placement.group_id, instance.placement.group_name = group.id, group.name
        if group.strategy == "partition":
            emptiest = min(range(1, group.partitions + 1), key=lambda number: (held[number], number))
            instance.placement.partition_number = int(placement.get("PartitionNumber") or emptiest)

    def answer(self, environ: Environ) -> Answer | None:
        """One of the three calls, or None."""
        form = parse_qs(body_of(environ).decode(errors="replace"))
        action = one(form, "Action")
        if action == "DescribePlacementGroups":
            return self._described(form)
        if action == "CreatePlacementGroup":
            return self._created(form)
        if action == "DeletePlacementGroup":
            return self._deleted(one(form, "GroupName"))
        return None

    def _described(self, form: Form) -> Answer:
        names, ids = values(form, "GroupName"), values(form, "GroupId")
        rows = [
            placement_group
            for placement_group in self._made.values()
            if (placement_group.name in names or placement_group.id in ids) or not (names or ids)
        ]
        if lacking := sorted({*names, *ids} - {row.name for row in rows} - {row.id for row in rows}):
            return refused(_UNKNOWN, f"The Placement Group '{lacking[0]}' is unknown.")
        items = "".join(f"<item>{row.shown()}</item>" for row in sorted(rows, key=lambda group: group.name))
        return xml("DescribePlacementGroups", f"<placementGroupSet>{items}</placementGroupSet>")

    def _created(self, form: Form) -> Answer:
        name = one(form, "GroupName")
        if name in self._made:
            return refused("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
        made = self.put(name, one(form, "Strategy") or "cluster", int(one(form, "PartitionCount") or 0))
        return xml("CreatePlacementGroup", f"<return>true</return><placementGroup>{made.shown()}</placementGroup>")

    def _deleted(self, name: str) -> Answer:
        group = self._made.get(name)
        if group is None:
            return refused(_UNKNOWN, f"The Placement Group '{name}' is unknown.")
        if self._within(group):
            return refused("InvalidPlacementGroup.InUse", f"The placement group {name} is in use.")
        with self._lock:
            self._made.pop(name, None)
        return xml("DeletePlacementGroup", "<return>true</return>")

    def _group(self, placement: Mapping[str, Any]) -> LabPlacementGroup | None:
        named = {placement.get("GroupId"), placement.get("GroupName")} - {None, ""}
        return next(
            (
                placement_group
                for placement_group in self._made.values()
                if named & {placement_group.id, placement_group.name}
            ),
            None,
        )

    def _within(self, group: LabPlacementGroup) -> list[Any]:
        living = (instance for instance in self._instances() if instance.state in ("pending", "running"))
        return [instance for instance in living if instance.placement.group_id == group.id]

    def _count(self, group: LabPlacementGroup) -> Counter[str]:
        return Counter(instance.placement.zone for instance in self._within(group))


def _grouped(placement: Mapping[str, Any]) -> bool:
    return bool(placement.get("GroupId") or placement.get("GroupName"))
