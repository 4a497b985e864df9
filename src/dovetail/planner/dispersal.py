"""Dispersal: one more zone for next to nothing.

A machine that no topology pins is launched where it is cheapest, and so all of them may end in one zone. One zone's
failure should take as little as possible: a small share of the price is worth another zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.planner.plan import Choice, Machine

#: The share of a plan's price that all further zones together may cost.
_WORTH = 0.015
#: Dollars an hour that nobody counts.
_CENT = 1e-9


def dispersed(
    machines: Sequence[Machine],
    settled: Callable[[Machine, Machine], Machine | None],
    owed: tuple[int, float] = (0, 0.0),
) -> tuple[Machine, ...]:
    """The machines, some kept to a zone that nobody uses yet.

    `settled` makes what a machine was into what it would be; None if too few offerings were left to it. So many zones
    are `owed`, and may cost so much; others are worth a small share of the price.
    """
    found = list(machines)
    worth, (wanted, spare) = _WORTH * sum(machine.price for machine in found), owed
    while True:
        used = Counter(machine.choice.zone for machine in found)
        purse = max(worth, spare) if len(used) < wanted else worth
        offers = sorted(
            (extra, at, zone)
            for at, machine in enumerate(found)
            if used[machine.choice.zone] > 1
            for zone, extra in _elsewhere(machine, used).items()
            if extra <= purse + _CENT
        )
        moved = ((extra, at, settled(found[at], _kept_to(found[at], zone))) for extra, at, zone in offers)
        extra, at, machine = next((each for each in moved if each[2] is not None), (0.0, -1, None))
        if machine is None:
            return tuple(found)
        worth, spare = worth - extra, spare - extra
        found[at] = machine


def _elsewhere(machine: Machine, used: Counter[str]) -> dict[str, float]:
    """What the machine would cost more in each zone that nobody uses."""
    found: dict[str, float] = {}
    for choice in machine.offerings:
        if choice.price is not None and choice.zone not in used:
            found.setdefault(choice.zone, choice.price - machine.price)
    return found


def _kept_to(machine: Machine, zone: str) -> Machine:
    held = tuple(choice for choice in machine.offerings if choice.zone == zone)
    return replace(machine, offerings=held, requirements=tuple(_narrowed(each, held) for each in machine.requirements))


def _narrowed(need: Mapping[str, Any], held: Sequence[Choice]) -> Mapping[str, Any]:
    left = {
        INSTANCE_TYPE: {choice.instance_type for choice in held},
        CAPACITY_TYPE: {choice.capacity_type for choice in held},
        ZONE: {choice.zone for choice in held},
    }.get(need["key"])
    return need if left is None else {**need, "values": sorted(left)}
