"""A controller's queue: keys to look at, each once however often it was named, failures again after a while.

One task a controller. Work on a key is done in full before the next begins, so a reconcile never races itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dovetail.kube.backoff import doubled
from dovetail.kube.errors import ApiError, Conflict, Disconnected, NotFound

log = logging.getLogger(__name__)

#: Looks at one key; returns after how many seconds it wants to look again, if at all.
Reconcile = Callable[[str], Awaitable[float | None]]

#: Seconds after a first failure, and at most; each next one waits twice as long.
PAUSES = (0.005, 1000.0)


class KeyWorker:
    """Runs one reconcile function over the keys that are added."""

    def __init__(
        self, name: str, reconcile: Reconcile, gather: float = 0.0, pauses: tuple[float, float] = PAUSES
    ) -> None:
        self.name = name
        self._first, self._longest = pauses
        self._reconcile = reconcile
        self._queue: dict[str, None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        #: Seconds to collect keys after the first, where many changes make one answer.
        self.gather = gather

    def add(self, key: str) -> None:
        self._queue[key] = None
        self._wake.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Look at the key in a while; of several such requests the earliest counts."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def _due(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)

    @property
    def idle(self) -> bool:
        return not self._queue

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            if self.gather:
                await asyncio.sleep(self.gather)
            while self._queue:
                key = next(iter(self._queue))
                del self._queue[key]
                await self._one(key)
            self._wake.clear()

    async def _one(self, key: str) -> None:
        try:
            again = await self._reconcile(key)
        except (ApiError, Disconnected) as error:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = doubled(self._first, self._longest, failures)
            if not isinstance(error, (Conflict, NotFound)):
                log.debug("%s: %s again in %.3f s: %s", self.name, key, pause, error)
            self.add_after(key, pause)
            return
        self._failures.pop(key, None)
        if again is not None:
            self.add_after(key, again)
