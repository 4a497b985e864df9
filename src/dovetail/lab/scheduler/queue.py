"""The scheduling queue: active pods, pods in back-off, unschedulable pods that wait for an event, gated pods.

Pods of higher priority first, then older requests. After a failed attempt a pod waits for an event that could help
it, and then for its back-off (1 s, doubling to 10 s), unless no other pod is active. After five minutes
without such an event it is tried anyway.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

import msgspec

from dovetail.clock import Clock
from dovetail.model.fit import PodInfo
from dovetail.model.fit.podinfo import Shape

_INITIAL_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 10.0
_MAX_UNSCHEDULABLE_S = 300.0


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
    section: str = ""
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
        return self.failed_at + min(_INITIAL_BACKOFF_S * 2.0 ** min(self.attempts - 1, 10), _MAX_BACKOFF_S)


class SchedulingQueue:
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
        if entry.section == "gated" or (entry.section == "waiting" and _may_fit_now(old, info)):
            self._file(entry)

    def _file(self, entry: Entry) -> None:
        self._wait_no_more(entry)
        if entry.info.pod.spec.scheduling_gates:
            entry.section = "gated"
        elif entry.ready_at > self._clock.monotonic():
            entry.section = "backoff"
            heapq.heappush(self._backoff, (entry.ready_at, entry.order, entry))
        else:
            self._activate(entry)
        self._changed.set()

    def _activate(self, entry: Entry) -> None:
        entry.section = "active"
        heapq.heappush(self._active, (-entry.info.priority, entry.since, entry.order, entry))
        self._changed.set()

    def drop(self, key: str) -> None:
        """A pod needs no node any more."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.section = ""
            self._wait_no_more(entry)

    def _wait_no_more(self, entry: Entry) -> None:
        if self._waiting.pop(entry.key, None) is not None and entry.group is not None:
            group = self._groups[entry.group]
            del group[entry.key]
            if not group:
                del self._groups[entry.group]
            entry.group = None

    def pop(self) -> Entry | None:
        """The next pod to try. One in back-off is popped when no active pod would be delayed by it."""
        now = self._clock.monotonic()
        self._refresh(now)
        while self._active:
            entry = heapq.heappop(self._active)[3]
            if entry.section == "active":
                return self._taken(entry)
        while self._backoff:
            if self._backoff[0][2].error:
                break
            entry = heapq.heappop(self._backoff)[2]
            if entry.section == "backoff":
                return self._taken(entry)
        return None

    def _taken(self, entry: Entry) -> Entry:
        entry.section = "taken"
        entry.attempts += 1
        return entry

    def _refresh(self, now: float) -> None:
        while self._backoff and self._backoff[0][0] <= now:
            entry = heapq.heappop(self._backoff)[2]
            if entry.section == "backoff":
                self._activate(entry)
        while self._waiting:
            oldest = next(iter(self._waiting.values()))
            if now < oldest.failed_at + _MAX_UNSCHEDULABLE_S:  # the very sum that `wait` waits for
                return
            self._file(oldest)

    def failed(self, entry: Entry, plugins: frozenset[str]) -> None:
        """It did not fit; wait for an event that could change that."""
        if entry.key not in self._entries:
            return
        entry.plugins, entry.failed_at, entry.error = plugins, self._clock.monotonic(), False
        entry.section = "waiting"
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
        """After a cluster event, try the pods that it may help, of those that one of the plugins rejected (None: all).

        `alike`: it helps all of a shape that the same plugins turned away, or none of them.
        """
        woken: list[Entry] = []
        for (_, rejecting_plugins), group in self._groups.items():
            if plugins is not None and plugins.isdisjoint(rejecting_plugins or ("",)):
                continue
            if not alike:
                woken += filter(helps, group.values())
            elif helps(next(iter(group.values()))):
                woken += group.values()
        for entry in sorted(woken, key=lambda woken_entry: woken_entry.order):
            self._file(entry)

    async def wait(self) -> None:
        """Until there may be something to pop."""
        self._changed.clear()
        if self._active:
            return
        due = [self._backoff[0][0]] if self._backoff else []
        if self._waiting:
            due.append(next(iter(self._waiting.values())).failed_at + _MAX_UNSCHEDULABLE_S)
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
