"""Who is coming: places that a move has planned for the successors of pods that are about to be evicted.

A workload makes a new pod for each that goes, under another name. The scheduler would level these over what is left
where the plan has packed them, until the last ones find no room; so each successor takes the place of one that went.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Room on a node for the successor of pod `uid`, kept until a time of the loop."""

    node: str
    uid: str
    until: float


class Coming:
    def __init__(self) -> None:
        self._of: dict[str, list[Place]] = {}

    def expect(self, owner: str, place: Place) -> None:
        """A new pod of the owner will come in the place of one that goes."""
        self._of.setdefault(owner, []).append(place)

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

    def awaited(self, node: str, now: float) -> bool:
        """Whether the node still waits for somebody."""
        return any(place.node == node and place.until > now for places in self._of.values() for place in places)
