"""Nominations for replacement pods: slots that were planned for the replacements of pods about to be evicted.

A ReplicaSet creates a new pod for each evicted one, under another name. The scheduler would spread these over the
remaining nodes where the plan has packed them, until the last ones fit nowhere; so each replacement takes one slot.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.cluster.nominations import Target

#: Seconds for which nodes stay closed for the replacement pods.
COME = 30.0


class Place(NamedTuple):
    """Capacity on a target for the replacement of pod `uid`, kept until a time of the loop."""

    target: Target
    uid: str
    until: float


class ReplacementNominations:
    def __init__(self) -> None:
        self._of: dict[str, list[Place]] = {}

    def expect(self, owner: str, place: Place) -> None:
        """The owner will create a replacement for an evicted pod: one slot for each evicted pod."""
        places = self._of.setdefault(owner, [])
        if all(each.uid != place.uid for each in places):
            places.append(place)

    def take(self, owner: str, now: float) -> Place | None:
        """The slot of a pod that its owner has just created; None if no replacement is expected."""
        places = self._of.get(owner, [])
        while places:
            place = places.pop(0)
            if not places:
                del self._of[owner]
            if place.until > now:
                return place
        return None

    def awaited(self, machine: Collection[Target], now: float) -> bool:
        """Whether the target, by any of its names, still has a slot for a replacement pod."""
        return any(place.target in machine and place.until > now for places in self._of.values() for place in places)
