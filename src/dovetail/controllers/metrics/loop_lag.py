"""How late the event loop runs: a timer that is due and does not fire is work that stops everything else."""

from __future__ import annotations

import asyncio

from prometheus_client import Histogram

SAMPLE_INTERVAL_S = 1.0


async def measure_lag(lag: Histogram) -> None:
    """Until cancelled: how much later than asked for each sleep ends."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + SAMPLE_INTERVAL_S
        await asyncio.sleep(SAMPLE_INTERVAL_S)
        lag.observe(max(0.0, loop.time() - due))
