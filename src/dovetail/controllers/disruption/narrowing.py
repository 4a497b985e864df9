"""Narrowing: which of its offerings a machine that is bought in place of others may still be sold as."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE
from dovetail.planner.plan import Choice, Machine


def cheaper(machine: Machine, ceiling: float) -> Machine | None:
    """The machine with only those offerings that keep the saving; None if too few do.

    Where spot is among them on-demand goes: a failed spot launch must not become a dearer machine.
    """
    kept = [each for each in machine.offerings if each.price is not None and each.price < ceiling]
    if any(each.capacity_type == "spot" for each in kept):
        kept = [each for each in kept if each.capacity_type == "spot"]
    enough = len({each.instance_type for each in kept}) >= max(1, _least(machine).get(INSTANCE_TYPE, 1))
    return _only(machine, kept) if enough else None


def cheapest(machine: Machine, types: int) -> Machine:
    """The machine with the offerings of its cheapest types alone, as many as asked for or as its pool insists on.

    A spot machine that replaces another is one of the cheapest fifteen, whichever is sold: then fewer than fifteen are
    cheaper still, and it is not replaced again and again.
    """
    prices: dict[str, float] = {}
    for each in machine.offerings:
        price = float("inf") if each.price is None else each.price
        prices[each.instance_type] = min(price, prices.get(each.instance_type, price))
    count = max(types, _least(machine).get(INSTANCE_TYPE, 0))
    chosen = frozenset(sorted(prices, key=lambda name: (prices[name], name))[:count])
    return _only(machine, [each for each in machine.offerings if each.instance_type in chosen])


def _only(machine: Machine, kept: Sequence[Choice]) -> Machine:
    """The machine with these offerings, and with requirements that admit no other."""
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


def _least(machine: Machine) -> dict[str, int]:
    """How many values of a key its pool insists on."""
    return {each["key"]: each["minValues"] for each in machine.requirements if each.get("minValues")}
