"""Launching instances: an instant fleet of every offering that a claim may use, cheapest first.

A client token and tags with the claims' UIDs go with every call: the same launch repeated after a crash finds
or returns the same instance, and an instance without a claim can always be distinguished from one that still waits for
its record. Which claims share a call is the business of `joint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dovetail.cloud.aws.capacity_reservations import CAPACITY_BLOCK, INTERRUPTIBLE
from dovetail.cloud.aws.client import Calls
from dovetail.cloud.aws.errors import described, explain, is_shortage
from dovetail.cloud.aws.min_values import Needs, cut
from dovetail.cloud.aws.subnets import Subnet
from dovetail.cloud.provider import CloudError, InsufficientCapacity, LaunchOption
from dovetail.language import source
from dovetail.model.instance_type import Offering
from dovetail.model.labels import RESERVATION_INTERRUPTIBLE, RESERVATION_TYPE

#: How many types one fleet call may carry.
MOST_TYPES = 60

_EXOTIC = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron")

Key = tuple[str, str, str]


class RefusedOffering(msgspec.Struct, frozen=True):
    """An offering EC2 would not sell, and in which words."""

    code: str
    message: str
    key: Key
    subnet: str = ""


class FleetInstance(msgspec.Struct, frozen=True):
    instance_id: str
    instance_type: str
    zone: str
    image_id: str
    subnet: str


def choose(options: Sequence[LaunchOption], needs: Needs) -> tuple[str, tuple[LaunchOption, ...]]:
    """The capacity type to ask for and the offerings to name, cheapest first.

    Reserved before spot before on-demand. Unless the claim requires variety (`needs`), metal and
    accelerated instances stay out while others remain, and so does spot dearer than on-demand.
    """
    left = sorted((o for o in options if o.offering.available), key=_rank)
    if reserved := [o for o in left if _kind(o) == "reserved"]:
        left = _of_one_sort(reserved)
    if not needs:
        left = [o for o in left if not _exotic(o)] or left
        sure = min((_price(o) for o in left if _kind(o) == "on-demand"), default=float("inf"))
        left = [o for o in left if _kind(o) != "spot" or _price(o) <= sure]
    kinds = {_kind(o) for o in left}
    kind = next((k for k in ("reserved", "spot") if k in kinds), "on-demand")
    return kind, cut([o for o in left if _kind(o) == kind], needs, MOST_TYPES)


def market(offering: Offering) -> str:
    """The market a reserved offering is sold on, in EC2's words; empty for the usual one."""
    if offering.labels.get(RESERVATION_TYPE) == CAPACITY_BLOCK:
        return CAPACITY_BLOCK
    return INTERRUPTIBLE if offering.labels.get(RESERVATION_INTERRUPTIBLE) == "true" else ""


def _of_one_sort(options: Sequence[LaunchOption]) -> list[LaunchOption]:
    """What one request may name of reserved offerings, which come cheapest first.

    One sort of reservation; of capacity blocks a single one; of others, for each type, the fullest in each zone.
    """
    order = ("", CAPACITY_BLOCK, INTERRUPTIBLE)
    sort = min((_price(o), order.index(market(o.offering)), market(o.offering)) for o in options)[2]
    alike = [o for o in options if market(o.offering) == sort]
    if sort == CAPACITY_BLOCK:
        return alike[:1]
    fullest: dict[tuple[str, str], LaunchOption] = {}
    for option in alike:
        place = (option.instance_type.name, option.offering.zone)
        if place not in fullest or _reservation_capacity(option) > _reservation_capacity(fullest[place]):
            fullest[place] = option
    return [o for o in alike if fullest[o.instance_type.name, o.offering.zone] is o]


def _reservation_capacity(option: LaunchOption) -> int:
    return option.offering.reservation_capacity or 0


def _kind(option: LaunchOption) -> str:
    return option.offering.capacity_type


def _exotic(option: LaunchOption) -> bool:
    kind = option.instance_type
    return "metal" in kind.name or any(kind.capacity.get(device) for device in _EXOTIC)


def _price(option: LaunchOption) -> float:
    return option.offering.price if option.offering.price is not None else float("inf")


def _rank(option: LaunchOption) -> tuple[float, str, str]:
    return _price(option), option.instance_type.name, option.offering.zone


def overrides(
    options: Iterable[LaunchOption], subnets: Mapping[str, Subnet], image_id: str = ""
) -> list[dict[str, Any]]:
    """One for each option that has a subnet; without an image the template's own is taken."""
    image = {"ImageId": image_id} if image_id else {}
    return [
        {
            "InstanceType": option.instance_type.name,
            "SubnetId": subnets[option.offering.zone].id,
            "AvailabilityZone": option.offering.zone,  # so that an error can be put down to its offering
            **image,
            "Priority": _price(option) if option.offering.price is not None else 1e6,
        }
        for option in options
        if option.offering.zone in subnets
    ]


def request(
    kind: str,
    options: Sequence[LaunchOption],
    configs: Sequence[Mapping[str, Any]],
    tags: Mapping[str, str],
    context: str | None,
    count: int = 1,
) -> dict[str, Any]:
    """For `count` instances, of which EC2 may sell fewer; the client token is the caller's to add.

    EC2 goes by its own prices, unless ours are others': then by the priorities that they make.
    """
    ours = any(option.offering.overlaid for option in options)
    sold_on = market(options[0].offering)
    target = {CAPACITY_BLOCK: CAPACITY_BLOCK, INTERRUPTIBLE: "reserved-capacity"}.get(sold_on, "on-demand")
    listed = [{"Key": key, "Value": value} for key, value in sorted(tags.items())]
    made: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": list(configs),
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if kind == "spot" else target,
        },
        "TagSpecifications": [{"ResourceType": kind_, "Tags": listed} for kind_ in ("instance", "volume", "fleet")],
    }
    if kind == "spot":
        strategy = "capacity-optimized-prioritized" if ours else "price-capacity-optimized"
        made["SpotOptions"] = {"AllocationStrategy": strategy}
    elif sold_on == INTERRUPTIBLE:
        made["ReservedCapacityOptions"] = {"ReservationTypes": [INTERRUPTIBLE]}
    elif not sold_on:
        made["OnDemandOptions"] = {"AllocationStrategy": "prioritized" if ours else "lowest-price"}
    if context:
        made["Context"] = context
    return made


async def launch_fleet(
    calls: Calls, kind: str, fleet_request: Mapping[str, Any]
) -> tuple[list[FleetInstance], tuple[RefusedOffering, ...]]:
    """The instances that were sold, and what was refused on the way."""
    answer = await calls("ec2", "create_fleet", **fleet_request)
    refusals = tuple(_refusal(row, kind) for row in answer.get("Errors") or ())
    return [instance for row in answer.get("Instances") or () for instance in _launched(row)], refusals


def _launched(row: Mapping[str, Any]) -> list[FleetInstance]:
    chosen = row.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return [
        FleetInstance(
            instance_id=name,
            instance_type=row.get("InstanceType") or chosen.get("InstanceType", ""),
            zone=chosen.get("AvailabilityZone", ""),
            image_id=chosen.get("ImageId", ""),
            subnet=chosen.get("SubnetId", ""),
        )
        for name in row.get("InstanceIds") or ()
    ]


def _refusal(row: Mapping[str, Any], kind: str) -> RefusedOffering:
    chosen = row.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    key = (chosen.get("InstanceType", "*"), chosen.get("AvailabilityZone", "*"), kind)
    return RefusedOffering(row.get("ErrorCode", ""), row.get("ErrorMessage", ""), key, chosen.get("SubnetId", ""))


def failure(refusals: Sequence[RefusedOffering]) -> CloudError:
    """All for want of capacity: the next offering. Otherwise the first thing that is not."""
    other = next((r for r in refusals if not is_shortage(r.code, r.message)), None)
    if other is not None:
        return explain(other.code, other.message)
    words = "; ".join(sorted({described(r.code, r.message) for r in refusals})) or source(
        "EC2 launched nothing and gave no reason"
    )
    return InsufficientCapacity(
        source("all requested instance types were unavailable during launch: {words}").format(words=words),
        [r.key for r in refusals],
    )
