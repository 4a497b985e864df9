"""Runaway guard: how many NodeClaims were created for the pods of one owner lately.

When something keeps driving pods off the nodes launched for them (an unplanned taint, an eviction loop),
launching more does not help. An owner gets twice as many nodes as it has pods, or had at its largest burst,
and a few, within the window; after that its pods wait and their events say why.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from dovetail.model.pods import Pod

#: Seconds that a launch counts, and how many are always allowed.
WINDOW_S, FREE_LAUNCHES = 600.0, 3
#: Launches within so many seconds are one: instances boot slower than that, so no pod is counted twice.
BURST_S = 5.0


def owner(pod: Pod) -> str:
    """What would recreate the pod: its controller, or the pod itself."""
    controller = pod.metadata.controller
    return controller.uid if controller is not None else pod.metadata.uid


class _OwnerLaunches(msgspec.Struct):
    """Launches for one owner: when, for which pods in the burst that began at `since`, for how many at most."""

    times: deque[float]
    since: float
    burst: set[str]
    largest: int = 0


class RunawayGuard:
    """Owners are in the order of their last launch, so that old ones are soon forgotten."""

    def __init__(self) -> None:
        self._tallies: dict[str, _OwnerLaunches] = {}
        self._claims: dict[str, tuple[float, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        """How many owners are remembered."""
        return len(self._tallies)

    def launched(self, pods: Iterable[Pod], now: float, claim: str = "") -> None:
        """A NodeClaim is created for these pods; `claim` is its UID, if it may yet fail to launch."""
        self._forget(now)
        mine: dict[str, set[str]] = {}
        for pod in pods:
            mine.setdefault(owner(pod), set()).add(pod.metadata.uid)
        if claim:
            self._claims[claim] = (now, tuple(mine))
        for uid, served in mine.items():
            tally = self._tallies[uid] = self._tallies.pop(uid, _OwnerLaunches(deque(), now, set()))
            tally.times.append(now)
            if now - tally.since > BURST_S:
                tally.since, tally.burst = now, set()
            tally.burst |= served
            tally.largest = max(tally.largest, len(tally.burst))

    def _forget(self, now: float) -> None:
        """Drop owners without a launch within the window."""
        while self._tallies:
            uid, oldest = next(iter(self._tallies.items()))
            if max((oldest.since, *oldest.times)) > now - WINDOW_S:
                return
            del self._tallies[uid]

    def claim_gone(self, claim: str, *, launched: bool) -> None:
        """A NodeClaim is gone. One that never launched does not count: no pod was driven off it."""
        launched_at, owners = self._claims.pop(claim, (0.0, ()))
        for uid in owners:
            tally = self._tallies.get(uid)
            if not launched and tally is not None and launched_at in tally.times:
                tally.times.remove(launched_at)

    def exhausted(self, pod: Pod, now: float, count: Callable[[str], int]) -> int:
        """The launches in vain, if that is enough; else 0. `count` returns how many pods an owner has."""
        uid = owner(pod)
        tally = self._tallies.get(uid)
        if tally is None:
            return 0
        times = tally.times
        while times and times[0] <= now - WINDOW_S:
            times.popleft()
        if not times:
            del self._tallies[uid]
        if len(times) <= FREE_LAUNCHES:
            return 0
        pods = max(count(uid), tally.largest)
        return len(times) if len(times) >= 2 * pods + FREE_LAUNCHES else 0
