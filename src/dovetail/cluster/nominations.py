"""Nominations: pods that are meant for a node or NodeClaim and are not bound to it yet.

While a nomination stands, its pod is not pending and its requests are not free; that keeps two plans from
launching twice for the same pod. A nomination ends when the pod is bound or deleted, when the node is deleted,
or when it expires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple


class Target(NamedTuple):
    """What a pod is nominated for: a `claim` or a `node`, and its name."""

    kind: str
    name: str


class Nominations:
    """Nominations by pod UID. `until` is on the loop's clock; None stands as long as the target."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Target, float | None]] = {}
        self._on: dict[Target, dict[str, None]] = {}

    def nominate(self, uid: str, target: Target, until: float | None = None) -> None:
        self.release(uid)
        self._of[uid] = (target, until)
        self._on.setdefault(target, {})[uid] = None

    def release(self, uid: str) -> Target | None:
        entry = self._of.pop(uid, None)
        if entry is None:
            return None
        pods = self._on[entry[0]]
        del pods[uid]
        if not pods:
            del self._on[entry[0]]
        return entry[0]

    def release_all(self, target: Target) -> tuple[str, ...]:
        uids = tuple(self._on.get(target, ()))
        for uid in uids:
            self.release(uid)
        return uids

    def limit(self, target: Target, until: float, but: Callable[[str], bool] = lambda uid: False) -> None:
        """From now on the nominations for a target expire, except those of the pods for which `but` is true."""
        for uid in self._on.get(target, ()):
            expiry = self._of[uid][1]
            if not but(uid):
                self._of[uid] = (target, until if expiry is None else min(expiry, until))

    def expire(self, now: float) -> tuple[tuple[str, Target], ...]:
        expired = [(uid, target) for uid, (target, until) in self._of.items() if until is not None and until <= now]
        for uid, _ in expired:
            self.release(uid)
        return tuple(expired)

    def on(self, target: Target) -> Iterable[str]:
        return self._on.get(target, {}).keys()

    def of(self, uid: str) -> Target | None:
        entry = self._of.get(uid)
        return entry[0] if entry else None

    def __len__(self) -> int:
        return len(self._of)
