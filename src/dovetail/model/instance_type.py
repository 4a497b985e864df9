"""What can be launched: instance types and their offerings.

An offering is a type in a zone under a capacity type. Resources are integers: milli-CPU for `cpu`,
bytes for memory and storage, plain counts for everything else. A missing price is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec
from msgspec.structs import force_setattr

from dovetail.model.requirements import Requirements, requirement

Resources = Mapping[str, int]

#: Begins the source of a price that a NodeOverlay tells; its name follows.
OVERLAY = "NodeOverlay "


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    """`labels` is what this offering adds beside zone and capacity type (zone id, reservation id…)."""

    zone: str
    capacity_type: str
    price: float | None
    available: bool = True
    labels: Mapping[str, str] = {}
    reservation_id: str | None = None
    reservation_capacity: int | None = None
    price_source: str = ""

    def __post_init__(self) -> None:
        """What is no price is none, and less than nothing is nothing."""
        if self.price is not None and not 0 <= self.price < inf:
            force_setattr(self, "price", None)
        if self.reservation_capacity is not None and self.reservation_capacity < 0:
            force_setattr(self, "reservation_capacity", 0)

    @property
    def overlaid(self) -> bool:
        """Whether the price is not the cloud provider's own."""
        return self.price_source.startswith(OVERLAY)


class InstanceType(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`labels`: every label a node of this type may carry, with the values it may take (several mean any)."""

    name: str
    capacity: Resources
    overhead: Resources
    labels: Mapping[str, tuple[str, ...]]
    offerings: tuple[Offering, ...]
    attach_limits: Mapping[str, int] = {}

    @property
    def requirements(self) -> Requirements:
        """The labels as requirements."""
        cached: Requirements | None = self.__dict__.get("_requirements")
        if cached is None:
            made = (requirement(key, "In", values) for key, values in self.labels.items() if values)
            cached = self.__dict__["_requirements"] = Requirements(made)
        return cached

    @property
    def allocatable(self) -> Resources:
        """Capacity less overhead; huge pages come out of memory."""
        cached: Resources | None = self.__dict__.get("_allocatable")
        if cached is None:
            left = {name: amount - self.overhead.get(name, 0) for name, amount in self.capacity.items()}
            pages = sum(amount for name, amount in self.capacity.items() if name.startswith("hugepages-"))
            if pages and "memory" in left:
                left["memory"] = max(0, left["memory"] - pages)
            cached = self.__dict__["_allocatable"] = left
        return cached
