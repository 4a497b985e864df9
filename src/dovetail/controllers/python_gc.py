"""Python garbage collection while no pod waits.

Traversing all objects of a large cluster takes longer than a plan for a thousand pods. Left to
itself it happens right after many objects were made, which is when a plan is to be executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from dovetail.runtime.gc_pause import busy, settle, settling

#: Seconds between two collections, and for how many more an idle moment is waited for.
INTERVAL_S, MAX_POSTPONEMENT_S = 60.0, 60
#: Every so many collections is a full one.
FULL_EVERY = 60


async def collect_when_idle(idle: Callable[[], bool]) -> None:
    """Until cancelled. `idle` says whether no pod waits for a node."""
    with settling():
        for cycle in count(1):
            await asyncio.sleep(INTERVAL_S)
            for _ in range(MAX_POSTPONEMENT_S):
                if idle() and not busy():
                    break
                await asyncio.sleep(1.0)
            settle(thorough=cycle % FULL_EVERY == 0)
