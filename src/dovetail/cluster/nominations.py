"""Reservations: pods that were promised a machine and are not on it yet.

While a promise stands, its pod is not pending and its room is not free; that is what keeps two plans from
buying twice for the same pod. A promise ends when the pod is bound or gone, when the machine is, or when
its time has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Target(NamedTuple):
    """A machine: `claim` or `node`, and its name."""

    kind: str
    name: str


class Nominations:
    """Promises by pod UID. `until` is on the loop's clock; None stands as long as the machine."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Target, float | None]] = {}
        self._on: dict[Target, dict[str, None]] = {}

    def nominate(self, uid: str, target: Target, until: float | None = None) -> None:
        self.release(uid)
        self._of[uid] = (target, until)
        self._on.setdefault(target, {})[uid] = None

    def release(self, uid: str) -> Target | None:
        found = self._of.pop(uid, None)
        if found is None:
            return None
        pods = self._on[found[0]]
        del pods[uid]
        if not pods:
            del self._on[found[0]]
        return found[0]

    def release_all(self, target: Target) -> tuple[str, ...]:
        uids = tuple(self._on.get(target, ()))
        for uid in uids:
            self.release(uid)
        return uids

    def limit(self, target: Target, until: float, but: Callable[[str], bool] = lambda uid: False) -> None:
        """From now on the promises on a machine have an end, but for the pods that say so."""
        for uid in self._on.get(target, ()):
            known = self._of[uid][1]
            if not but(uid):
                self._of[uid] = (target, until if known is None else min(known, until))

    def expire(self, now: float) -> tuple[tuple[str, Target], ...]:
        gone = [(uid, target) for uid, (target, until) in self._of.items() if until is not None and until <= now]
        for uid, _ in gone:
            self.release(uid)
        return tuple(gone)

    def on(self, target: Target) -> Iterable[str]:
        return self._on.get(target, {}).keys()

    def of(self, uid: str) -> Target | None:
        found = self._of.get(uid)
        return found[0] if found else None

    def __len__(self) -> int:
        return len(self._of)
