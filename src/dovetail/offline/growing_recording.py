"""A recording that is still written, such as that of a running simulation: read again as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dovetail.clock import stopwatch
from dovetail.errors import UserError
from dovetail.offline.recorded_fleet import RecordedFleet

#: How often the file is looked at, in seconds; reading it again takes at most this share of the time.
READ_INTERVAL_S, MAX_READ_SHARE = 1.0, 0.2


class GrowingRecording:
    """The fleet of a file that a recorder appends to. Make it with `opened`; `follow` reads until the writer ends.

    A recording that is whole has nothing to follow: `growing` is False from the start.
    """

    def __init__(self, fleet: RecordedFleet, *, growing: bool = False) -> None:
        self.fleet = fleet
        self.growing = growing
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    async def opened(cls, path: Path, is_written: Callable[[], bool]) -> GrowingRecording | None:
        """The recording as soon as its first state is written; None if the writer ended before it was."""
        while True:
            written = is_written()
            with suppress(UserError, FileNotFoundError):
                return cls(await RecordedFleet.opened(path), growing=written)
            if not written:
                return None
            await asyncio.sleep(READ_INTERVAL_S)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the recording grew or ended; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def follow(self, is_written: Callable[[], bool]) -> None:
        """Read what is appended until the writer has ended, and once more: the end is not missed."""
        took = 0.0
        while self.growing:
            await asyncio.sleep(max(READ_INTERVAL_S, took / MAX_READ_SHARE))
            written, began = is_written(), stopwatch()
            longer = await RecordedFleet.opened(self.fleet.path)
            took = stopwatch() - began
            if written and longer.end <= self.fleet.end:
                continue
            before, self.fleet, self.growing = self.fleet, longer, written
            before.release()
            for listener in tuple(self._listeners):
                listener()
