"""Attempts: how many machines were bought for the pods of one owner lately.

When something keeps driving pods off the machines bought for them (a taint nobody planned, an eviction loop),
buying more does not help. An owner gets twice as many machines as it has pods, or had when most was bought for it
at once, and a few, within the window; after that its pods wait and are told why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dovetail.model.pods import Pod

#: Seconds that a purchase counts, and how many are always allowed.
WINDOW, FREE = 600.0, 3
#: Purchases within so many seconds are one: machines boot slower than that, so no pod is counted twice.
AT_ONCE = 5.0


def owner(pod: Pod) -> str:
    """Who would bring the pod back: its controller, or the pod itself."""
    found = pod.metadata.controller
    return found.uid if found is not None else pod.metadata.uid


class Attempts:
    def __init__(self) -> None:
        self._bought: dict[str, deque[float]] = {}
        self._bursts: dict[str, tuple[float, set[str]]] = {}
        self._largest: dict[str, int] = {}
        self._claims: dict[str, tuple[float, tuple[str, ...]]] = {}

    def bought(self, pods: Iterable[Pod], now: float, claim: str = "") -> None:
        """A machine is bought for these pods; `claim` is the UID of its claim, if it may yet come to nothing."""
        mine: dict[str, set[str]] = {}
        for pod in pods:
            mine.setdefault(owner(pod), set()).add(pod.metadata.uid)
        if claim:
            self._claims[claim] = (now, tuple(mine))
        for uid, served in mine.items():
            self._bought.setdefault(uid, deque()).append(now)
            since, burst = self._bursts.setdefault(uid, (now, set()))
            if now - since > AT_ONCE:
                since, burst = self._bursts[uid] = (now, set())
            burst |= served
            self._largest[uid] = max(self._largest.get(uid, 0), len(burst))

    def over(self, claim: str, *, launched: bool) -> None:
        """A claim is gone. One that never became a machine was no purchase: nobody's pods were driven off it."""
        at, owners = self._claims.pop(claim, (0.0, ()))
        for uid in owners:
            if not launched and at in self._bought.get(uid, ()):
                self._bought[uid].remove(at)

    def exhausted(self, pod: Pod, now: float, count: Callable[[str], int]) -> int:
        """The machines bought in vain, if that is enough; else 0. `count` says how many pods an owner has."""
        uid = owner(pod)
        times = self._bought.get(uid)
        if times is None:
            return 0
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if not times:
            for kept in (self._bought, self._bursts, self._largest):
                kept.pop(uid, None)
            return 0
        if len(times) <= FREE:
            return 0
        pods = max(count(uid), self._largest.get(uid, 0))
        return len(times) if len(times) >= 2 * pods + FREE else 0
