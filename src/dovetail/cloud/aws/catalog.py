"""The packaged EC2 catalogue: what is offered where, when no cloud can be asked.

Built by `scripts/build_catalogue.py`. Every price has a source; a type without a published price has none and
is therefore never chosen by cost. Spot has no offline record at all: its prices here are estimates, a
typical discount off on-demand, and say so.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Mapping
from importlib import resources
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.cloud.aws import capacity
from dovetail.cloud.aws.instance_type_info import InstanceTypeSpec
from dovetail.cloud.aws.instance_type_labels import is_compatible, node_class_traits
from dovetail.cloud.aws.instance_type_labels import labels as type_labels
from dovetail.language import message
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import CAPACITY_TYPE, ON_DEMAND, REGION, SPOT, ZONE, ZONE_ID

#: The typical share of on-demand that spot costs, by category; measured medians, rounded.
SPOT_SHARE: Mapping[str, float] = {"c": 0.35, "m": 0.33, "r": 0.27, "t": 0.31, "g": 0.32}
SPOT_SHARE_ELSEWHERE = 0.35

EBS_DRIVER = "ebs.csi.aws.com"

Quote = tuple[float, str]


class UnknownRegion(ValueError):
    def __init__(self, region: str) -> None:
        super().__init__(
            message(
                "region {region!r} is not in the packaged catalogue; it has {regions}",
                region=region,
                regions=", ".join(regions()),
            )
        )


def _read(name: str, type_: Any) -> Any:
    data = (resources.files("dovetail.cloud") / "data" / name).read_bytes()
    return msgspec.json.decode(gzip.decompress(data), type=type_)


@functools.cache
def specs() -> Mapping[str, InstanceTypeSpec]:
    """Every known type by name."""
    return {spec.name: spec for spec in _read("types.json.gz", list[InstanceTypeSpec])}


class Region(msgspec.Struct, frozen=True):
    """`zones`: name -> zone id. `types`: zone -> the types offered there."""

    zones: Mapping[str, str]
    types: Mapping[str, tuple[str, ...]]


@functools.cache
def _regions() -> Mapping[str, Region]:
    document: Mapping[str, Region] = _read("regions.json.gz", dict[str, Region])
    return document


class _Prices(msgspec.Struct, frozen=True):
    built: str
    currency: str
    regions: Mapping[str, Mapping[str, Quote]]


@functools.cache
def _prices() -> _Prices:
    document: _Prices = _read("prices.json.gz", _Prices)
    return document


def regions() -> tuple[str, ...]:
    return tuple(sorted(_regions()))


def region(name: str) -> Region:
    try:
        return _regions()[name]
    except KeyError:
        raise UnknownRegion(name) from None


def built() -> str:
    """When the packaged prices were collected."""
    return _prices().built


def on_demand(region_name: str, instance_type: str) -> Quote | None:
    """Dollars an hour and where the figure comes from; None where it is unknown."""
    return _prices().regions.get(region_name, {}).get(instance_type)


def is_priced(region_name: str) -> bool:
    """Whether the packaged list has prices of a region."""
    return region_name in _prices().regions


def category(instance_type: str) -> str:
    """The letters a type's name starts with: what it is made for."""
    return instance_type[: next((i for i, c in enumerate(instance_type) if not c.isalpha()), 0)]


def spot_estimate(quote: Quote, instance_type: str) -> Quote:
    share = SPOT_SHARE.get(category(instance_type), SPOT_SHARE_ELSEWHERE)
    return round(quote[0] * share, 6), f"estimated {share:.0%} of on-demand ({quote[1]})"


def attach_limits(spec: InstanceTypeSpec) -> Mapping[str, int]:
    """EBS volumes an instance can attach beside its root volume; disks of its own share a shared limit."""
    if spec.ebs_volumes is None:
        return {}
    taken = 1 + (spec.storage_disks if spec.ebs_shared and spec.nvme else 0)
    return {EBS_DRIVER: max(1, spec.ebs_volumes - taken)}


def offerings(spec: InstanceTypeSpec, region_name: str) -> tuple[Offering, ...]:
    """Every zone and capacity type of the region in which the type is sold."""
    place = region(region_name)
    quote = on_demand(region_name, spec.name)
    offerings_ = []
    for zone, zone_id in place.zones.items():
        if spec.name not in _offered(region_name)[zone]:
            continue
        for kind in (ON_DEMAND, SPOT):
            if kind not in spec.usage_classes:
                continue
            priced = quote if kind == ON_DEMAND or quote is None else spot_estimate(quote, spec.name)
            offerings_.append(
                Offering(
                    zone=zone,
                    capacity_type=kind,
                    price=priced[0] if priced else None,
                    available=priced is not None,
                    labels={ZONE_ID: zone_id},
                    price_source=priced[1] if priced else "",
                )
            )
    return tuple(offerings_)


@functools.cache
def _offered(region_name: str) -> Mapping[str, frozenset[str]]:
    return {zone: frozenset(types) for zone, types in region(region_name).types.items()}


def instance_type(spec: InstanceTypeSpec, region_name: str) -> InstanceType:
    """The type as AL2023 nodes without block device mappings would show it."""
    offerings_ = offerings(spec, region_name)
    labels = type_labels(spec) | {
        REGION: (region_name,),
        ZONE: tuple(sorted({o.zone for o in offerings_})),
        CAPACITY_TYPE: tuple(sorted({o.capacity_type for o in offerings_})),
    }
    return InstanceType(
        name=spec.name,
        capacity=capacity.capacity(spec),
        overhead=capacity.overhead(spec),
        labels=labels,
        offerings=offerings_,
        attach_limits=attach_limits(spec),
    )


@functools.cache
def load(region_name: str) -> tuple[InstanceType, ...]:
    """The instance types sold in a region, by name."""
    sold = set().union(*_offered(region_name).values())
    return tuple(instance_type(spec, region_name) for name, spec in specs().items() if name in sold)


def of_class(region_name: str, node_class: Mapping[str, Any]) -> tuple[InstanceType, ...]:
    """The instance types sold in a region, as instances of an EC2NodeClass show them.

    Which subnets and reservations it selects is for the cloud to say.
    """
    node_class_spec: Mapping[str, Any] = node_class.get("spec") or {}
    kind = node_class_traits(node_class_spec, capacity.CapacitySettings())
    return tuple(
        replace(
            instance_type,
            capacity=kind.capacity(spec),
            overhead=kind.overhead(spec),
            labels={**instance_type.labels, **kind.labels(spec)},
            offerings=instance_type.offerings
            if is_compatible(spec, node_class_spec)
            else tuple(map(_withheld, instance_type.offerings)),
        )
        for instance_type, spec in ((instance_type, specs()[instance_type.name]) for instance_type in load(region_name))
    )


def _withheld(offering: Offering) -> Offering:
    return replace(offering, available=False)
