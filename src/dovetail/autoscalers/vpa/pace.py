"""What the programs do again and again: loops at fixed times, and leading before acting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dovetail.autoscalers.vpa.settings import ElectionSettings
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.lease import LeaderElection


async def at_intervals(clock: Clock, interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` every interval, the first time after one; a call that takes longer skips the times it missed."""
    due = clock.monotonic() + interval_s
    while True:
        await asyncio.sleep(max(0.0, due - clock.monotonic()))
        await act()
        missed = max(0.0, clock.monotonic() - due) // interval_s
        due += interval_s * (1 + missed)


async def lead(kube: Kube, settings: ElectionSettings, identity: str, act: Callable[[Kube], Awaitable[None]]) -> None:
    """Act as the leader with a client that stops writing when leadership may be lost; without election, at once."""
    if not settings.enabled:
        await act(kube)
        return
    election = LeaderElection(kube, settings.name, settings.namespace, identity, settings.times)
    fenced = kube.fenced(election.check)
    await election.run(lambda: act(fenced))
