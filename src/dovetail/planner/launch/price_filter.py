"""Narrowing: which of its offerings a node that is launched in place of others may still be offered as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.plan import Choice, PlannedNode

Types = Mapping[str, InstanceType]


def cheaper(planned: PlannedNode, ceiling: float, types: Types) -> PlannedNode | None:
    """The node with only those offerings that keep the saving; None if they are too few or too much alike.

    Where spot is among them on-demand goes: a failed spot launch must not become a dearer node.
    """
    kept = [offering for offering in planned.offerings if offering.price is not None and offering.price < ceiling]
    if any(choice.capacity_type == "spot" for choice in kept):
        kept = [choice for choice in kept if choice.capacity_type == "spot"]
    return _only(planned, kept) if kept and _varied(planned, kept, types) else None


def cheapest(planned: PlannedNode, most: int, types: Types) -> PlannedNode:
    """The node with the offerings of its cheapest types alone, as many as asked for or as its pool insists on.

    A spot node that replaces another is one of the cheapest fifteen, whichever is offered: then fewer than fifteen are
    cheaper still, and it is not replaced again and again.
    """
    prices: dict[str, float] = {}
    for offering in planned.offerings:
        price = float("inf") if offering.price is None else offering.price
        prices[offering.instance_type] = min(price, prices.get(offering.instance_type, price))
    ranked = sorted(prices, key=lambda name: (prices[name], name))
    for count in range(most, len(ranked)):
        kept = [offering for offering in planned.offerings if offering.instance_type in ranked[:count]]
        if _varied(planned, kept, types):
            return _only(planned, kept)
    return planned


def _only(planned: PlannedNode, kept: Sequence[Choice]) -> PlannedNode:
    """The node with these offerings, and with requirements that admit no other."""
    least = _least(planned)
    narrowed = {
        INSTANCE_TYPE: sorted({choice.instance_type for choice in kept}),
        CAPACITY_TYPE: sorted({choice.capacity_type for choice in kept}),
    }
    requirements = [requirement for requirement in planned.requirements if requirement["key"] not in narrowed]
    requirements += [
        {"key": key, "operator": "In", "values": values} | ({"minValues": least[key]} if key in least else {})
        for key, values in narrowed.items()
    ]
    return msgspec.structs.replace(planned, offerings=tuple(kept), requirements=tuple(requirements))


def _varied(planned: PlannedNode, kept: Sequence[Choice], types: Types) -> bool:
    """Whether offerings are as different as the node's pool insists on."""
    return all(len(set(_values(key, kept, types))) >= least for key, least in _least(planned).items())


def _values(key: str, kept: Sequence[Choice], types: Types) -> Iterator[str]:
    """What the offerings have of a label."""
    for choice in kept:
        own = {INSTANCE_TYPE: choice.instance_type, CAPACITY_TYPE: choice.capacity_type, ZONE: choice.zone}
        if key in own:
            yield own[key]
        elif choice.instance_type in types:
            yield from types[choice.instance_type].labels.get(key, ())


def _least(planned: PlannedNode) -> dict[str, int]:
    """How many values of a key its pool insists on."""
    return {
        requirement["key"]: requirement["minValues"]
        for requirement in planned.requirements
        if requirement.get("minValues")
    }
