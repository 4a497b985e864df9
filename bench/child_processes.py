"""Runs that start processes of their own, and stop them whichever signal ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from dovetail.clock import run_scaled

T = TypeVar("T")
#: The exit status of a program that SIGTERM ends.
TERMINATED = 128 + signal.SIGTERM


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it in real time. SIGTERM unwinds it as Ctrl-C does; a plain end would leave its control plane behind."""

    async def watched() -> T:
        task = asyncio.ensure_future(main)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await task

    try:
        return run_scaled(watched())
    except asyncio.CancelledError:
        raise SystemExit(TERMINATED) from None
