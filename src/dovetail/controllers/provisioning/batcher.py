"""When to plan: pods come in bursts, and one plan for a burst is cheaper than many for its parts.

The window opens with the first pod, is extended by `idle` with every pod not seen in it yet, and never
stays open beyond `longest`. The same pod again extends nothing, so hopeless pods cannot hold it open.
A gap in a burst does not close it while somebody is still making pods, unless the gap is a long one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dovetail.clock import Clock

#: After so many seconds without a new pod there will likely be none.
LULL = 0.25
#: How many idle periods may pass without a new pod while somebody is still making some.
PATIENCE = 3.0


async def _nobody(uids: Iterable[str]) -> bool:
    return False


class Batcher:
    """Collects triggers into batches. `filling` says whether the owners of a batch are still making pods.

    `lull` is set when no pod has come for a moment and the window is still open.
    """

    def __init__(
        self,
        clock: Clock,
        idle: float = 1.0,
        longest: float = 10.0,
        filling: Callable[[Iterable[str]], Awaitable[bool]] = _nobody,
    ) -> None:
        self._clock = clock
        self._idle = idle
        self._longest = longest
        self._filling = filling
        self._seen: dict[str, None] = {}
        self._last = 0.0
        self._open = False
        self._arrived = asyncio.Event()
        self.lull = asyncio.Event()

    def trigger(self, uid: str) -> None:
        """A pod (or anything with a UID) asks for a plan."""
        if uid not in self._seen:
            self._seen[uid] = None
            self._last = self._clock.monotonic()
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
        filling = False
        while (left := self._left(opened, filling)) > 0:
            self._arrived.clear()
            if await self._came(min(left, LULL)):
                continue
            self.lull.set()
            if not await self._came(min(left, self._idle) - LULL):
                filling = self._left(opened, True) > 0 and await self._filling(self._seen)
        batch = frozenset(self._seen)
        self._seen.clear()
        self._open = False
        return batch

    async def _came(self, within: float) -> bool:
        """Whether another pod comes within so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def _left(self, opened: float, filling: bool) -> float:
        """Seconds that the window stays open if no pod comes."""
        idle = self._idle * PATIENCE if filling else self._idle
        return min(max(opened, self._last) + idle, opened + self._longest) - self._clock.monotonic()
