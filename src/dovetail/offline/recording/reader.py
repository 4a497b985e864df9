"""Reading a recording: the cluster at any instant, and what happened between two."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.offline.recording.blocks import LAST, RESET, Block, BlockKind, Index, RecordingError, payloads, scan
from dovetail.offline.recording.object_form import check
from dovetail.offline.recording.records import (
    MAX_DOLLARS,
    RECORDS,
    EventType,
    Gap,
    Json,
    Measured,
    ObjectKey,
    OfferingKey,
    PriceRecord,
    Record,
    RecordedEvent,
    RecordedPrice,
    RecordedState,
    RecordingHeader,
    instant,
    key_of,
    milliseconds,
)


def read(path: Path | str) -> Recording:
    """Check every block of a file. `RecordingError` names the byte at which it is not what was recorded."""
    path = Path(path)
    return Recording(path, scan(path))


class Recording:
    """A recorded cluster. `objects_at(a)` and then `events(a, b)` lead to `objects_at(b)`.

    Objects share what they have in common: copy one before you change it.
    """

    def __init__(self, path: Path, index: Index) -> None:
        self.path = path
        #: The byte at which an interrupted recorder left off in the middle of a block; None for a whole file.
        self.interrupted_at = index.interrupted_at
        self._index = index
        self._bookmarks = _bookmarks(path, index)
        self.header = _header(path, index.blocks)
        self._cursor: Cursor | None = None

    @property
    def start(self) -> datetime:
        return instant(self._index.blocks[self._bookmarks[0][0]].first_ms)

    @property
    def end(self) -> datetime:
        """When the recorder ended, or the last it wrote where it was interrupted."""
        return instant(self._index.blocks[-1].last_ms)

    @property
    def closed(self) -> bool:
        """Whether the recorder ended by itself."""
        return self._index.blocks[-1].kind is BlockKind.END

    @property
    def bytes(self) -> int:
        return self._index.end

    def objects_at(self, instant: datetime) -> list[Json]:
        """Every object as it was, ordered by kind, namespace and name."""
        objects = self.state_at(instant).objects.values()
        return sorted(objects, key=lambda source: key_of(source)[1:])

    def prices_at(self, instant: datetime) -> dict[OfferingKey, RecordedPrice]:
        """What was known of prices. What is not in it was not known."""
        return dict(sorted(self.state_at(instant).prices.items()))

    def price_records(self) -> Iterator[tuple[datetime, OfferingKey, RecordedPrice]]:
        """Every price that was recorded after the start, in order."""
        for ms, record in Cursor(self.path, self._index.blocks, self._bookmarks[0]).records():
            if isinstance(record, PriceRecord):
                key = OfferingKey(record.region, record.instance_type, record.zone, record.capacity_type)
                yield instant(ms), key, RecordedPrice(record.dollars, record.source)

    def usage_at(self, instant: datetime) -> dict[ObjectKey, Measured]:
        """What nodes and pods used, as far as it was measured."""
        return dict(sorted(self.state_at(instant).measured()))

    def events(self, since: datetime, until: datetime) -> Iterator[RecordedEvent]:
        """What happened after `since`, until and with `until`, in order."""
        cursor = self._cursor_at(milliseconds(since))
        yield from cursor.advance(milliseconds(until))

    def gaps(self) -> list[tuple[datetime, datetime]]:
        """Times of which nothing is known, because the recorder did not run: from, to."""
        gaps: list[tuple[datetime, datetime]] = []
        for ms, record in Cursor(self.path, self._index.blocks, self._bookmarks[0]).records():
            if isinstance(record, Gap):
                gaps.append((instant(max(0, ms - record.length_ms)), instant(ms)))
        return gaps

    def state_at(self, instant: datetime) -> RecordedState:
        """The objects, prices and usage; it goes on with the next call: copy what is to stay."""
        ms = milliseconds(instant)
        kept = self._cursor
        # Going on is cheaper than seeking unless a bookmark lies between.
        if kept is None or kept.ms > ms or kept.bookmark < self._bookmark_before(ms):
            kept = self._cursor = self._cursor_at(ms)
        for _ in kept.advance(ms):
            pass
        return kept.state

    def _bookmark_before(self, ms: int) -> int:
        times = [self._index.blocks[first].first_ms for first, _ in self._bookmarks]
        return max(0, bisect_right(times, ms) - 1)

    def _cursor_at(self, ms: int) -> Cursor:
        number = self._bookmark_before(ms)
        if ms < self._index.blocks[self._bookmarks[0][0]].first_ms:
            raise UserError(
                message("{path}: the recording starts at {start}", path=self.path, start=self.start.isoformat())
            )
        cursor = Cursor(self.path, self._index.blocks, self._bookmarks[number], number)
        for _ in cursor.advance(ms):
            pass
        return cursor


class Cursor:
    """The state at a moment, and the records that follow."""

    def __init__(self, path: Path, blocks: tuple[Block, ...], bookmark: tuple[int, int], number: int = 0) -> None:
        self._path = path
        self.bookmark = number
        self.state = RecordedState()
        first, last = bookmark
        self.ms = blocks[first].first_ms
        self._contents = _contents(path, blocks[first:])
        for _ in range(first, last + 1):
            block, records = next(self._contents)
            for record in records:
                self._take(block, record)
        self._following = self._follow()
        self._next = next(self._following, None)

    def records(self) -> Iterator[tuple[int, Record]]:
        """Every record that follows, with its time; none of them is applied."""
        while self._next is not None:
            _, ms, record = self._next
            yield ms, record
            self._next = next(self._following, None)

    def advance(self, until_ms: int) -> Iterator[RecordedEvent]:
        """Go on until and with a moment."""
        while self._next is not None and self._next[1] <= until_ms:
            block, ms, record = self._next
            self._next = next(self._following, None)
            change = self._take(block, record)
            self.ms = ms
            if change is not None:
                yield RecordedEvent(instant(ms), *change)
        self.ms = max(self.ms, until_ms)

    def _take(self, block: Block, record: Record) -> tuple[EventType, Json, Json | None] | None:
        try:
            change = self.state.take(record)
            if change is not None:
                check(change[1])
            return change
        except (ValueError, OverflowError, RecursionError) as problem:
            raise RecordingError(
                self._path, block.offset, message("block {n}: {problem}", n=block.number, problem=problem)
            ) from problem

    def _follow(self) -> Iterator[tuple[Block, int, Record]]:
        for block, records in self._contents:
            if block.kind is not BlockKind.EVENTS:
                continue
            before = 0
            for record in records:
                if not before <= record.at <= block.last_ms - block.first_ms:
                    what = message("block {n} has a record outside its time", n=block.number)
                    raise RecordingError(self._path, block.offset, what)
                before = record.at
                yield block, block.first_ms + record.at, record


def _contents(path: Path, blocks: tuple[Block, ...]) -> Iterator[tuple[Block, list[Record]]]:
    for block, raw in payloads(path, blocks):
        if block.kind is BlockKind.END:
            return
        try:
            records = RECORDS.decode(raw)
            _check_prices(records)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            raise RecordingError(
                path, block.offset, message("block {n}: {problem}", n=block.number, problem=problem)
            ) from problem
        yield block, records


def _check_prices(records: list[Record]) -> None:
    for record in records:
        if isinstance(record, PriceRecord) and not 0.0 <= record.dollars <= MAX_DOLLARS:
            raise ValueError(
                message("{type} costs {dollars} dollars an hour", type=record.instance_type, dollars=record.dollars)
            )


def _header(path: Path, blocks: tuple[Block, ...]) -> RecordingHeader:
    block, raw = next(payloads(path, blocks[:1]))
    try:
        return msgspec.msgpack.decode(raw, type=RecordingHeader)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise RecordingError(path, block.offset, str(problem)) from problem


def _bookmarks(path: Path, index: Index) -> list[tuple[int, int]]:
    """The first and last block of every whole bookmark. The first one is the state at the start."""
    spans: list[tuple[int, int]] = []
    first: int | None = None
    for number, block in enumerate(index.blocks):
        if block.kind is not BlockKind.BOOKMARK:
            if first is not None or (number == 1):
                raise RecordingError(path, block.offset, message("a bookmark is not whole"))
            continue
        if first is None:
            if not block.flags & RESET:
                raise RecordingError(path, block.offset, message("a bookmark is not whole"))
            first = number
        if block.flags & LAST:
            spans.append((first, number))
            first = None
    if not spans:
        what = message("the recorder was interrupted before it had seen the cluster once; record again")
        raise RecordingError(path, index.end, what)
    return spans


__all__ = ["Recording", "read"]
