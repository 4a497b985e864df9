"""The cluster on disk: a log that every acknowledged write has reached, and a snapshot to start from.

A change is appended to the log before its answer leaves; the disk is asked to hold it once for all the changes that
wait (group commit). When the log grows, the present state becomes a snapshot and the log starts anew. A log cut off
in the middle of a record, by kill -9 or by a full disk, is good up to there: what follows was never acknowledged.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec

from dovetail.lab.apiserver.store import Event, Record, Store

_HEAD = struct.Struct("<II")
#: The log is rewritten as a snapshot beyond this size, and twice the snapshot.
ROTATE_BYTES = 32 * 1024 * 1024


class DataError(RuntimeError):
    """The folder cannot be used; the text says why and what to do."""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[str, str, int, bytes | None])


def _pack(table: str, key: str, rv: int, raw: bytes | None) -> bytes:
    body = _encode((table, key, rv, raw))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


class Journal:
    """The log of one store in one folder, which it holds alone."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store
        self._lock: IO[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._size = 0
        self._base = 0
        self._dirty = False
        self._waiting: asyncio.Future[None] | None = None
        self._syncing = False
        self._task: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def open(self) -> None:
        """Take the folder, read back what it holds, and follow the store from now on."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "lock").open("ab")
        except OSError as error:
            raise DataError(f"cannot use {self.folder}: {error.strerror}; choose another --data folder") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise DataError(
                f"{self.folder} is in use by another lab; stop it or choose another --data folder"
            ) from error
        self._lock = lock
        self._load()
        self._log = (self.folder / "log").open("ab")
        self.store.journal = self._note

    def _load(self) -> None:
        state: dict[tuple[str, str], tuple[int, bytes]] = {}
        version = 1
        for name in ("snapshot", "log"):
            path = self.folder / name
            if not path.exists():
                continue
            data = path.read_bytes()
            good = 0
            for end, (table, key, rv, raw) in _entries(data):
                good = end
                version = max(version, rv)
                if raw is None:
                    state.pop((table, key), None)
                elif table:
                    state[table, key] = (rv, raw)
            if name == "log":
                if good < len(data):
                    os.truncate(path, good)
                self._size = good
            else:
                self._base = good
        self.store.restore(((table, Record(key, rv, raw)) for (table, key), (rv, raw) in state.items()), version)

    def _note(self, event: Event) -> None:
        assert self._log is not None
        raw = event.record.raw if event.record is not None else None
        packed = _pack(event.table, event.key, event.rv, raw)
        self._log.write(packed)
        self._size += len(packed)
        self._dirty = True

    def settled(self) -> asyncio.Future[None] | None:
        """Done when everything noted so far is on disk; None if it is already."""
        if not self._dirty and self._waiting is None:
            return None
        loop = asyncio.get_running_loop()
        if self._waiting is None:
            self._waiting = loop.create_future()
        waiting = self._waiting
        if not self._syncing:
            self._syncing = True
            self._task = loop.create_task(self._sync())
        return waiting

    async def _sync(self) -> None:
        """Flush for everybody who waits; those who come meanwhile get the next round."""
        loop = asyncio.get_running_loop()
        while self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            assert self._log is not None
            self._dirty = False
            try:
                self._log.flush()
                await loop.run_in_executor(self._pool, os.fsync, self._log.fileno())
            except OSError as error:
                if not waiting.done():
                    waiting.set_exception(DataError(f"cannot write to {self.folder}: {error.strerror}"))
                continue
            if not waiting.done():
                waiting.set_result(None)
            if self._size > max(ROTATE_BYTES, 2 * self._base):
                self._rotate()
        self._syncing = False

    def _rotate(self) -> None:
        """Write the present state as a snapshot and begin a new log."""
        assert self._log is not None
        fresh = self.folder / "snapshot.new"
        with fresh.open("wb") as out:
            out.write(_pack("", "", self.store.rv, b""))
            for name, table in self.store.tables.items():
                for record in table.records.values():
                    out.write(_pack(name, record.key, record.rv, record.raw))
            out.flush()
            os.fsync(out.fileno())
            self._base = out.tell()
        fresh.replace(self.folder / "snapshot")
        self._log.close()
        log = self.folder / "log"
        self._log = log.open("wb")
        os.fsync(self._log.fileno())
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self._size = 0

    def close(self) -> None:
        self.store.journal = None
        if self._log is not None:
            self._log.flush()
            os.fsync(self._log.fileno())
            self._log.close()
            self._log = None
        self._pool.shutdown()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _entries(data: bytes) -> Any:
    """The sound records of a file, each with where it ends."""
    at = 0
    while at + _HEAD.size <= len(data):
        size, check = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + size
        body = data[at + _HEAD.size : end]
        if len(body) < size or zlib.crc32(body) != check:
            return
        yield end, _decoder.decode(body)
        at = end
