"""What is offered in a region, as lint asks it: which values a label takes, which types meet requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from dovetail.model import labels
from dovetail.model.instance_type import InstanceType
from dovetail.model.requirements import Requirement, Requirements

#: Keys whose values the region or the cluster decides, not the catalogue alone.
_OPEN = frozenset(
    {
        labels.NODEPOOL,
        labels.WINDOWS_BUILD,
        f"{labels.AWS_GROUP}/ec2nodeclass",
        f"{labels.AWS_GROUP}/capacity-reservation-id",
        f"{labels.AWS_GROUP}/capacity-reservation-interruptible",
        f"{labels.AWS_GROUP}/capacity-reservation-type",
        f"{labels.AWS_GROUP}/instance-tenancy",
        f"{labels.AWS_GROUP}/placement-group-id",
        f"{labels.AWS_GROUP}/placement-group-partition",
    }
)


class InstanceCatalog:
    """The instance types of a region. Reservations are not in it: `reserved` is always to be had."""

    def __init__(self, region: str, types: Sequence[InstanceType]) -> None:
        self.region = region
        self.types = types

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        """Every value a label takes, by key, for the keys the catalogue knows."""
        found: dict[str, set[str]] = {}
        for each in self.types:
            for key, values in each.labels.items():
                found.setdefault(key, set()).update(values)
            for offering in each.offerings:
                found.setdefault(labels.ZONE, set()).add(offering.zone)
                found.setdefault(labels.CAPACITY_TYPE, set()).add(offering.capacity_type)
                for key, value in offering.labels.items():
                    found.setdefault(key, set()).add(value)
        found.setdefault(labels.CAPACITY_TYPE, set()).update(labels.CAPACITY_TYPES)
        found.setdefault(labels.OS, set()).update(("linux", "windows"))
        return {key: frozenset(values) for key, values in found.items() if key not in _OPEN}

    def meeting(self, wanted: Requirements, among: Iterable[InstanceType] | None = None) -> list[InstanceType]:
        """The types that meet every requirement, in some zone and capacity type."""
        asked = [each for each in wanted.values() if each.key in labels.WELL_KNOWN and each.key not in _OPEN]
        return [each for each in (self.types if among is None else among) if _meets(each, asked)]


def _meets(kind: InstanceType, asked: Sequence[Requirement]) -> bool:
    of_offering = {labels.ZONE, labels.CAPACITY_TYPE, labels.ZONE_ID}
    for each in asked:
        if each.key in of_offering:
            continue
        values = kind.labels.get(each.key, ())
        if values and not any(each.has(value) for value in values):
            return False
        if not values and not each.negative:
            return False
    of_offerings = [each for each in asked if each.key in of_offering]
    if not of_offerings or any(
        each.key == labels.CAPACITY_TYPE and each.operator == "In" and each.values == {labels.RESERVED}
        for each in of_offerings
    ):
        return True
    return any(
        all(_offers(each, offering.zone, offering.capacity_type, offering.labels) for each in of_offerings)
        for offering in kind.offerings
    )


def _offers(asked: Requirement, zone: str, capacity_type: str, more: Mapping[str, str]) -> bool:
    if asked.key == labels.ZONE:
        return asked.has(zone)
    if asked.key == labels.CAPACITY_TYPE:
        return asked.has(capacity_type)
    value = more.get(asked.key)
    return asked.negative if value is None else asked.has(value)
