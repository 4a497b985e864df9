"""Writing a recording: versions of objects in, blocks out.

What is equal to the version before is not written. A block is written when it is full or when `flush` is called:
what is lost with a computer is what came since. A bookmark, the whole state, is written as often as its size allows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any

import msgspec

from dovetail import __version__
from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error
from dovetail.offline.recording.blocks import IDENTITY_BYTES, LAST, RESET, Appender, BlockKind, head, scan
from dovetail.offline.recording.differences import difference
from dovetail.offline.recording.reader import Recording
from dovetail.offline.recording.records import (
    DeleteRecord,
    Gap,
    Json,
    ObjectKey,
    OfferingKey,
    PriceRecord,
    Put,
    Record,
    RecordedState,
    RecordingHeader,
    Usage,
    key_of,
    milliseconds,
    usage_step,
)

#: A block is written when its records have so many bytes.
BLOCK_BYTES = 1 << 18
#: A bookmark is written when the events since the last one take so many times its size, and at least so many bytes.
BOOKMARK_RATIO, BOOKMARK_MIN_BYTES = 4, 1 << 18

_ENCODE = msgspec.msgpack.Encoder().encode
_ARRAY = Struct(">BI")
_ARRAY_32 = 0xDD


class Writer:
    """Appends to one file. Times must not go back; one that does counts as the latest before it."""

    def __init__(self, path: Path, appender: Appender, file: Any, state: RecordedState, ms: int) -> None:
        """Use `create` or `resume`."""
        self.path = path
        self.state = state
        #: Changes of objects that were written.
        self.events = 0
        self._file = file
        self._appender = appender
        self._ms = ms
        self._siblings: dict[tuple[str, str], dict[int, None]] = {}
        self._group_of: dict[int, tuple[str, str]] = {}
        for number, source in state.objects.items():
            self._join(number, source)
        self._records: list[bytes] = []
        self._record_bytes = 0
        self._first_ms = ms
        self._bookmark_bytes = 0
        self._bookmarked_at = appender.written
        #: Before the first bookmark nothing is an event: it is the state at the start.
        self.begun = False

    @classmethod
    def create(
        cls, path: Path, start: datetime, cluster: str, identity: bytes, *, anonymised: bool = False, source: str = ""
    ) -> Writer:
        """A new file; `identity` is 16 bytes that no other recording has. Put the first state, then `begin`."""
        if len(identity) != IDENTITY_BYTES:
            raise ValueError(f"an identity has {IDENTITY_BYTES} bytes")
        try:
            file = path.open("xb")
        except OSError as problem:
            raise UserError(f"{path}: {system_error(problem)}") from problem
        ms = milliseconds(start)
        file.write(head(identity))
        appender = Appender(file, identity)
        header = RecordingHeader(cluster=cluster, start_ms=ms, writer=__version__, anonymised=anonymised, source=source)
        appender.append(BlockKind.HEADER, _ENCODE(header), ms, ms, RESET)
        return cls(path, appender, file, RecordedState(), ms)

    @classmethod
    def resume(cls, path: Path, now: datetime) -> Writer:
        """Go on with a file: what is left of an interrupted block is cut off, and the time between is a gap."""
        index = scan(path)
        recording = Recording(path, index)
        state = recording.state_at(recording.end)
        last = index.blocks[-1]
        end, number = (last.offset, last.number) if recording.closed else (index.end, last.number + 1)
        file = path.open("r+b")
        file.truncate(end)
        file.seek(end)
        writer = cls(path, Appender(file, index.identity, number), file, state, last.last_ms)
        writer.begin()
        later = max(milliseconds(now), writer._ms)
        writer._append(later, Gap(0, later - writer._ms))
        return writer

    def rotated(self, path: Path, identity: bytes, now: datetime) -> Writer:
        """End this file and go on in another, which begins with the state that this one ends with."""
        header = Recording(self.path, scan(self.path)).header
        self.close(now)
        other = Writer.create(path, now, header.cluster, identity, anonymised=header.anonymised, source=header.source)
        other.state = self.state
        for number, source in self.state.objects.items():
            other._join(number, source)
        other.begin()
        return other

    @property
    def written(self) -> int:
        """Bytes written by this process."""
        return self._appender.written

    def begin(self) -> None:
        """What was put until now is the state at the start."""
        self.events = 0
        self.begun = True
        self.bookmark()

    def put(self, time: datetime, source: Json) -> bool:
        """A version of an object; whether it differs from the one before. Another UID is another object."""
        key = key_of(source)
        number = self.state.numbers.get(key)
        if number is not None and _uid(self.state.objects[number]) != _uid(source):
            self.delete(time, key)
            number = None
        if number is None:
            number, base = self.state.next_number, self._base(source)
            old: Json = self.state.objects[base] if base >= 0 else {}
        else:
            base, old = number, self.state.objects[number]
        change = difference(old, source)
        if change is None and base == number:
            return False
        self._append(milliseconds(time), Put(0, number, base, change))
        if base != number:
            self._join(number, self.state.objects[number])
        self.events += 1
        return True

    def delete(self, time: datetime, key: ObjectKey, last: Json | None = None) -> bool:
        """An object is gone; `last` is its last version, where that is known. Whether it was there."""
        number = self.state.numbers.get(key)
        if number is None:
            return False
        change = None if last is None or key_of(last) != key else difference(self.state.objects[number], last)
        self._append(milliseconds(time), DeleteRecord(0, number, change))
        self._siblings[self._group_of.pop(number)].pop(number, None)
        self.events += 1
        return True

    def price(self, time: datetime, key: OfferingKey, dollars: float, source: str) -> bool:
        before = self.state.prices.get(key)
        if before == (dollars, source):
            return False
        self._append(milliseconds(time), PriceRecord(0, *key, dollars, source))
        return True

    def usage(self, time: datetime, measured: Mapping[ObjectKey, tuple[int, int]]) -> None:
        """Nanocores and bytes of everything that is measured now; what is not among it no longer is."""
        steps: dict[int, tuple[int, int] | None] = dict.fromkeys(self.state.usage)
        for key, (cpu, memory) in measured.items():
            number = self.state.numbers.get(key)
            if number is not None:
                steps[number] = usage_step(cpu), usage_step(memory)
        changed = sorted(number for number, step in steps.items() if step != self.state.usage.get(number))
        if changed:
            gaps = [number - before for before, number in zip([0, *changed], changed, strict=False)]
            self._append(milliseconds(time), Usage(0, gaps, [steps[number] for number in changed]))

    def note_time(self, time: datetime) -> None:
        """The recorder still listens: the recording reaches until now though nothing happened."""
        self._ms = max(self._ms, milliseconds(time))

    def flush(self) -> None:
        """Write what there is as a block, and a bookmark if one is due."""
        if self._records:
            raw = _ARRAY.pack(_ARRAY_32, len(self._records)) + b"".join(self._records)
            self._appender.append(BlockKind.EVENTS, raw, self._first_ms, self._ms)
            self._records.clear()
            self._record_bytes = 0
        since = self._appender.written - self._bookmarked_at
        if since > max(BOOKMARK_MIN_BYTES, BOOKMARK_RATIO * self._bookmark_bytes):
            self.bookmark()

    def bookmark(self) -> None:
        """Write the whole state."""
        if self._records:
            raise ValueError("flush before a bookmark")
        began = self._appender.written
        parts = _parts(self._state_records())
        for number, raw in enumerate(parts):
            flags = (RESET if number == 0 else 0) | (LAST if number == len(parts) - 1 else 0)
            self._appender.append(BlockKind.BOOKMARK, raw, self._ms, self._ms, flags)
        self._bookmark_bytes = self._appender.written - began
        self._bookmarked_at = self._appender.written

    def sync(self) -> None:
        """See that what was written is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self, time: datetime | None = None) -> None:
        """End the recording."""
        if self._file.closed:
            return
        if not self.begun:
            self.begin()
        self.flush()
        if time is not None:
            self.note_time(time)
        self._appender.append(BlockKind.END, b"", self._ms, self._ms)
        self.sync()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, ms: int, record: Record) -> None:
        if not self.begun:
            self.state.take(record)
            return
        ms = max(ms, self._ms)
        if not self._records:
            self._first_ms = ms
        placed = msgspec.structs.replace(record, at=ms - self._first_ms)
        data = _ENCODE(placed)
        self.state.take(placed)
        self._ms = ms
        self._records.append(data)
        self._record_bytes += len(data)
        if self._record_bytes > BLOCK_BYTES:
            self.flush()

    def _base(self, source: Json) -> int:
        """A live object that the new one resembles: the latest of the same kind and controller."""
        siblings = self._siblings.get(_group(source))
        return next(reversed(siblings)) if siblings else -1

    def _join(self, number: int, source: Json) -> None:
        group = self._group_of[number] = _group(source)
        self._siblings.setdefault(group, {})[number] = None

    def _state_records(self) -> list[bytes]:
        """The whole state: objects by number, each by its difference from one like it, then prices and usage."""
        records: list[bytes] = []
        latest: dict[tuple[str, str], int] = {}
        objects = self.state.objects
        for number in sorted(objects):
            source, group = objects[number], self._group_of.get(number) or _group(objects[number])
            base = latest.get(group, -1)
            change = difference(objects[base] if base >= 0 else {}, source)
            records.append(_ENCODE(Put(0, number, base, change)))
            latest[group] = number
        for key, price in sorted(self.state.prices.items()):
            records.append(_ENCODE(PriceRecord(0, *key, *price)))
        if self.state.usage:
            numbers = sorted(self.state.usage)
            gaps = [number - before for before, number in zip([0, *numbers], numbers, strict=False)]
            records.append(_ENCODE(Usage(0, gaps, [self.state.usage[number] for number in numbers])))
        return records


def check_absent(path: Path) -> None:
    """A recording is never written over."""
    if path.exists():
        raise UserError(message("{path} exists; name another file, or go on with it by --resume", path=path))


def _parts(records: list[bytes]) -> list[bytes]:
    """Records as the contents of blocks; one empty block for none."""
    parts: list[bytes] = []
    chosen: list[bytes] = []
    size = 0
    for record in records:
        chosen.append(record)
        size += len(record)
        if size > BLOCK_BYTES:
            parts.append(_ARRAY.pack(_ARRAY_32, len(chosen)) + b"".join(chosen))
            chosen, size = [], 0
    if chosen or not parts:
        parts.append(_ARRAY.pack(_ARRAY_32, len(chosen)) + b"".join(chosen))
    return parts


def _group(source: Json) -> tuple[str, str]:
    owners = source["metadata"].get("ownerReferences") or ()
    controller = next((owner.get("uid", "") for owner in owners if owner.get("controller")), "")
    return source["kind"], controller


def _uid(source: Json) -> str:
    return source["metadata"].get("uid") or ""
