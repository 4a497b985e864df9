"""The instance types a node class can buy: EC2's list, its zones, prices, reservations, and what was refused lately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud import catalogue
from dovetail.cloud.aws import capacity, nodeclass, typelabels
from dovetail.cloud.aws.ageing import Ageing
from dovetail.cloud.aws.calls import Calls
from dovetail.cloud.aws.pricing import Pricing
from dovetail.cloud.aws.spec import Limits, Spec, from_ec2
from dovetail.cloud.unavailable import Unavailable
from dovetail.model.instancetype import InstanceType, Offering

REFRESH = 12 * 3600.0
DERIVED = 300.0
ZONE = "topology.kubernetes.io/zone"
ZONE_ID = "topology.k8s.aws/zone-id"
KIND = "karpenter.sh/capacity-type"
RESERVATION = "karpenter.k8s.aws/capacity-reservation-id"
_BUILDS = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}

#: What a reserved machine costs to weigh it against others: it is paid for already.
RESERVED_SHARE = 1e-7


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A capacity reservation of the node class, as its status has it, with what is left of it."""

    id: str
    instance_type: str
    zone: str
    free: int
    kind: str = "default"
    expiring: bool = False


class Types:
    """EC2's data changes rarely and is large: it is asked for twice a day, and derived lists live for minutes."""

    def __init__(
        self,
        calls: Calls,
        clock: Clock,
        pricing: Pricing,
        unavailable: Unavailable,
        settings: capacity.Settings,
    ) -> None:
        self._calls = calls
        self._pricing = pricing
        self._unavailable = unavailable
        self._settings = settings
        self._specs: Ageing[Mapping[str, Spec]] = Ageing(clock, REFRESH)
        self._zones: Ageing[Mapping[str, frozenset[str]]] = Ageing(clock, REFRESH)
        self._derived: Ageing[tuple[InstanceType, ...]] = Ageing(clock, DERIVED)

    async def list(
        self, node_class: Mapping[str, Any], zones: Mapping[str, str], reservations: Sequence[Reservation] = ()
    ) -> tuple[InstanceType, ...]:
        """Every type, those that cannot be had now included. `zones`: the subnets' zones with their ids."""
        spec: Mapping[str, Any] = node_class.get("spec") or {}
        fields = {key: spec.get(key) for key in ("amiFamily", "amiSelectorTerms", "kubelet", "blockDeviceMappings",
                                                 "instanceStorePolicy", "networkInterfaces")}
        key = msgspec.json.encode((fields, dict(zones), list(reservations)), order="sorted")
        derived = await self._derived.get(key, lambda: self._derive(spec, zones, reservations))
        return self._unavailable.apply(derived)

    def forget(self) -> None:
        self._derived.forget()

    async def _derive(
        self, spec: Mapping[str, Any], zones: Mapping[str, str], reservations: Sequence[Reservation]
    ) -> tuple[InstanceType, ...]:
        specs = await self._specs.get("specs", self._describe)
        offered = await self._zones.get("zones", self._offered)
        kind = nodeclass.family(spec)
        limits = nodeclass.kubelet(spec)
        room = nodeclass.disk(spec)
        own = [nic for nic in spec.get("networkInterfaces") or () if nic.get("interfaceType") == "efa-only"]
        settings = msgspec.structs.replace(
            self._settings,
            efa_only_interfaces=sum(nic["networkCardIndex"] == 0 for nic in own),
            efa=len(own) if spec.get("networkInterfaces") else None,
        )
        return tuple(
            InstanceType(
                name=name,
                capacity=capacity.capacity(found, kind, limits, room, settings),
                overhead=capacity.overhead(found, kind, limits, room, settings),
                labels=self._labels(found, kind, offered.get(name, frozenset()), zones),
                offerings=self._offerings(found, kind, offered.get(name, frozenset()), zones, reservations),
                attach_limits=catalogue.attach_limits(found),
            )
            for name, found in specs.items()
            if name in offered
        )

    def _labels(
        self, spec: Spec, kind: capacity.Family, offered: Iterable[str], zones: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        windows = kind.windows and "x86_64" in spec.arches
        labels = typelabels.labels(spec, ("windows",) if windows else ("linux",))
        labels["topology.kubernetes.io/region"] = (self._calls.region,)
        labels[ZONE] = tuple(sorted(set(offered) & zones.keys()))
        labels[KIND] = tuple(sorted(k for k in ("on-demand", "spot") if k in spec.usage_classes))
        if windows:
            labels["node.kubernetes.io/windows-build"] = (_BUILDS[kind.name],)
        return labels

    def _offerings(
        self,
        spec: Spec,
        kind: capacity.Family,
        offered: frozenset[str],
        zones: Mapping[str, str],
        reservations: Sequence[Reservation],
    ) -> tuple[Offering, ...]:
        fits = not (kind.name == "AL2023" and spec.name.startswith("a1."))
        found = []
        for zone in sorted(offered):
            labels = {ZONE_ID: zones[zone]} if zones.get(zone) else {}
            for usage in ("on-demand", "spot"):
                if usage in spec.usage_classes:
                    price = (
                        self._pricing.on_demand(spec.name) if usage == "on-demand"
                        else self._pricing.spot(spec.name, zone)
                    )
                    found.append(
                        Offering(
                            zone=zone, capacity_type=usage, labels=labels,
                            price=price.dollars if price else None,
                            price_source=price.source if price else "",
                            available=fits and zone in zones and price is not None,
                        )
                    )
        own = [r for r in reservations if r.instance_type == spec.name]
        return (*found, *(self._reserved(reservation, zones) for reservation in own))

    def _reserved(self, reservation: Reservation, zones: Mapping[str, str]) -> Offering:
        price = self._pricing.on_demand(reservation.instance_type)
        return Offering(
            zone=reservation.zone,
            capacity_type="reserved",
            price=price.dollars * RESERVED_SHARE if price else 0.0,
            price_source="reserved: paid for already",
            available=reservation.zone in zones and not reservation.expiring,
            labels={RESERVATION: reservation.id, "karpenter.k8s.aws/capacity-reservation-type": reservation.kind},
            reservation_id=reservation.id,
            reservation_capacity=reservation.free,
        )

    async def _describe(self) -> Mapping[str, Spec]:
        rows = await self._calls.all(
            "ec2", "describe_instance_types", "InstanceTypes",
            Filters=[{"Name": "supported-virtualization-type", "Values": ["hvm"]}],
        )
        known = catalogue.specs()
        found = {}
        for row in rows:
            packaged = known.get(row["InstanceType"])
            limits = Limits(packaged.branch_interfaces, packaged.network_mbps) if packaged else None
            spec = from_ec2(row, limits)
            if spec.arches:
                found[spec.name] = spec
        return found

    async def _offered(self) -> Mapping[str, frozenset[str]]:
        rows = await self._calls.all(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone"
        )
        found: dict[str, set[str]] = {}
        for row in rows:
            found.setdefault(row["InstanceType"], set()).add(row["Location"])
        return {name: frozenset(places) for name, places in found.items()}
