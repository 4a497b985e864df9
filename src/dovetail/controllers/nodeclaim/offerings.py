"""Launch options of a NodeClaim: the offerings that meet its requirements and hold its requests.

They follow from the NodeClaim and the cloud's types alone, so that a NodeClaim found after a crash, or made by hand,
launches as well as one just planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.cloud.provider import LaunchOption
from dovetail.cluster.state_node import provider_labels
from dovetail.model import wellknown
from dovetail.model.formats import label_value
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import NODEPOOL, REGION, WELL_KNOWN, restricted
from dovetail.model.quantity import resources
from dovetail.model.requirements import Requirements

#: Reserved capacity is paid for already; spot is cheap; on-demand is reliable.
_PRECEDENCE = {"reserved": 0, "spot": 1, "on-demand": 1}
_LARGEST = float("inf")
#: As many offerings as a fleet request takes.
MOST = 1000


def options(claim: NodeClaim, types: Iterable[InstanceType]) -> tuple[LaunchOption, ...]:
    """What is available now, cheapest first; ties by name, so that equal NodeClaims have equal order."""
    requests = resources(claim.spec.resources.requests)
    requirements = Requirements.of_entries(claim.spec.requirements)
    large_enough = (instance_type for instance_type in types if _holds(instance_type, requests))
    launch_options = [
        option
        for option in compatible(requirements, claim.metadata.labels, large_enough)
        if launchable(option.offering)
    ]
    return tuple(sorted(launch_options, key=_order)[:MOST])


def compatible(
    requirements: Requirements, label_keys: Iterable[str], types: Iterable[InstanceType]
) -> Iterator[LaunchOption]:
    """Every offering that meets the requirements, available or not. The node has `label_keys` anyway."""
    names, anyway = requirements.of(wellknown.INSTANCE_TYPE), {*label_keys, NODEPOOL, REGION}
    for t in types:
        if names.has(t.name) and t.requirements.intersects(requirements):
            for offering in t.offerings:
                if _offered(t, offering, requirements, anyway):
                    yield LaunchOption(instance_type=t, offering=offering)


def cheapest(cheapest_options: Iterable[LaunchOption]) -> LaunchOption | None:
    """What a launch would try first of what is available now."""
    return min((option for option in cheapest_options if launchable(option.offering)), key=_order, default=None)


def labels(claim: NodeClaim) -> dict[str, str]:
    """The labels an instance is launched with: the NodeClaim's own, and those its requirements determine."""
    return {**provider_labels(claim), **claim.metadata.labels}


def custom_labels(claim: NodeClaim, types: Iterable[InstanceType]) -> dict[str, str]:
    """A value for each custom label that the NodeClaim's requirements name and that nothing else decides.

    Well-known labels and labels that a type defines are the cloud's to set. The value is the same for equal NodeClaims:
    the first of a set, the smallest number that is allowed.
    """
    requirements = Requirements.of_entries(claim.spec.requirements)
    decided = {*claim.metadata.labels, *(key for t in types for key in (*t.labels, *_offering_labels(t)))}
    values = {
        key: requirement.any()
        for key, requirement in requirements.items()
        if key not in decided and key not in WELL_KNOWN and restricted(key) is None
    }
    return {key: value for key, value in values.items() if requirements[key].has(value) and not label_value(value)}


def _offering_labels(t: InstanceType) -> Iterator[str]:
    return (key for offering in t.offerings for key in offering.labels)


def _order(option: LaunchOption) -> tuple[int, float, str, str, str]:
    offering = option.offering
    price = _LARGEST if offering.price is None else offering.price
    rank = _PRECEDENCE.get(offering.capacity_type, 1)
    return rank, price, option.instance_type.name, offering.zone, offering.capacity_type


def _holds(t: InstanceType, requests: dict[str, int]) -> bool:
    room = t.allocatable
    return all(room.get(name, 0) >= amount for name, amount in requests.items() if amount)


def launchable(offering: Offering) -> bool:
    return offering.available and (offering.reservation_capacity is None or offering.reservation_capacity > 0)


def _offered(t: InstanceType, offering: Offering, requirements: Requirements, label_keys: set[str]) -> bool:
    mine = {wellknown.ZONE: offering.zone, wellknown.CAPACITY_TYPE: offering.capacity_type, **offering.labels}
    if not all(requirements[key].has(value) for key, value in mine.items() if key in requirements):
        return False
    keys = {*mine, *t.labels, *label_keys, wellknown.INSTANCE_TYPE}
    return all(
        key in keys or requirement.negative or key not in WELL_KNOWN for key, requirement in requirements.items()
    )
