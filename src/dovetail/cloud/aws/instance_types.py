"""The instance types a NodeClass can launch: EC2's list, zones, prices, reservations, and recent refusals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dovetail.clock import Clock
from dovetail.cloud.aws import capacity, catalog, ec2nodeclass
from dovetail.cloud.aws.capacity_reservations import Reservation
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.ec2nodeclass import family_name
from dovetail.cloud.aws.instance_type_info import Limits, Spec, from_ec2
from dovetail.cloud.aws.placement_groups import Group
from dovetail.cloud.aws.pricing import Pricing
from dovetail.cloud.aws.ttl_cache import Ageing
from dovetail.cloud.unavailable_offerings import Unavailable
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import (
    ARCH,
    AWS_GROUP,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    RESERVED,
    SPOT,
    TENANCY,
    WINDOWS_BUILD,
    ZONE,
    ZONE_ID,
)

if TYPE_CHECKING:
    from dovetail.cloud.aws.placement_groups import Group


# What an EC2NodeClass makes of instance types: how much of them is left for pods, and which labels they have.


class NodeClassTraits(msgspec.Struct, frozen=True):
    """Instances of a class, whatever their type."""

    family: capacity.Family
    kubelet: capacity.Kubelet
    disk: capacity.Disk
    settings: capacity.Settings

    def capacity(self, spec: Spec) -> dict[str, int]:
        return capacity.capacity(spec, self.family, self.kubelet, self.disk, self.settings)

    def overhead(self, spec: Spec) -> dict[str, int]:
        return capacity.overhead(spec, self.family, self.kubelet, self.disk, self.settings)

    def labels(self, spec: Spec) -> dict[str, tuple[str, ...]]:
        """A type that the images are not made for has no operating system."""
        system = ("windows" if self.family.windows else "linux",) if self.family.runs_on(spec) else ()
        found = labels(spec, system)
        if self.family.windows:
            found[WINDOWS_BUILD] = (WINDOWS_BUILDS[self.family.name.removeprefix("Windows")],)
        return found


def node_class_traits(asked: Mapping[str, Any], settings: capacity.Settings) -> NodeClassTraits:
    """`asked` is the class's spec, `settings` what holds for all classes."""
    interfaces = asked.get("networkInterfaces")
    own = [nic for nic in interfaces or () if nic.get("interfaceType") == "efa-only"]
    settings = msgspec.structs.replace(
        settings,
        efa_only_interfaces=sum(nic["networkCardIndex"] == 0 for nic in own),
        efa=None if interfaces is None else len(own),
    )
    return NodeClassTraits(ec2nodeclass.family(asked), ec2nodeclass.kubelet(asked), ec2nodeclass.disk(asked), settings)


# Whether an instance type can be launched with all that a node class asks of its instances.
#
# A type that cannot is still a type, with labels and capacity; it is not offered to this class.


def suits(spec: Spec, asked: Mapping[str, Any], group: Group | None = None) -> bool:
    """`asked` is the class's spec, `group` the placement group that its instances stand in."""
    if group is not None and group.strategy not in spec.placement:
        return False
    if family_name(asked) == "AL2023" and spec.name.startswith("a1."):
        return False  # its first generation of arm64 is too old for the image
    if (asked.get("cpuOptions") or {}).get("nestedVirtualization") == "enabled" and not spec.nested_virtualization:
        return False
    if asked.get("connectionTracking") is not None and spec.hypervisor != "nitro":
        return False
    interfaces = asked.get("networkInterfaces")
    return interfaces is None or _takes(spec, interfaces)


def _takes(spec: Spec, interfaces: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the instance has the cards, and on each card the room, for these interfaces."""
    room = spec.card_interfaces or (spec.interfaces,) * spec.cards
    fabric = sum(each["interfaceType"] == "efa-only" for each in interfaces)
    return (
        spec.ena
        and fabric <= spec.efa
        and all(
            each["networkCardIndex"] < len(room) and each["deviceIndex"] < room[each["networkCardIndex"]]
            for each in interfaces
        )
    )


# The labels a node of an EC2 type carries, by Karpenter's names.

_NAME = re.compile(r"^([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
#: EC2's names of architectures, and Kubernetes'.
ARCHES = {"x86_64": "amd64", "arm64": "arm64"}
#: Windows' own number of each release.
WINDOWS_BUILDS = {"2019": "10.0.17763", "2022": "10.0.20348", "2025": "10.0.26100"}


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def labels(spec: Spec, os: tuple[str, ...] = ("linux",)) -> dict[str, tuple[str, ...]]:
    """Label -> the values it may take. Zone and capacity type belong to offerings, not here."""
    family, _, size = spec.name.partition(".")
    aws: dict[str, str | None] = {
        "instance-family": family,
        "instance-size": size,
        "instance-capability-flex": "true" if "-flex" in family else "false",
        "instance-cpu": str(spec.vcpus),
        "instance-memory": str(spec.memory_mib),
        "instance-cpu-manufacturer": _kebab(spec.cpu_maker) or None,
        "instance-cpu-sustained-clock-speed-mhz": str(round((spec.clock_ghz or 0) * 1000)),
        "instance-ebs-bandwidth": _text(spec.ebs_mbps),
        "instance-network-bandwidth": _text(spec.network_mbps),
        "instance-local-nvme": str(spec.storage_gb) if spec.nvme and spec.storage_gb else None,
        "instance-hypervisor": spec.hypervisor,
        "instance-encryption-in-transit-supported": str(spec.encrypts_in_transit).lower(),
        "nitro-sandbox": str(spec.enclaves).lower(),
    }
    if found := _NAME.match(spec.name):
        aws["instance-category"], aws["instance-generation"] = found.groups()
    aws |= _devices(spec)
    return {
        **{f"{AWS_GROUP}/{key}": (value,) for key, value in aws.items() if value is not None},
        TENANCY: ("default", "dedicated"),
        INSTANCE_TYPE: (spec.name,),
        ARCH: tuple(ARCHES[a] for a in spec.arches),
        OS: os,
    }


def _devices(spec: Spec) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if len(spec.gpus) == 1:
        gpu = spec.gpus[0]
        found["instance-gpu-name"] = _kebab(gpu.name)
        found["instance-gpu-manufacturer"] = _kebab(gpu.maker)
        found["instance-gpu-count"] = str(gpu.count)
        found["instance-gpu-memory"] = str(gpu.memory_mib)
    if len(spec.accelerators) == 1 and not spec.neurons:
        device = spec.accelerators[0]
        found["instance-accelerator-name"] = _kebab(device.name)
        found["instance-accelerator-manufacturer"] = _kebab(device.maker)
        found["instance-accelerator-count"] = str(device.count)
    elif spec.neurons:
        found["instance-accelerator-name"] = _kebab(spec.neurons[0].name)
        found["instance-accelerator-manufacturer"] = "aws"
        found["instance-accelerator-count"] = str(spec.neurons[0].count)
    return found


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


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
        self._shown: dict[bytes, tuple[tuple[InstanceType, ...], int, tuple[InstanceType, ...]]] = {}
        self._reserved: dict[tuple[Reservation, ...], tuple[tuple[InstanceType, ...], tuple[InstanceType, ...]]] = {}

    async def list(
        self,
        node_class: Mapping[str, Any],
        zones: Mapping[str, str],
        reservations: Sequence[Reservation] = (),
        group: Group | None = None,
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
        known = self._shown.get(key)
        if known is None or known[0] is not derived or known[1] != generation:
            known = self._shown[key] = (derived, generation, self._unavailable.apply(derived, group))
        return known[2]

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
        known = self._reserved.get(reservations)
        if known is None or known[0] is not types:
            held: dict[str, list[Reservation]] = {}
            for each in reservations:
                held.setdefault(each.instance_type, []).append(each)
            made = tuple(self._holding(t, held[t.name], zones, group) if t.name in held else t for t in types)
            known = (types, made)
            self._reserved = {reservations: known}
        return known[1]

    def _holding(
        self, t: InstanceType, held: Sequence[Reservation], zones: Mapping[str, str], group: str
    ) -> InstanceType:
        reserved = (self._unavailable.shown(t.name, self._offering(each, zones), group) for each in held)
        offerings = (*t.offerings, *reserved)
        labels = {**t.labels, CAPACITY_TYPE: tuple(sorted({*t.labels[CAPACITY_TYPE], RESERVED}))}
        return msgspec.structs.replace(t, offerings=offerings, labels=labels)

    async def _derive(
        self, spec: Mapping[str, Any], zones: Mapping[str, str], group: Group | None
    ) -> tuple[InstanceType, ...]:
        specs = await self._specs.get("specs", self._describe)
        offered = await self._zones.get("zones", self._offered)
        kind = node_class_traits(spec, self._settings)
        placed = group.labels() if group else {}
        return tuple(
            InstanceType(
                name=name,
                capacity=kind.capacity(found),
                overhead=kind.overhead(found),
                labels=self._labels(found, kind, offered.get(name, frozenset()), zones) | placed,
                offerings=self._offerings(found, suits(found, spec, group), offered.get(name, frozenset()), zones),
                attach_limits=catalog.attach_limits(found),
            )
            for name, found in specs.items()
            if name in offered
        )

    def _labels(
        self, spec: Spec, kind: NodeClassTraits, offered: Iterable[str], zones: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        labels = kind.labels(spec)
        labels[REGION] = (self._calls.region,)
        labels[ZONE] = tuple(sorted(set(offered) & zones.keys()))
        labels[CAPACITY_TYPE] = tuple(k for k in (ON_DEMAND, SPOT) if k in spec.usage_classes)
        return labels

    def _offerings(
        self, spec: Spec, fits: bool, offered: frozenset[str], zones: Mapping[str, str]
    ) -> tuple[Offering, ...]:
        found = []
        for zone in sorted(offered):
            labels = {ZONE_ID: zones[zone]} if zones.get(zone) else {}
            for usage in (ON_DEMAND, SPOT):
                if usage in spec.usage_classes:
                    spot = usage == SPOT
                    price = self._pricing.spot(spec.name, zone) if spot else self._pricing.on_demand(spec.name)
                    found.append(
                        Offering(
                            zone=zone,
                            capacity_type=usage,
                            labels=labels,
                            price=price.dollars if price else None,
                            price_source=price.source if price else "",
                            available=fits and zone in zones and price is not None,
                        )
                    )
        return tuple(found)

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

    async def _describe(self) -> Mapping[str, Spec]:
        rows = await self._calls.all(
            "ec2",
            "describe_instance_types",
            "InstanceTypes",
            Filters=[{"Name": "supported-virtualization-type", "Values": ["hvm"]}],
        )
        known = catalog.specs()
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
