"""Event TTL: events are deleted an hour after they were last recorded, as by the real API server."""

from __future__ import annotations

import asyncio
from collections import deque

from dovetail.clock import Clock
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.apiserver.store import JournalRefused, StoreEvent

TABLE = "/events"
LIFETIME_SECONDS = 3600.0
SWEEP_SECONDS = 300.0


class EventExpiry:
    """Remembers when each event was last written, oldest first."""

    def __init__(self, server: ApiServer, clock: Clock) -> None:
        self._store = server.store
        self._clock = clock
        self._recorded: deque[tuple[float, str, int]] = deque()
        for record in self._store.table(TABLE).records.values():
            self._recorded.append((clock.monotonic(), record.key, record.rv))
        self._store.observers.append(self._written)

    def _written(self, event: StoreEvent) -> None:
        if event.table == TABLE and event.record is not None:
            self._recorded.append((event.when, event.key, event.rv))

    def sweep(self) -> int:
        """Take away what is too old; returns how many."""
        horizon = self._clock.monotonic() - LIFETIME_SECONDS
        gone = 0
        while self._recorded and self._recorded[0][0] <= horizon:
            _, key, version = self._recorded[0]
            record = self._store.get(TABLE, key)
            if record is not None and record.rv == version:
                try:
                    self._store.delete(TABLE, key)
                except JournalRefused:
                    return gone  # the disk is full: the next sweep goes on here
                gone += 1
            self._recorded.popleft()
        return gone

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()
