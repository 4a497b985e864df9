"""Who is coming: places that were planned for the successors of pods that are about to be evicted.

A workload makes a new pod for each that goes, under another name. The scheduler would level these over what is left
where the plan has packed them, until the last ones find no room; so each successor takes the place of one that went.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.cluster.nominations import Target

#: Seconds for which machines stay closed for those who come back.
COME = 30.0


class Place(NamedTuple):
    """Room on a machine for the successor of pod `uid`, kept until a time of the loop."""

    target: Target
    uid: str
    until: float


class ReplacementNominations:
    def __init__(self) -> None:
        self._of: dict[str, list[Place]] = {}

    def expect(self, owner: str, place: Place) -> None:
        """A new pod of the owner will come in the place of one that goes, and only one."""
        places = self._of.setdefault(owner, [])
        if all(each.uid != place.uid for each in places):
            places.append(place)

    def take(self, owner: str, now: float) -> Place | None:
        """A place for a pod of the owner that has just come; None if nobody is expected."""
        places = self._of.get(owner, [])
        while places:
            place = places.pop(0)
            if not places:
                del self._of[owner]
            if place.until > now:
                return place
        return None

    def awaited(self, machine: Collection[Target], now: float) -> bool:
        """Whether the machine, by any of its names, still waits for somebody."""
        return any(place.target in machine and place.until > now for places in self._of.values() for place in places)
