"""`--memory-limit`: from 90 % of the container's limit on, garbage is collected in full before the OOM killer acts.

Collections are otherwise rare and partial, because a full one on a large cluster stops the loop for a while; a process
that is about to be killed has no better use for that while.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from dovetail.runtime.gc_pause import settle

#: Share of the limit from which on memory is released, as Karpenter sets its own soft limit.
SOFT_SHARE = 0.9
CHECK_INTERVAL_S = 10.0
#: Between two full collections, and between two log lines about them.
COLLECTION_PAUSE_S = 60.0
_PAGE_BYTES = 4096


def is_near(resident: int, limit: int) -> bool:
    """Whether so many resident bytes are close to the limit; a limit of 0 or less is none."""
    return limit > 0 and resident >= SOFT_SHARE * limit


def resident_bytes() -> int:
    """What this process holds in memory, by /proc; 0 where there is none."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def release_memory() -> None:
    """Collect everything, and return freed pages to the system where the C library can."""
    settle(thorough=True)
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def keep_below(
    limit: int,
    log: FilteringBoundLogger,
    resident: Callable[[], int] = resident_bytes,
    collect: Callable[[], None] = release_memory,
) -> None:
    """Until cancelled: collect whenever memory is near the limit, and log what that released."""
    while True:
        before = resident()
        if is_near(before, limit):
            collect()
            log.warning("memory near its limit", limit=limit, before=before, after=resident())
            await asyncio.sleep(COLLECTION_PAUSE_S)
        else:
            await asyncio.sleep(CHECK_INTERVAL_S)
