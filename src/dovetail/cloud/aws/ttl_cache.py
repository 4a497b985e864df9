"""Answers kept for a while. A kept value is frozen: a reader cannot change what the next one reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, TypeVar

from dovetail.clock import Clock

V = TypeVar("V")


class TtlCache(Generic[V]):
    """A cache whose entries expire after `seconds`; one of the waiting callers loads an entry again.

    Errors are not remembered.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kept: dict[Hashable, tuple[float, V]] = {}
        self._asking: dict[Hashable, asyncio.Lock] = {}

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[V]]) -> V:
        async with self._asking.setdefault(key, asyncio.Lock()):
            now = self._clock.monotonic()
            kept = self._kept.get(key)
            if kept is not None and now - kept[0] < self._seconds:
                return kept[1]
            value = self._believed(key, await ask())
            self._kept = {k: v for k, v in self._kept.items() if now - v[0] < self._seconds}
            self._kept[key] = (self._clock.monotonic(), value)
            return value

    def _believed(self, key: Hashable, value: V) -> V:
        return value

    def forget(self, key: Hashable | None = None) -> None:
        if key is None:
            self._kept.clear()
        else:
            self._kept.pop(key, None)


class ConfirmedListCache(TtlCache[tuple[V, ...]]):
    """Lists of things with an id. A list that lost something is believed once the next look says the same.

    A page that was left out, or a server that lags, must not make a controller replace nodes.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        super().__init__(clock, seconds)
        self._settled: dict[Hashable, tuple[V, ...]] = {}
        self._doubted: dict[Hashable, frozenset[Any]] = {}

    def _believed(self, key: Hashable, value: tuple[V, ...]) -> tuple[V, ...]:
        seen, cached = _ids(value), self._settled.get(key, value)
        if _ids(cached) <= seen or self._doubted.get(key) == seen:
            self._doubted.pop(key, None)
            self._settled[key] = value
            return value
        self._doubted[key] = seen
        return cached


def _ids(things: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(thing.id for thing in things)
