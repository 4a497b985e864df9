"""The time seam: one clock for everything that waits or stamps.

The event loop *is* the clock. Code sleeps with asyncio as usual and asks `Clock` what time it is;
whether a second takes a second, a sixtieth of one or nothing at all is the loop's business:

- `RealLoop`: the wall clock.
- `ScaledLoop(speed)`: real sockets stay alive, `speed` seconds pass per second.
- `VirtualLoop`: time jumps to the next timer as soon as nothing is ready. When nothing is ready and
  nothing is due, everybody waits for everybody: that raises `Deadlock` instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

#: Where virtual time starts unless a scenario says otherwise.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(RuntimeError):
    """Nothing is ready, nothing is due, and somebody still waits."""


class Clock:
    """What time it is, by the running loop.

    `start` is the wall time that corresponds to the loop's `origin`. Instants are aware and in UTC.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime | None = None) -> None:
        self._loop = loop
        self._origin = loop.time()
        self._start = start or datetime.now(UTC)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time() - self._origin)

    def monotonic(self) -> float:
        """Seconds on a clock that never steps back: for durations and deadlines."""
        return self._loop.time()


class _JumpingSelector(selectors.SelectSelector):
    """Never sleeps: advances its loop's clock instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0) if self.loop.held or len(self.get_map()) > 1 else []
        if ready:
            return ready
        if self.loop.held:
            return super().select(None if timeout is None else min(timeout, 0.05))
        if timeout is None:
            raise Deadlock(_story(self.loop))
        self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which a day takes as long as its work takes."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self._now = 0.0
        self.held = 0
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def hold(self) -> None:
        """Pin time while a thread or a socket outside the loop's sight is at work."""
        self.held += 1

    def release(self) -> None:
        self.held -= 1


class ScaledLoop(asyncio.SelectorEventLoop):
    """Real sockets, `speed` seconds to the second."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._zero = time.monotonic()
        super().__init__(_ScaledSelector(speed))

    def time(self) -> float:
        return (time.monotonic() - self._zero) * self._speed


class _ScaledSelector(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else timeout / self._speed)


def _story(loop: asyncio.AbstractEventLoop) -> str:
    lines = ["everybody waits and nothing is due:"]
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        frames = task.get_stack(limit=1)
        where = f"{frames[0].f_code.co_qualname} line {frames[0].f_lineno}" if frames else "not started"
        lines.append(f"  {task.get_name()}: {where}")
    return "\n".join(lines)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def run_scaled(main: Coroutine[Any, Any, T], speed: float = 1.0) -> T:
    """Run `main` with real sockets; `speed` 1 is real time."""
    with asyncio.Runner(loop_factory=lambda: ScaledLoop(speed)) as runner:
        return runner.run(main)
