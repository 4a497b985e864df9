"""Narrowing: which of its offerings a node that is launched in place of others may still be offered as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from dovetail.model.instance_type import InstanceType
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.plan import Choice, Machine

Types = Mapping[str, InstanceType]


def cheaper(machine: Machine, ceiling: float, types: Types) -> Machine | None:
    """The node with only those offerings that keep the saving; None if they are too few or too much alike.

    Where spot is among them on-demand goes: a failed spot launch must not become a dearer node.
    """
    kept = [each for each in machine.offerings if each.price is not None and each.price < ceiling]
    if any(each.capacity_type == "spot" for each in kept):
        kept = [each for each in kept if each.capacity_type == "spot"]
    return _only(machine, kept) if kept and _varied(machine, kept, types) else None


def cheapest(machine: Machine, most: int, types: Types) -> Machine:
    """The node with the offerings of its cheapest types alone, as many as asked for or as its pool insists on.

    A spot node that replaces another is one of the cheapest fifteen, whichever is offered: then fewer than fifteen are
    cheaper still, and it is not replaced again and again.
    """
    prices: dict[str, float] = {}
    for each in machine.offerings:
        price = float("inf") if each.price is None else each.price
        prices[each.instance_type] = min(price, prices.get(each.instance_type, price))
    ranked = sorted(prices, key=lambda name: (prices[name], name))
    for count in range(most, len(ranked)):
        kept = [each for each in machine.offerings if each.instance_type in ranked[:count]]
        if _varied(machine, kept, types):
            return _only(machine, kept)
    return machine


def _only(machine: Machine, kept: Sequence[Choice]) -> Machine:
    """The node with these offerings, and with requirements that admit no other."""
    least = _least(machine)
    narrowed = {
        INSTANCE_TYPE: sorted({each.instance_type for each in kept}),
        CAPACITY_TYPE: sorted({each.capacity_type for each in kept}),
    }
    requirements = [each for each in machine.requirements if each["key"] not in narrowed]
    requirements += [
        {"key": key, "operator": "In", "values": values} | ({"minValues": least[key]} if key in least else {})
        for key, values in narrowed.items()
    ]
    return msgspec.structs.replace(machine, offerings=tuple(kept), requirements=tuple(requirements))


def _varied(machine: Machine, kept: Sequence[Choice], types: Types) -> bool:
    """Whether offerings are as different as the node's pool insists on."""
    return all(len(set(_values(key, kept, types))) >= least for key, least in _least(machine).items())


def _values(key: str, kept: Sequence[Choice], types: Types) -> Iterator[str]:
    """What the offerings have of a label."""
    for each in kept:
        own = {INSTANCE_TYPE: each.instance_type, CAPACITY_TYPE: each.capacity_type, ZONE: each.zone}
        if key in own:
            yield own[key]
        elif each.instance_type in types:
            yield from types[each.instance_type].labels.get(key, ())


def _least(machine: Machine) -> dict[str, int]:
    """How many values of a key its pool insists on."""
    return {each["key"]: each["minValues"] for each in machine.requirements if each.get("minValues")}
