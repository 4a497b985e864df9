"""The queue of pods without a node: who is next, who waits a while, who waits for something to change.

More important pods first, then older requests. After a failed attempt a pod waits for an event that could help
it, and then for its back-off (1 s, doubling to 10 s), unless nobody else is in the way. After five minutes of
silence it is tried anyway.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import msgspec

from dovetail.clock import Clock
from dovetail.model.fit import PodInfo
from dovetail.model.fit.podinfo import Shape

_FIRST_BACKOFF = 1.0
_LAST_BACKOFF = 10.0
_LONGEST_WAIT = 300.0


_Group = tuple[Shape, frozenset[str]]


class Entry(msgspec.Struct, eq=False):
    """A pod in the queue. `plugins` turned it away last time; no plugin means that any event may help."""

    info: PodInfo
    since: float
    order: int
    attempts: int = 0
    plugins: frozenset[str] = frozenset()
    failed_at: float = 0.0
    error: bool = False
    place: str = ""
    #: Those it waits with: alike, and turned away by the same plugins.
    group: _Group | None = None

    @property
    def key(self) -> str:
        return self.info.key

    @property
    def ready_at(self) -> float:
        """When its back-off ends."""
        if not self.attempts:
            return 0.0
        return self.failed_at + min(_FIRST_BACKOFF * 2.0 ** min(self.attempts - 1, 10), _LAST_BACKOFF)


class Queue:
    """Pods by key, each at one place: `active`, `backoff`, `waiting` (longest first) or `gated`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[str, Entry] = {}
        self._active: list[tuple[int, float, int, Entry]] = []
        self._backoff: list[tuple[float, int, Entry]] = []
        self._waiting: dict[str, Entry] = {}
        self._groups: dict[_Group, dict[str, Entry]] = {}
        self._order = 0
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def put(self, info: PodInfo) -> None:
        """A pod needs a node, or has changed while it needs one."""
        entry = self._entries.get(info.key)
        if entry is None:
            self._order += 1
            entry = self._entries[info.key] = Entry(info, self._clock.monotonic(), self._order)
            self._file(entry)
            return
        old, entry.info = entry.info, info
        if entry.place == "gated" or (entry.place == "waiting" and _may_fit_now(old, info)):
            self._file(entry)

    def _file(self, entry: Entry) -> None:
        self._wait_no_more(entry)
        if entry.info.pod.spec.scheduling_gates:
            entry.place = "gated"
        elif entry.ready_at > self._clock.monotonic():
            entry.place = "backoff"
            heapq.heappush(self._backoff, (entry.ready_at, entry.order, entry))
        else:
            self._activate(entry)
        self._changed.set()

    def _activate(self, entry: Entry) -> None:
        entry.place = "active"
        heapq.heappush(self._active, (-entry.info.priority, entry.since, entry.order, entry))
        self._changed.set()

    def drop(self, key: str) -> None:
        """A pod needs no node any more."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.place = ""
            self._wait_no_more(entry)

    def _wait_no_more(self, entry: Entry) -> None:
        if self._waiting.pop(entry.key, None) is not None and entry.group is not None:
            group = self._groups[entry.group]
            del group[entry.key]
            if not group:
                del self._groups[entry.group]
            entry.group = None

    def pop(self) -> Entry | None:
        """The next pod to try. One that is backing off goes when nobody else is there to be delayed by it."""
        now = self._clock.monotonic()
        self._refresh(now)
        while self._active:
            entry = heapq.heappop(self._active)[3]
            if entry.place == "active":
                return self._taken(entry)
        while self._backoff:
            if self._backoff[0][2].error:
                break
            entry = heapq.heappop(self._backoff)[2]
            if entry.place == "backoff":
                return self._taken(entry)
        return None

    def _taken(self, entry: Entry) -> Entry:
        entry.place = "taken"
        entry.attempts += 1
        return entry

    def _refresh(self, now: float) -> None:
        while self._backoff and self._backoff[0][0] <= now:
            entry = heapq.heappop(self._backoff)[2]
            if entry.place == "backoff":
                self._activate(entry)
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if now < oldest.failed_at + _LONGEST_WAIT:  # the very sum that `wait` waits for
                return
            self._file(oldest)

    def failed(self, entry: Entry, plugins: frozenset[str]) -> None:
        """It did not fit; wait for an event that could change that."""
        if entry.key not in self._entries:
            return
        entry.plugins, entry.failed_at, entry.error = plugins, self._clock.monotonic(), False
        entry.place = "waiting"
        self._waiting[entry.key] = entry
        entry.group = (entry.info.shape, plugins)
        self._groups.setdefault(entry.group, {})[entry.key] = entry
        self._changed.set()

    def again(self, entry: Entry) -> None:
        """Something went wrong that has nothing to do with the pod: try again after the back-off."""
        if entry.key not in self._entries:
            return
        entry.failed_at, entry.error = self._clock.monotonic(), True
        self._file(entry)

    def wake(self, plugins: frozenset[str] | None, helps: Callable[[Entry], bool], alike: bool = False) -> None:
        """Something happened: try those it could help, of those whom one of the plugins turned away (None: of all).

        `alike`: it helps all of a shape that the same plugins turned away, or none of them.
        """
        found: list[Entry] = []
        for (_, blamed), group in self._groups.items():
            if plugins is not None and plugins.isdisjoint(blamed or ("",)):
                continue
            if not alike:
                found += filter(helps, group.values())
            elif helps(next(iter(group.values()))):
                found += group.values()
        for entry in sorted(found, key=lambda each: each.order):
            self._file(entry)

    async def wait(self) -> None:
        """Until there may be something to pop."""
        self._changed.clear()
        if self._active:
            return
        due = [self._backoff[0][0]] if self._backoff else []
        if self._waiting:
            due.append(next(iter(self._waiting.values())).failed_at + _LONGEST_WAIT)
        if not due:
            await self._changed.wait()
            return
        pause = max(0.0, min(due) - self._clock.monotonic())
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return


def _may_fit_now(old: PodInfo, new: PodInfo) -> bool:
    """Whether a change of the pod itself is worth another try."""
    return old.shape is not new.shape or old.pod.spec != new.pod.spec
