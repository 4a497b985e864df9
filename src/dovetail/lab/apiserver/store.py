"""The store: every object as the bytes a reader gets, under one counter of versions.

Objects are JSON bytes of the storage version; a decoded copy is kept for the recently used only, so that an idle
pod costs little more than its text. A state that is not read as bytes before the next one is never encoded.
Decoded objects are shared and never changed.
Past events are kept for a while: they serve watches that resume and reads of the past.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from dovetail.clock import Clock

Json = dict[str, Any]

#: How long the past stays readable: two rounds of compaction.
COMPACTION_SECONDS = 300.0
#: And how many events at most, so that a storm cannot eat the memory.
HISTORY_LIMIT = 200_000
#: How many decoded objects stay in memory.
DECODED_LIMIT = 4096

#: The window of changes a watch can catch up on: its least and greatest size, and how old a fresh change may be.
WINDOW = 100
WINDOW_LIMIT = 102_400
FRESH_SECONDS = 75.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class JournalRefused(Exception):
    """The log on disk did not take a change, and the store is as before; the text says why."""


class StoredVersion:
    """One stored state of one object."""

    __slots__ = ("_obj", "_raw", "key", "rv")

    def __init__(self, key: str, rv: int, raw: bytes | None = None, obj: Json | None = None) -> None:
        assert raw is not None or obj is not None
        self.key = key
        self.rv = rv
        self._raw = raw
        self._obj = obj

    @property
    def raw(self) -> bytes:
        """The object as a reader gets it."""
        raw = self._raw
        if raw is None:
            raw = self._raw = _encode(self._obj)
        return raw

    @property
    def obj(self) -> Json:
        """The object, to be read and not changed."""
        obj = self._obj
        if obj is None:
            obj = self._obj = _decode(self.raw)
        self.touch()
        return obj

    def touch(self) -> None:
        """Count the decoded object among the recently used; the oldest of them goes back to bytes."""
        recent = _recent
        if self in recent:
            recent.move_to_end(self)
            return
        recent[self] = None
        if len(recent) > DECODED_LIMIT:
            oldest, _ = recent.popitem(last=False)
            if oldest._raw is None:
                oldest._raw = _encode(oldest._obj)
            oldest._obj = None

    def fresh(self) -> Json:
        """A copy of one's own."""
        copy: Json = _decode(self.raw)
        return copy


_recent: OrderedDict[StoredVersion, None] = OrderedDict()


class TransientVersion(StoredVersion):
    """A state that is answered with and not stored: it lives as long as its holder, decoded as it is."""

    __slots__ = ()

    def touch(self) -> None:
        """Not among the recently used, which would hold it for long after."""


class StoreEvent:
    """A change: what came, or what went and its last state under a new version."""

    __slots__ = ("_gone", "frames", "previous", "record", "rv", "table", "when")

    def __init__(
        self, rv: int, table: str, record: StoredVersion | None, previous: StoredVersion | None, when: float
    ) -> None:
        self.rv = rv
        self.table = table
        self.record = record
        self.previous = previous
        self.when = when
        #: Encoded forms shared by the watchers that want the same one.
        self.frames: dict[Any, Any] = {}
        self._gone: StoredVersion | None = None

    @property
    def key(self) -> str:
        record = self.record or self.previous
        assert record is not None
        return record.key

    @property
    def gone(self) -> StoredVersion:
        """The last state of what went, or left a selection, under the version of its going."""
        gone = self._gone
        if gone is None:
            assert self.previous is not None
            gone = self._gone = _with_version(self.previous, self.rv)
        return gone

    def forget(self) -> None:
        """Keep nothing decoded any more: states this old are hardly ever read."""
        for record in (self.previous, self._gone):
            if record is not None:
                _recent.pop(record, None)


class KindTable:
    """The objects of one kind, in the order of their keys (`namespace/name`)."""

    __slots__ = ("capacity", "history", "horizon", "keys", "records", "rv", "watchers", "window")

    def __init__(self) -> None:
        #: A watch may begin behind this version; the window of changes it can catch up on grows with the traffic.
        self.horizon = 0
        self.window = 0
        self.capacity = WINDOW
        self.rv = 0
        self.records: dict[str, StoredVersion] = {}
        self.keys: list[str] = []
        self.history: deque[StoreEvent] = deque()
        #: In the order they came, so that a simulation repeats itself to the letter.
        self.watchers: dict[Callable[[StoreEvent], None], None] = {}

    def remember(self, event: StoreEvent) -> None:
        """Add a change to the window, which widens while its changes are fresh and forgets the oldest when full."""
        history = self.history
        self.window = min(self.window, len(history))
        if self.window >= self.capacity:
            if event.when - history[-self.window].when < FRESH_SECONDS and self.capacity < WINDOW_LIMIT:
                self.capacity *= 2
            elif self.capacity > WINDOW and event.when - history[-(self.capacity // 4)].when > FRESH_SECONDS:
                self.capacity //= 2
        while self.window >= self.capacity:
            self.horizon = history[-self.window].rv
            self.window -= 1
        history.append(event)
        self.window += 1
        self.rv = event.rv

    def under(self, prefix: str, after: str = "") -> Iterator[StoredVersion]:
        """The records whose key begins with `prefix`, behind `after`."""
        records = self.records
        for key in self.span(prefix, after):
            yield records[key]

    def span(self, prefix: str, after: str = "") -> list[str]:
        keys = self.keys
        start = bisect_right(keys, after) if after else bisect_left(keys, prefix)
        end = bisect_left(keys, prefix[:-1] + chr(ord(prefix[-1]) + 1)) if prefix else len(keys)
        return keys[start:end]


class ObjectStore:
    """Tables by name, one version counter, and the recent past."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.tables: dict[str, KindTable] = {}
        self.rv = 1
        self.compacted = 0
        self.history_limit = HISTORY_LIMIT
        #: Watches begin no earlier than this: what was there at the start has no past.
        self.beginning = 0
        self._timeline: deque[StoreEvent] = deque()
        self._marks: deque[tuple[float, int]] = deque()
        #: Called with every change before it is made: the log on disk. It raises WriteRefused to prevent it.
        self.journal: Callable[[StoreEvent], None] | None = None
        #: Called with every change in every table.
        self.observers: list[Callable[[StoreEvent], None]] = []

    def table(self, name: str) -> KindTable:
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = KindTable()
        return table

    def restore(self, records: Iterable[tuple[str, StoredVersion]], version: int) -> None:
        """Begin with what an earlier life left behind; its past is not remembered."""
        for name, record in records:
            rows = self.table(name)
            rows.records[record.key] = record
            rows.rv = max(rows.rv, record.rv)
        for rows in self.tables.values():
            rows.keys = sorted(rows.records)
        self.rv = self.compacted = self.beginning = max(self.rv, version)

    def get(self, table: str, key: str) -> StoredVersion | None:
        return self.table(table).records.get(key)

    def put(self, table: str, key: str, obj: Json) -> StoredVersion:
        """Keep `obj` (now the store's own) under the next version."""
        rv = self.rv + 1
        obj["metadata"]["resourceVersion"] = str(rv)
        record = StoredVersion(key, rv, obj=obj)
        self.place(table, record)
        record.touch()
        return record

    def place(self, table: str, record: StoredVersion) -> None:
        """Put a record with its version: a write, or one read back from the log."""
        rows = self.table(table)
        previous = rows.records.get(record.key)
        event = StoreEvent(record.rv, table, record, previous, self._clock.monotonic())
        self._log(event)
        if previous is None:
            insort(rows.keys, record.key)
        rows.records[record.key] = record
        self._emit(rows, event)

    def reread(self, table: str, read: Callable[[Json], Json]) -> None:
        """Show the table's objects as `read` makes them: the same versions, and no change to hear of."""
        records = self.table(table).records
        for key, record in records.items():
            raw = _encode(read(record.fresh()))
            if raw != record.raw:
                records[key] = StoredVersion(key, record.rv, raw)

    def delete(self, table: str, key: str) -> StoredVersion:
        """Take the object away; its last state, under the version of its going."""
        return self.remove(table, key, self.rv + 1)

    def remove(self, table: str, key: str, rv: int) -> StoredVersion:
        rows = self.table(table)
        previous = rows.records[key]
        event = StoreEvent(rv, table, None, previous, self._clock.monotonic())
        self._log(event)
        del rows.records[key]
        del rows.keys[bisect_left(rows.keys, key)]
        self._emit(rows, event)
        return _with_version(previous, rv)

    def _log(self, event: StoreEvent) -> None:
        """The log on disk has a change before the store does: WriteRefused leaves the store as it was."""
        if self.journal is not None:
            self.journal(event)
        self.rv = max(self.rv, event.rv)

    def _emit(self, rows: KindTable, event: StoreEvent) -> None:
        rows.remember(event)
        self._timeline.append(event)
        self._forget(event.when)
        for watcher in tuple(rows.watchers):
            watcher(event)
        for observer in self.observers:
            observer(event)

    def _forget(self, now: float) -> None:
        """Compact as etcd's clients do: every five minutes, what is older than the mark before."""
        marks = self._marks
        if not marks or now - marks[-1][0] >= COMPACTION_SECONDS:
            marks.append((now, self.rv))
            if len(marks) > 2:
                marks.popleft()
        horizon = marks[0][1] if len(marks) == 2 else 0
        timeline = self._timeline
        while timeline and (timeline[0].rv <= horizon or len(timeline) > self.history_limit):
            old = timeline.popleft()
            self.tables[old.table].history.popleft()
            old.forget()
            self.compacted = old.rv

    def since(self, table: str, rv: int) -> list[StoreEvent]:
        """The changes after `rv`, oldest first."""
        history = self.table(table).history
        if not history or history[-1].rv <= rv:
            return []
        events: list[StoreEvent] = []
        for event in reversed(history):
            if event.rv <= rv:
                break
            events.append(event)
        events.reverse()
        return events

    def at(self, table: str, rv: int) -> dict[str, StoredVersion]:
        """The table as it was at `rv`, which the caller has checked is not compacted."""
        records = dict(self.table(table).records)
        for event in reversed(self.table(table).history):
            if event.rv <= rv:
                break
            if event.previous is None:
                records.pop(event.key, None)
            else:
                records[event.key] = event.previous
        return records


def _with_version(record: StoredVersion, rv: int) -> StoredVersion:
    """The same content under another version."""
    obj = dict(record.obj)
    obj["metadata"] = {**obj["metadata"], "resourceVersion": str(rv)}
    return StoredVersion(record.key, rv, obj=obj)
