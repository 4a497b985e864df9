"""The price rule of consolidation: a replacement must be cheaper than what it replaces, however it is launched."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.controllers.disruption.types import Candidate
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE
from dovetail.planner.plan import OfferingOption, Plan, PlannedNode
from dovetail.studies.karpenter.scheduling import Simulated

#: Cheaper spot types that a single spot node needs before another spot node may replace it.
MIN_SPOT_TYPES = 15
#: Capacity types in the order in which they are launched.
_PRECEDENCE = ("reserved", "spot", "on-demand")


def cheaper(
    simulated: Simulated,
    candidates: Sequence[Candidate],
    *,
    several: bool,
    spot_to_spot: bool,
) -> Plan | None:
    """The plan with its one new node narrowed to instance types that cost less than the candidates; None if none do."""
    plan = simulated.plan()
    if len(plan.nodes) != 1:
        return None
    planned = plan.nodes[0]
    paid = sum(candidate.price or 0.0 for candidate in candidates)
    choices, all_spot = planned.offerings, all(candidate.capacity_type == "spot" for candidate in candidates)
    if all_spot and any(choice.capacity_type == "spot" for choice in choices):
        if not spot_to_spot:
            return None
        choices = tuple(choice for choice in choices if choice.capacity_type == "spot")
    kept = _below(choices, paid)
    if several:
        kept = _other_types(kept, candidates)
    types = list(dict.fromkeys(choice.instance_type for choice in kept))
    if not types:
        return None
    if all_spot and not several and any(choice.capacity_type == "spot" for choice in kept):
        if len(types) < MIN_SPOT_TYPES:
            return None
        kept = tuple(choice for choice in kept if choice.instance_type in set(types[:MIN_SPOT_TYPES]))
    if {"spot", "on-demand"} <= {choice.capacity_type for choice in kept}:
        kept = tuple(choice for choice in kept if choice.capacity_type == "spot")
    return msgspec.structs.replace(plan, nodes=(_narrowed(planned, kept),))


def _below(choices: Sequence[OfferingOption], price: float) -> tuple[OfferingOption, ...]:
    """The choices of types whose worst price at launch is below this one."""
    by_type: dict[str, list[OfferingOption]] = {}
    for choice in choices:
        by_type.setdefault(choice.instance_type, []).append(choice)
    cheap = {name for name, offered in by_type.items() if _worst(offered) < price}
    return tuple(choice for choice in choices if choice.instance_type in cheap)


def _worst(choices: Sequence[OfferingOption]) -> float:
    """What a type costs at most: the dearest offering of the capacity type that is launched first."""
    for capacity_type in _PRECEDENCE:
        prices = [choice.price for choice in choices if choice.capacity_type == capacity_type]
        if prices:
            return max(float("inf") if price is None else price for price in prices)
    return float("inf")


def _other_types(choices: tuple[OfferingOption, ...], candidates: Sequence[Candidate]) -> tuple[OfferingOption, ...]:
    """Several nodes are not replaced by a type that one of them has: only by cheaper ones."""
    offered = {choice.instance_type for choice in choices}
    same = [
        candidate.price
        for candidate in candidates
        if candidate.instance_type in offered and candidate.price is not None
    ]
    if not same:
        return choices
    limit = min(same)
    return tuple(choice for choice in choices if choice.price is not None and choice.price < limit)


def _narrowed(planned: PlannedNode, choices: tuple[OfferingOption, ...]) -> PlannedNode:
    """The new node, of these offerings alone."""
    narrowed = {
        INSTANCE_TYPE: list(dict.fromkeys(choice.instance_type for choice in choices)),
        CAPACITY_TYPE: list(dict.fromkeys(choice.capacity_type for choice in choices)),
    }
    before = {requirement["key"]: requirement for requirement in planned.requirements}
    kept = tuple(value for key, value in before.items() if key not in narrowed)
    added = tuple(
        {**before.get(key, {}), "key": key, "operator": "In", "values": values} for key, values in narrowed.items()
    )
    return msgspec.structs.replace(planned, offerings=choices, requirements=(*kept, *added))
