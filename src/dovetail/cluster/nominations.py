"""Nominations: pods that are meant for a node or NodeClaim and are not bound to it yet.

While a nomination stands, its pod is not pending and its requests are not free; that keeps two plans from
launching twice for the same pod. A nomination ends when the pod is bound or deleted, when the node is deleted,
or when it expires.

A pod that is about to be evicted hands its nomination down. A ReplicaSet creates a new pod for each evicted one, under
another name, and the scheduler would spread these over the remaining nodes where the plan has packed them, until the
last ones fit nowhere. So a slot is kept by the pods' owner, and each replacement takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

#: Seconds for which nodes stay closed for replacement pods.
REPLACEMENT_POD_TIMEOUT_S = 30.0


class NominationTarget(NamedTuple):
    """What a pod is nominated for: a `claim` or a `node`, and its name."""

    kind: str
    name: str


class Slot(NamedTuple):
    """Capacity on a target for the replacement of pod `uid`, kept until a time of the loop."""

    target: NominationTarget
    uid: str
    until: float


class Nominations:
    """Nominations by pod UID, and the slots of replacement pods by the UID of their owner.

    `until` is on the loop's clock; None stands as long as the target.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[NominationTarget, float | None]] = {}
        self._on: dict[NominationTarget, dict[str, None]] = {}
        self._slots: dict[str, list[Slot]] = {}

    def nominate(self, uid: str, target: NominationTarget, until: float | None = None) -> None:
        self.release(uid)
        self._of[uid] = (target, until)
        self._on.setdefault(target, {})[uid] = None

    def release(self, uid: str) -> NominationTarget | None:
        entry = self._of.pop(uid, None)
        if entry is None:
            return None
        pods = self._on[entry[0]]
        del pods[uid]
        if not pods:
            del self._on[entry[0]]
        return entry[0]

    def release_all(self, target: NominationTarget) -> tuple[str, ...]:
        uids = tuple(self._on.get(target, ()))
        for uid in uids:
            self.release(uid)
        return uids

    def limit(self, target: NominationTarget, until: float, but: Callable[[str], bool] = lambda uid: False) -> None:
        """From now on the nominations for a target expire, except those of the pods for which `but` is true."""
        for uid in self._on.get(target, ()):
            expiry = self._of[uid][1]
            if not but(uid):
                self._of[uid] = (target, until if expiry is None else min(expiry, until))

    def expire(self, now: float) -> tuple[tuple[str, NominationTarget], ...]:
        expired = [(uid, target) for uid, (target, until) in self._of.items() if until is not None and until <= now]
        for uid, _ in expired:
            self.release(uid)
        return tuple(expired)

    def on(self, target: NominationTarget) -> Iterable[str]:
        return self._on.get(target, {}).keys()

    def of(self, uid: str) -> NominationTarget | None:
        entry = self._of.get(uid)
        return entry[0] if entry else None

    def __len__(self) -> int:
        return len(self._of)

    def expect_replacement(self, owner: str, slot: Slot) -> None:
        """The owner will create a replacement for an evicted pod: one slot for each evicted pod."""
        slots = self._slots.setdefault(owner, [])
        if all(other.uid != slot.uid for other in slots):
            slots.append(slot)

    def take_slot(self, owner: str, now: float) -> Slot | None:
        """The slot of a pod that its owner has just created; None if no replacement is expected."""
        slots = self._slots.get(owner, [])
        while slots:
            slot = slots.pop(0)
            if not slots:
                del self._slots[owner]
            if slot.until > now:
                return slot
        return None

    def awaits_replacement(self, targets: Collection[NominationTarget], now: float) -> bool:
        """Whether the target, by any of its names, still has a slot for a replacement pod."""
        return any(slot.target in targets and slot.until > now for slots in self._slots.values() for slot in slots)
