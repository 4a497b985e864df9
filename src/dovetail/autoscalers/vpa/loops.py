"""Loops of the VPA programs: at fixed times, and leading before acting."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable

from dovetail.autoscalers.vpa.settings import ElectionSettings
from dovetail.clock import Clock
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.kube.lease import LeaderElection, LeadershipLost
from dovetail.kube.log import Log

log = Log(__name__)


async def at_intervals(clock: Clock, interval_s: float, act: Callable[[], Awaitable[None]]) -> None:
    """Call `act` every interval, the first time after one; a call that takes longer skips the times it missed.

    A call that fails is logged, an unexpected error with its traceback the first time, and the next one comes all the
    same. A program whose calls go on failing says so at /health-check.
    """
    traced: set[str] = set()
    due = clock.monotonic() + interval_s
    while True:
        await asyncio.sleep(max(0.0, due - clock.monotonic()))
        try:
            await act()
        except LeadershipLost:
            raise
        except Exception as problem:  # whatever it is, it ends neither the program nor its other loops
            trace = "".join(traceback.format_tb(problem.__traceback__)[-1:])
            first = not isinstance(problem, KubeError) and trace not in traced
            traced.add(trace)
            log.error(
                "Loop failed", problem=f"{type(problem).__name__}: {problem}", exc_info=problem if first else None
            )
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
