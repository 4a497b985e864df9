"""When to plan: pods come in bursts, and one plan for a burst is cheaper than many for its parts.

The window opens with the first pod, is extended by `idle` with every pod not seen in it yet, and never
stays open beyond `longest`. The same pod again extends nothing, so hopeless pods cannot hold it open.
"""

from __future__ import annotations

import asyncio

from dovetail.clock import Clock


class Batcher:
    """Collects triggers into batches."""

    def __init__(self, clock: Clock, idle: float = 1.0, longest: float = 10.0) -> None:
        self._clock = clock
        self._idle = idle
        self._longest = longest
        self._seen: set[str] = set()
        self._open = False
        self._arrived = asyncio.Event()

    def trigger(self, uid: str) -> None:
        """A pod (or anything with a UID) asks for a plan."""
        if uid not in self._seen:
            self._seen.add(uid)
            self._arrived.set()

    def extend(self, uid: str) -> None:
        """Somebody who opens no window, but is worth waiting for while one is open."""
        if self._open:
            self.trigger(uid)

    async def wait(self) -> frozenset[str]:
        """The UIDs of the next batch, when its window has closed."""
        if not self._seen:
            self._arrived.clear()
            await self._arrived.wait()
        opened = self._clock.monotonic()
        self._open = True
        while True:
            self._arrived.clear()
            left = min(self._idle, opened + self._longest - self._clock.monotonic())
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                break
        batch = frozenset(self._seen)
        self._seen.clear()
        self._open = False
        return batch
