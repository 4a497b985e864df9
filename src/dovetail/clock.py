"""The time interface: one clock for everything that waits or stamps.

The event loop *is* the clock. Code sleeps with asyncio as usual and asks `Clock` what time it is;
whether a second takes a second, a sixtieth of one or nothing at all is the loop's business:

- any ordinary loop: the wall clock.
- `ScaledLoop(speed)`: real sockets stay alive, `speed` seconds pass per second.
- `VirtualLoop`: time jumps to the next timer as soon as nothing is ready. When nothing is ready and
  nothing is due, every task waits for another: that raises `Deadlock` instead of hanging.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from datetime import UTC, datetime, timedelta
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")

#: Where virtual time starts unless a scenario says otherwise.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

_Ready = list[tuple[selectors.SelectorKey, int]]

#: Cancelled timers are taken away wherever they are once there are so many timers and half of them are cancelled.
MANY_TIMERS = 100


class Deadlock(RuntimeError):
    """Nothing is ready, nothing is due, and a task still waits."""


class Clock:
    """What time it is, by the running loop. Instants are aware and in UTC.

    `start` is the time at the moment of construction. Without one, a loop in real time is read from the
    system's clock, and any other starts from it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime | None = None) -> None:
        self._loop = loop
        self._origin = loop.time()
        #: Seconds on a clock that never steps back: for durations and deadlines.
        self.monotonic: Callable[[], float] = loop.time
        self._wall = start is None and not isinstance(loop, VirtualLoop | ScaledLoop)
        #: The instant of construction.
        self.start = start or datetime.now(UTC)

    def now(self) -> datetime:
        if self._wall:
            return datetime.now(UTC)
        return self.start + timedelta(seconds=self._loop.time() - self._origin)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on which a day takes as long as its work takes.

    Timers that are due at the same instant fire in the order they were set. Threads started through the
    loop (`asyncio.to_thread`, `run_in_executor`) pin time until they return; for anything else outside the
    loop's sight there is `pinned`.
    """

    #: By asyncio: handles to run now, and whether to stop after them; timers that are cancelled and not yet taken away.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _timer_cancelled_count: int
    #: Timers by when they are due, and then by the order in which they were asked for.
    _scheduled: list[tuple[float, int, _Timer]]
    _process_events: Callable[[_Ready], None]

    def __init__(self) -> None:
        self._jumping = selector = _JumpingSelector()
        selector.loop = self
        self._now = 0.0
        self._order = itertools.count()
        self.held = 0
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, next(self._order), timer))
        timer._scheduled = True
        return timer

    def _run_once(self) -> None:
        """One turn, as asyncio's own, which compares timers one by one and asks the system each time what is ready."""
        self._drop_cancelled()
        scheduled, ready = self._scheduled, self._ready
        timeout = None
        if ready or self._stopping:
            timeout = 0.0
        elif scheduled:
            timeout = max(0.0, scheduled[0][0] - self._now)
        if timeout != 0.0 or self.held or self._jumping.strangers:
            self._process_events(self._jumping.select(timeout))
        due = self._now + self._clock_resolution
        while scheduled and scheduled[0][0] < due:
            timer = heapq.heappop(scheduled)[2]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _drop_cancelled(self) -> None:
        """Take cancelled timers away: the next ones, and all once they are most of many."""
        scheduled = self._scheduled
        if len(scheduled) > MANY_TIMERS and 2 * self._timer_cancelled_count > len(scheduled):
            for _, _, timer in scheduled:
                timer._scheduled = not timer.cancelled()
            scheduled[:] = [entry for entry in scheduled if not entry[2].cancelled()]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
        while scheduled and scheduled[0][2].cancelled():
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[2]._scheduled = False

    def hold(self) -> None:
        """Pin time while a thread or a socket outside the loop's sight is at work; `release` undoes it."""
        self.held += 1

    def release(self) -> None:
        self.held -= 1

    @contextmanager
    def pinned(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            self.release()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.hold()
        future.add_done_callback(lambda _: self.release())
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        with self.pinned():
            await super().shutdown_default_executor()


class _Timer(asyncio.TimerHandle):
    """A timer, with what asyncio keeps of it."""

    _scheduled: bool


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps for time's sake: advances its loop's clock instead."""

    loop: VirtualLoop
    #: Whether files beside the loop's own wake-up pipe are waited for.
    strangers = False

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        self.strangers = len(self.get_map()) > 1
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self.strangers = len(self.get_map()) > 1
        return key

    def select(self, timeout: float | None = None) -> _Ready:
        strangers = self.strangers
        if timeout is not None and timeout <= 0:
            return super().select(0) if strangers or self.loop.held else []
        ready = super().select(0) if timeout is None or strangers or self.loop.held else []
        if ready:
            return ready
        if self.loop.held or (timeout is None and strangers):
            return super().select(None)
        if timeout is None:
            raise Deadlock(waiting(self.loop))
        self.loop.advance(timeout)
        return []


class ScaledLoop(asyncio.SelectorEventLoop):
    """Real sockets, `speed` seconds to the second. The speed may change while it runs.

    Only waiting is hastened. Work takes the time it takes; a run that asks for more speed than processors allow
    would otherwise find every deadline passed.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._speed = speed
        #: Our time and the wall's when the pace last changed, and the pace since: one value, since threads read it.
        self._since = (0.0, time.monotonic(), 1.0)
        selector = _ScaledSelector()
        selector.loop = self
        super().__init__(selector)
        if not speed > 0:
            self.close()
            raise ValueError(f"speed must be above 0, not {speed!r}")

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0, not {speed!r}")
        self._speed = speed

    def time(self) -> float:
        ours, theirs, pace = self._since
        return ours + (time.monotonic() - theirs) * pace

    @contextmanager
    def hastened(self) -> Iterator[None]:
        """While the loop waits."""
        self._go_on(self._speed)
        try:
            yield
        finally:
            self._go_on(1.0)

    def _go_on(self, pace: float) -> None:
        self._since = (self.time(), time.monotonic(), pace)


class _ScaledSelector(selectors.DefaultSelector):
    loop: ScaledLoop

    def select(self, timeout: float | None = None) -> _Ready:
        if self.loop.speed == 1 or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        with self.loop.hastened():
            return super().select(None if timeout is None else timeout / self.loop.speed)


def wall() -> datetime:
    """The system's clock, whatever the loop's: for what the outside world stamps, such as a token's expiry."""
    return datetime.now(UTC)


def virtual() -> bool:
    """Whether the time of the running loop is virtual."""
    return isinstance(asyncio.get_running_loop(), VirtualLoop)


async def beside(work: Callable[[], T]) -> T:
    """What comes of work that takes a processor a while: it must not stop the loop. In virtual time it takes none."""
    return work() if virtual() else await asyncio.to_thread(work)


def waiting(loop: asyncio.AbstractEventLoop) -> str:
    """A page that says where every unfinished task stands."""
    lines = ["every task waits and nothing is due:"]
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        lines.append(f"  {task.get_name()}: {_where(task)}")
    return "\n".join(lines)


def _where(task: asyncio.Task[Any]) -> str:
    """The chain of awaits, outermost first; the last says what the task waits for."""
    steps: list[str] = []
    step: Any = task.get_coro()
    while step is not None:
        code, frame, following = _frame_of(step)
        if code is None:
            break
        steps.append(f"{code.co_qualname} line {frame.f_lineno if frame is not None else '?'}")
        step = following
    return " > ".join(steps)


def _frame_of(step: Any) -> tuple[CodeType | None, Any, Any]:
    for prefix in ("cr", "gi", "ag"):
        code = getattr(step, f"{prefix}_code", None)
        if code is not None:
            following = getattr(step, f"{prefix}_{'yieldfrom' if prefix == 'gi' else 'await'}")
            return code, getattr(step, f"{prefix}_frame"), following
    return None, None, None


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def run_scaled(main: Coroutine[Any, Any, T], speed: float = 1.0) -> T:
    """Run `main` with real sockets; `speed` 1 is real time."""
    with asyncio.Runner(loop_factory=lambda: ScaledLoop(speed)) as runner:
        return runner.run(main)


def stopwatch() -> float:
    """Seconds of real time, for measuring work and stopping it: never for deciding what the work is."""
    return time.perf_counter()
