"""Price filter: the offerings of a replacement node that keep the saving of a consolidation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.plan import OfferingOption, PlannedNode

Types = Mapping[str, InstanceType]


def cheaper(planned: PlannedNode, ceiling: float, types: Types) -> PlannedNode | None:
    """The node with only the offerings below a price; None if they do not meet minValues.

    If spot offerings are among them, on-demand ones are removed: a failed spot launch must not become a dearer node.
    """
    kept = [offering for offering in planned.offerings if offering.price is not None and offering.price < ceiling]
    if any(choice.capacity_type == "spot" for choice in kept):
        kept = [choice for choice in kept if choice.capacity_type == "spot"]
    return _restricted_to(planned, kept) if kept and _meets_min_values(planned, kept, types) else None


def cheapest(planned: PlannedNode, most: int, types: Types) -> PlannedNode:
    """The node with its `most` cheapest types, or more if minValues require them.

    A spot node that replaces another is one of the cheapest fifteen types: then fewer than fifteen are cheaper still,
    and it is not replaced again and again.
    """
    prices: dict[str, float] = {}
    for offering in planned.offerings:
        price = float("inf") if offering.price is None else offering.price
        prices[offering.instance_type] = min(price, prices.get(offering.instance_type, price))
    ranked = sorted(prices, key=lambda name: (prices[name], name))
    for count in range(most, len(ranked)):
        kept = [offering for offering in planned.offerings if offering.instance_type in ranked[:count]]
        if _meets_min_values(planned, kept, types):
            return _restricted_to(planned, kept)
    return planned


def _restricted_to(planned: PlannedNode, kept: Sequence[OfferingOption]) -> PlannedNode:
    """The node with these offerings, and with requirements that admit no other."""
    least = _min_values(planned)
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


def _meets_min_values(planned: PlannedNode, kept: Sequence[OfferingOption], types: Types) -> bool:
    """Whether offerings meet the minValues of the node's pool."""
    return all(len(set(_values(key, kept, types))) >= least for key, least in _min_values(planned).items())


def _values(key: str, kept: Sequence[OfferingOption], types: Types) -> Iterator[str]:
    """Yields the values of a label on the offerings."""
    for choice in kept:
        own = {INSTANCE_TYPE: choice.instance_type, CAPACITY_TYPE: choice.capacity_type, ZONE: choice.zone}
        if key in own:
            yield own[key]
        elif choice.instance_type in types:
            yield from types[choice.instance_type].labels.get(key, ())


def _min_values(planned: PlannedNode) -> dict[str, int]:
    """The minValues of the node's requirements, by key."""
    return {
        requirement["key"]: requirement["minValues"]
        for requirement in planned.requirements
        if requirement.get("minValues")
    }
