"""A work queue of keys: each key is worked on by one worker at a time, and never twice for the same news.

A key added while it waits is one entry; added while it is processed, it comes again afterwards.
A failed key returns after a growing pause; fresh news about it does not wait for that pause.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from dovetail.chance import Chance
from dovetail.kube.backoff import Retries

K = TypeVar("K", bound=Hashable)


class QueueObserver(Protocol):
    """Observes what happens to the keys of a queue, for metrics."""

    def added(self, key: Hashable) -> None: ...

    def taken(self, key: Hashable) -> None: ...

    def done(self, key: Hashable) -> None: ...

    def retried(self) -> None: ...


class Closed(Exception):
    """The queue is closed and empty."""


class WorkQueue(Generic[K]):
    def __init__(self, backoff: Retries | None = None, chance: Chance | None = None) -> None:
        self._backoff = backoff or Retries(base=0.5, cap=300.0)
        self._chance = chance or Chance(0)
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._busy: set[K] = set()
        self._failures: dict[K, int] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._wakers: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self.observer: QueueObserver | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Nothing waits, nothing is worked on, nothing is due later."""
        return not (self._waiting or self._busy or self._timers)

    def add(self, key: K) -> None:
        """There is news about `key`. Supersedes a delayed return."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if self.observer is not None:
            self.observer.added(key)
        if key not in self._busy:
            self._waiting.append(key)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Bring `key` back in a while; the earliest of several such requests counts."""
        if self._closed or key in self._dirty:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    def retry(self, key: K) -> float:
        """It failed: bring it back after a pause that grows. Returns the pause."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = self._backoff.pause(failures, self._chance)
        if self.observer is not None:
            self.observer.retried()
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """It succeeded: the next failure starts with a short pause again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """The next key; call `done` when through with it."""
        while not self._waiting:
            if self._closed:
                raise Closed
            waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._wakers.append(waker)
            try:
                await waker
            except asyncio.CancelledError:
                if waker.done() and not waker.cancelled():
                    self._wake()
                raise
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._busy.add(key)
        if self.observer is not None:
            self.observer.taken(key)
        return key

    def done(self, key: K) -> None:
        self._busy.discard(key)
        if self.observer is not None:
            self.observer.done(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._wake()

    def close(self) -> None:
        """No more keys; workers end when the waiting ones are done."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._wakers:
            self._wake()

    async def keys(self) -> AsyncIterator[K]:
        """Keys until the queue is closed; each counts as done when the next one is asked for."""
        while True:
            try:
                key = await self.get()
            except Closed:
                return
            try:
                yield key
            finally:
                self.done(key)

    async def work(
        self, handle: Callable[[K], Awaitable[None]], *, failed: Callable[[K, Exception, float], None], workers: int = 1
    ) -> None:
        """Serve keys with `handle` until closed. What it raises is passed to `failed`, and the key comes back."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._serve(handle, failed), name=f"worker {number}")

    async def _serve(
        self, handle: Callable[[K], Awaitable[None]], failed: Callable[[K, Exception, float], None]
    ) -> None:
        async for key in self.keys():
            try:
                await handle(key)
            except Exception as problem:  # one key's failure must not stop the others; it is reported and retried
                failed(key, problem, self.retry(key))
            else:
                self.forget(key)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _wake(self) -> None:
        while self._wakers:
            waker = self._wakers.popleft()
            if not waker.done():
                waker.set_result(None)
                return
