"""What is offered in a region, as lint asks it: which values a label takes, which types meet requirements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from dovetail.model import labels
from dovetail.model.instance_type import InstanceType
from dovetail.model.requirements import Requirement, Requirements

#: The image decides which one a node has, not the instance type.
OPERATING_SYSTEMS = ("linux", "windows")
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
        values_: dict[str, set[str]] = {}
        for instance_type in self.types:
            for key, values in instance_type.labels.items():
                values_.setdefault(key, set()).update(values)
            for offering in instance_type.offerings:
                values_.setdefault(labels.ZONE, set()).add(offering.zone)
                values_.setdefault(labels.CAPACITY_TYPE, set()).add(offering.capacity_type)
                for key, value in offering.labels.items():
                    values_.setdefault(key, set()).add(value)
        values_.setdefault(labels.CAPACITY_TYPE, set()).update(labels.CAPACITY_TYPES)
        values_.setdefault(labels.OS, set()).update(OPERATING_SYSTEMS)
        return {key: frozenset(values) for key, values in values_.items() if key not in _OPEN}

    def meeting(self, requirements: Requirements, among: Iterable[InstanceType] | None = None) -> list[InstanceType]:
        """The types that meet every requirement, in some zone and capacity type."""
        known_requirements = [
            requirement
            for requirement in requirements.values()
            if requirement.key in labels.WELL_KNOWN and requirement.key not in _OPEN
        ]
        return [
            instance_type
            for instance_type in (self.types if among is None else among)
            if _meets(instance_type, known_requirements)
        ]


def _meets(kind: InstanceType, requirements: Sequence[Requirement]) -> bool:
    of_offering = {labels.ZONE, labels.CAPACITY_TYPE, labels.ZONE_ID}
    for requirement in requirements:
        if requirement.key in of_offering:
            continue
        values = OPERATING_SYSTEMS if requirement.key == labels.OS else kind.labels.get(requirement.key, ())
        if values and not any(requirement.has(value) for value in values):
            return False
        if not values and not requirement.negative:
            return False
    of_offerings = [requirement for requirement in requirements if requirement.key in of_offering]
    if not of_offerings or any(
        offering_labels.key == labels.CAPACITY_TYPE
        and offering_labels.operator == "In"
        and offering_labels.values == {labels.RESERVED}
        for offering_labels in of_offerings
    ):
        return True
    return any(
        all(
            _offers(offering_labels, offering.zone, offering.capacity_type, offering.labels)
            for offering_labels in of_offerings
        )
        for offering in kind.offerings
    )


def _offers(requirement: Requirement, zone: str, capacity_type: str, more: Mapping[str, str]) -> bool:
    if requirement.key == labels.ZONE:
        return requirement.has(zone)
    if requirement.key == labels.CAPACITY_TYPE:
        return requirement.has(capacity_type)
    value = more.get(requirement.key)
    return requirement.negative if value is None else requirement.has(value)
