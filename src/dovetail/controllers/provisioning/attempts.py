"""Attempts: how many machines were bought for the pods of one owner lately.

When something keeps driving pods off the machines bought for them (a taint nobody planned, an eviction loop),
buying more does not help. An owner gets twice as many machines as it has pods, and a few, within the window;
after that its pods wait and are told why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from dovetail.model.pods import Pod

#: Seconds that a purchase counts, and how many are always allowed.
WINDOW, FREE = 600.0, 3


def owner(pod: Pod) -> str:
    """Who would bring the pod back: its controller, or the pod itself."""
    found = pod.metadata.controller
    return found.uid if found is not None else pod.metadata.uid


class Attempts:
    def __init__(self) -> None:
        self._bought: dict[str, deque[float]] = {}

    def bought(self, pods: Iterable[Pod], now: float) -> None:
        """A machine was bought for these pods."""
        for uid in {owner(pod) for pod in pods}:
            self._bought.setdefault(uid, deque()).append(now)

    def exhausted(self, pod: Pod, now: float, count: Callable[[str], int]) -> int:
        """The machines bought in vain, if that is enough; else 0. `count` says how many pods an owner has."""
        uid = owner(pod)
        times = self._bought.get(uid)
        if times is None:
            return 0
        while times and times[0] <= now - WINDOW:
            times.popleft()
        if not times:
            del self._bought[uid]
            return 0
        if len(times) <= FREE:
            return 0
        return len(times) if len(times) >= 2 * count(uid) + FREE else 0
