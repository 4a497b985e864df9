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
EVERY, PATIENCE = 60.0, 60
#: Every so many collections is a full one.
THOROUGH = 60


async def tidy(idle: Callable[[], bool]) -> None:
    """Until cancelled. `idle` says whether no pod waits for a node."""
    with settling():
        for turn in count(1):
            await asyncio.sleep(EVERY)
            for _ in range(PATIENCE):
                if idle() and not busy():
                    break
                await asyncio.sleep(1.0)
            settle(thorough=turn % THOROUGH == 0)
