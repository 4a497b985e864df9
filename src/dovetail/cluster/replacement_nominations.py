"""Nominations for replacement pods: slots that were planned for the replacements of pods about to be evicted.

A ReplicaSet creates a new pod for each evicted one, under another name. The scheduler would spread these over the
remaining nodes where the plan has packed them, until the last ones fit nowhere; so each replacement takes one slot.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dovetail.cluster.nominations import Target

#: Seconds for which nodes stay closed for the replacement pods.
REPLACEMENT_POD_TIMEOUT_S = 30.0


class Slot(NamedTuple):
    """Capacity on a target for the replacement of pod `uid`, kept until a time of the loop."""

    target: Target
    uid: str
    until: float


class ReplacementNominations:
    def __init__(self) -> None:
        self._of: dict[str, list[Slot]] = {}

    def expect(self, owner: str, slot: Slot) -> None:
        """The owner will create a replacement for an evicted pod: one slot for each evicted pod."""
        slots = self._of.setdefault(owner, [])
        if all(other.uid != slot.uid for other in slots):
            slots.append(slot)

    def take(self, owner: str, now: float) -> Slot | None:
        """The slot of a pod that its owner has just created; None if no replacement is expected."""
        slots = self._of.get(owner, [])
        while slots:
            slot = slots.pop(0)
            if not slots:
                del self._of[owner]
            if slot.until > now:
                return slot
        return None

    def awaited(self, targets: Collection[Target], now: float) -> bool:
        """Whether the target, by any of its names, still has a slot for a replacement pod."""
        return any(slot.target in targets and slot.until > now for slots in self._of.values() for slot in slots)
