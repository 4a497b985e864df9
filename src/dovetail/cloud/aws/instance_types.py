"""The instance types a NodeClass can launch: EC2's list, zones, prices, reservations, and recent refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import capacity, catalog
from dovetail.cloud.aws.capacity_reservations import Reservation
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.instance_type_info import InstanceTypeLimits, InstanceTypeSpec, from_ec2
from dovetail.cloud.aws.instance_type_labels import NodeClassTraits, is_compatible, node_class_traits
from dovetail.cloud.aws.placement_groups import Ec2PlacementGroup
from dovetail.cloud.aws.pricing import Pricing
from dovetail.cloud.aws.ttl_cache import TtlCache
from dovetail.cloud.provider import CloudError, Remedy
from dovetail.cloud.unavailable_offerings import UnavailableOfferings
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import (
    CAPACITY_TYPE,
    ON_DEMAND,
    REGION,
    RESERVED,
    SPOT,
    ZONE,
    ZONE_ID,
)

if TYPE_CHECKING:
    from dovetail.cloud.aws.placement_groups import Ec2PlacementGroup

V = TypeVar("V")

REFRESH = 12 * 3600.0
DERIVED = 300.0

#: The fields of a node class that types and offerings depend on.
_DECIDING = (
    "amiFamily",
    "amiSelectorTerms",
    "kubelet",
    "blockDeviceMappings",
    "instanceStorePolicy",
    "networkInterfaces",
    "connectionTracking",
    "cpuOptions",
)

#: What a reserved instance costs to weigh it against others: it is paid for already.
RESERVED_SHARE = 1e-7


class Types:
    """EC2's data changes rarely and is large: it is asked for twice a day, and derived lists live for minutes."""

    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        pricing: Pricing,
        unavailable: UnavailableOfferings,
        settings: capacity.CapacitySettings,
    ) -> None:
        self._calls = calls
        self._pricing = pricing
        self._unavailable = unavailable
        self._settings = settings
        self._specs: TtlCache[Mapping[str, InstanceTypeSpec]] = TtlCache(clock, REFRESH)
        self._zones: TtlCache[Mapping[str, frozenset[str]]] = TtlCache(clock, REFRESH)
        self._derived: TtlCache[tuple[InstanceType, ...]] = TtlCache(clock, DERIVED)
        self._shown: dict[bytes, tuple[tuple[InstanceType, ...], int, tuple[InstanceType, ...]]] = {}
        self._reserved: dict[tuple[Reservation, ...], tuple[tuple[InstanceType, ...], tuple[InstanceType, ...]]] = {}

    async def list(
        self,
        node_class: Mapping[str, Any],
        zones: Mapping[str, str],
        reservations: Sequence[Reservation] = (),
        group: Ec2PlacementGroup | None = None,
    ) -> tuple[InstanceType, ...]:
        """Every type, those that cannot be had now included. `zones`: the subnets' zones with their ids.

        `group` is the placement group that the instances are to stand in.
        """
        spec: Mapping[str, Any] = node_class.get("spec") or {}
        fields = {key: spec.get(key) for key in _DECIDING}
        key = msgspec.json.encode((fields, dict(zones), group), order="sorted")
        derived = await self._derived.get(key, lambda: self._derive(spec, zones, group))
        inside = group.id if group else ""
        return self._with_reservations(self._to_be_had(key, derived, inside), tuple(reservations), zones, inside)

    def forget(self) -> None:
        self._derived.forget()

    def _to_be_had(self, key: bytes, derived: tuple[InstanceType, ...], group: str) -> tuple[InstanceType, ...]:
        """The types less what was refused lately; the same answer while nothing changed."""
        generation = self._unavailable.generation
        cached = self._shown.get(key)
        if cached is None or cached[0] is not derived or cached[1] != generation:
            cached = self._shown[key] = (derived, generation, self._unavailable.apply(derived, group))
        return cached[2]

    def _with_reservations(
        self,
        types: tuple[InstanceType, ...],
        reservations: tuple[Reservation, ...],
        zones: Mapping[str, str],
        group: str,
    ) -> tuple[InstanceType, ...]:
        """The types with what is reserved of them; the same answer while nothing changed, so that others can cache."""
        if not reservations:
            return types
        cached = self._reserved.get(reservations)
        if cached is None or cached[0] is not types:
            reservations_by_type: dict[str, list[Reservation]] = {}
            for reservation in reservations:
                reservations_by_type.setdefault(reservation.instance_type, []).append(reservation)
            made = tuple(
                self._holding(t, reservations_by_type[t.name], zones, group) if t.name in reservations_by_type else t
                for t in types
            )
            cached = (types, made)
            self._reserved = {reservations: cached}
        return cached[1]

    def _holding(
        self, t: InstanceType, reservations: Sequence[Reservation], zones: Mapping[str, str], group: str
    ) -> InstanceType:
        reserved = (
            self._unavailable.shown(t.name, self._offering(reservation, zones), group) for reservation in reservations
        )
        offerings = (*t.offerings, *reserved)
        labels = {**t.labels, CAPACITY_TYPE: tuple(sorted({*t.labels[CAPACITY_TYPE], RESERVED}))}
        return msgspec.structs.replace(t, offerings=offerings, labels=labels)

    async def _derive(
        self, spec: Mapping[str, Any], zones: Mapping[str, str], group: Ec2PlacementGroup | None
    ) -> tuple[InstanceType, ...]:
        specs = await self._specs.get("specs", self._describe)
        offered = await self._zones.get("zones", self._offered)
        kind = node_class_traits(spec, self._settings)
        placed = group.labels() if group else {}
        return tuple(
            InstanceType(
                name=name,
                capacity=kind.capacity(type_spec),
                overhead=kind.overhead(type_spec),
                labels=self._labels(type_spec, kind, offered.get(name, frozenset()), zones) | placed,
                offerings=self._offerings(
                    type_spec, is_compatible(type_spec, spec, group), offered.get(name, frozenset()), zones
                ),
                attach_limits=catalog.attach_limits(type_spec),
            )
            for name, type_spec in specs.items()
            if name in offered
        )

    def _labels(
        self, spec: InstanceTypeSpec, kind: NodeClassTraits, offered: Iterable[str], zones: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        labels = kind.labels(spec)
        labels[REGION] = (self._calls.region,)
        labels[ZONE] = tuple(sorted(set(offered) & zones.keys()))
        labels[CAPACITY_TYPE] = tuple(k for k in (ON_DEMAND, SPOT) if k in spec.usage_classes)
        return labels

    def _offerings(
        self, spec: InstanceTypeSpec, fits: bool, offered: frozenset[str], zones: Mapping[str, str]
    ) -> tuple[Offering, ...]:
        offerings = []
        for zone in sorted(offered):
            labels = {ZONE_ID: zones[zone]} if zones.get(zone) else {}
            for usage in (ON_DEMAND, SPOT):
                if usage in spec.usage_classes:
                    spot = usage == SPOT
                    price = self._pricing.spot(spec.name, zone) if spot else self._pricing.on_demand(spec.name)
                    offerings.append(
                        Offering(
                            zone=zone,
                            capacity_type=usage,
                            labels=labels,
                            price=price.dollars if price else None,
                            price_source=price.source if price else "",
                            available=fits and zone in zones and price is not None,
                        )
                    )
        return tuple(offerings)

    def _offering(self, reservation: Reservation, zones: Mapping[str, str]) -> Offering:
        price = self._pricing.on_demand(reservation.instance_type)
        return Offering(
            zone=reservation.zone,
            capacity_type=RESERVED,
            price=price.dollars * RESERVED_SHARE if price else 0.0,
            price_source="reserved: paid for already",
            available=reservation.zone in zones and not reservation.expiring,
            labels=reservation.labels() | ({ZONE_ID: zones[reservation.zone]} if zones.get(reservation.zone) else {}),
            reservation_id=reservation.id,
            reservation_capacity=reservation.free,
        )

    async def _describe(self) -> Mapping[str, InstanceTypeSpec]:
        rows = await self._calls.all(
            "ec2",
            "describe_instance_types",
            "InstanceTypes",
            Filters=[{"Name": "supported-virtualization-type", "Values": ["hvm"]}],
        )
        cached = catalog.specs()
        specs = {}
        for row in rows:
            packaged = cached.get(row["InstanceType"])
            limits = InstanceTypeLimits(packaged.branch_interfaces, packaged.network_mbps) if packaged else None
            spec = from_ec2(row, limits)
            if spec.arches:
                specs[spec.name] = spec
        return _not_empty(specs, "DescribeInstanceTypes")

    async def _offered(self) -> Mapping[str, frozenset[str]]:
        rows = await self._calls.all(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone"
        )
        zones_by_type: dict[str, set[str]] = {}
        for row in rows:
            zones_by_type.setdefault(row["InstanceType"], set()).add(row["Location"])
        zones = {name: frozenset(places) for name, places in zones_by_type.items()}
        return _not_empty(zones, "DescribeInstanceTypeOfferings")


def _not_empty(answer: dict[str, V], operation: str) -> dict[str, V]:
    """An answer that would be believed for half a day. Every region has instance types: without any it is none."""
    if not answer:
        text = f"{operation} lists no instance types in this region; it is asked again"
        raise CloudError("NoInstanceTypes", text, Remedy.RETRY)
    return answer
