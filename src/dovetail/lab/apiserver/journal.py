"""The cluster on disk: a log that every acknowledged write has reached, and a snapshot to start from.

A change is written to the log before the store has it: a change that the disk does not take is refused, and no reader
ever sees it. The disk is asked to hold what was written once for all the requests that wait (group commit). When the
log grows, the present state becomes a snapshot and the log starts anew.

A torn tail, left by kill -9 or a power cut, is moved to a file of its own; nothing in it was acknowledged. A damaged
file, and one that a lab did not write, is refused and left as it is. `recover=True` starts with every sound record of a
damaged file and keeps the damaged file beside.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

from dovetail.lab.apiserver.journal_file import MAGIC, DamagedBytes, ForeignFile, JournalContents, contents, packed
from dovetail.lab.apiserver.store import JournalRefused, ObjectStore, StoredVersion, StoreEvent
from dovetail.language import message, plural
from dovetail.language.system_errors import system_error

#: The log is rewritten as a snapshot beyond this size, and twice the snapshot.
ROTATE_BYTES = 32 * 1024 * 1024
#: What a lab keeps in its folder.
LOG, SNAPSHOT, UNFINISHED, LOCK = "log", "snapshot", "snapshot.new", "lock"
FILE_MODE, FOLDER_MODE = 0o600, 0o700
_OWN_FILES = re.compile(r"lock|identity(\.new)?|snapshot\.new|(log|snapshot)(\.(torn|damaged)-\d+(\.\d+)?)?")


class DataError(RuntimeError):
    """The folder cannot be used; the text says why and what to do."""


class Journal:
    """The log of one store in one folder, which it holds alone."""

    def __init__(self, folder: Path, store: ObjectStore, recover: bool = False) -> None:
        self.folder = folder
        self.store = store
        #: What was put aside while the folder was read, a line each.
        self.notes: list[str] = []
        #: Why the last write was refused; empty while writes are taken.
        self.failure = ""
        self._refused_bytes = 0
        self._recover = recover
        self._lock: IO[bytes] | None = None
        self._log = -1
        self._size = 0
        self._base = 0
        #: The log is rewritten beyond this size.
        self._rotate_at = 0
        self._dirty = False
        self._lost = False
        self._waiting: asyncio.Future[None] | None = None
        self._syncing = False
        self._task: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def open(self) -> None:
        """Take the folder, read back what it holds, and follow the store from now on."""
        try:
            self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            lock = os.fdopen(os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE), "rb+")
        except OSError as error:
            raise DataError(
                message(
                    "cannot use {folder}: {strerror}; choose another --data folder",
                    folder=self.folder,
                    strerror=system_error(error),
                )
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise DataError(
                message(
                    "{folder} is in use by another lab; stop it or choose another --data folder", folder=self.folder
                )
            ) from error
        try:
            self._load()
            self._log = self._open_log()
            self._close_to_others()
        except OSError as error:
            lock.close()
            place = error.filename or self.folder
            raise DataError(
                message(
                    "cannot use {place}: {strerror}; choose another --data folder",
                    place=place,
                    strerror=system_error(error),
                )
            ) from error
        except DataError:
            lock.close()
            raise
        self._lock = lock
        self._rotate_at = max(ROTATE_BYTES, 2 * self._base)
        self.store.journal = self._append

    # Reading

    def _load(self) -> None:
        self._check_unfinished()
        files = {name: self._read(name) for name in (SNAPSHOT, LOG)}
        damaged = {name: held for name, held in files.items() if held is not None and held.damage}
        if damaged and not self._recover:
            raise DataError(self._refusal(damaged))
        state: dict[tuple[str, str], tuple[int, bytes]] = {}
        version = 1
        for held in files.values():
            for table, key, rv, raw in held.entries if held is not None else ():
                version = max(version, rv)
                if raw is None:
                    state.pop((table, key), None)
                elif table:
                    state[table, key] = (rv, raw)
        self.store.restore(((table, StoredVersion(key, rv, raw)) for (table, key), (rv, raw) in state.items()), version)
        snapshot, log = files[SNAPSHOT], files[LOG]
        self._base = snapshot.end if snapshot is not None else 0
        if damaged:
            self._rewrite(damaged)
        elif log is not None:
            if log.torn:
                self._cut(log)
            self._size = log.end

    def _read(self, name: str) -> JournalContents | None:
        path = self.folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            held = contents(data)
        except ForeignFile as error:
            raise DataError(
                message("{path} was not written by a lab; it is left as it is, choose another --data folder", path=path)
            ) from error
        if name == SNAPSHOT:
            return held._replace(damage=held.damage + _missing(held, len(data)), torn=0)
        return held

    def _check_unfinished(self) -> None:
        """A snapshot that was being written when the lab ended; another file of that name is not ours to replace."""
        path = self.folder / UNFINISHED
        try:
            with path.open("rb") as file:
                begin = file.read(len(MAGIC))
        except FileNotFoundError:
            return
        if not MAGIC.startswith(begin):
            raise DataError(
                message("{path} was not written by a lab; it is left as it is, choose another --data folder", path=path)
            )

    def _refusal(self, damaged: dict[str, JournalContents]) -> str:
        lines = []
        for name, held in damaged.items():
            for damage in held.damage:
                lines.append(
                    message(
                        "{folder}: damaged at byte {offset}: {reason}; {readable} sound records follow",
                        folder=self.folder / name,
                        offset=damage.offset,
                        reason=damage.reason,
                        readable=damage.readable,
                    )
                )
        lines.append(
            message(
                "nothing in {folder} was changed. Restore it from a copy, or start with --recover: it "
                "keeps every sound record and the damaged file beside it",
                folder=self.folder,
            )
        )
        return "\n".join(lines)

    def _cut(self, log: JournalContents) -> None:
        """Move a torn tail out of the way of the records to come."""
        path = self.folder / LOG
        data = path.read_bytes()
        tail = data[log.end :]
        kept = ""
        if tail.strip(b"\0"):
            aside = self._free_path(LOG, "torn", log.end)
            _write_file(aside, tail)
            kept = message(", kept in {aside}", aside=aside)
        self.notes.append(
            message(
                "{path}: the last {count} bytes, from byte {end} on, are an incomplete record that was "
                "never acknowledged{kept}",
                path=path,
                count=len(tail),
                end=log.end,
                kept=kept,
            )
        )
        os.truncate(path, log.end)

    def _rewrite(self, damaged: dict[str, JournalContents]) -> None:
        """Start anew with what could be read; the damaged files stay under other names."""
        kept = []
        for name, held in damaged.items():
            aside = self._free_path(name, "damaged", held.damage[0].offset)
            os.link(self.folder / name, aside)
            kept.append(str(aside))
        self._base = self._write_snapshot()
        (self.folder / LOG).unlink(missing_ok=True)
        self._size = 0
        lost = sum(len(held.damage) for held in damaged.values())
        self.notes.append(
            plural(
                "{folder}: read around {n} damaged place; what was there is lost, the damaged file is kept in {kept}",
                "{folder}: read around {n} damaged places; what was there is lost, the damaged file is kept in {kept}",
                n=lost,
                folder=self.folder,
                kept=", ".join(kept),
            )
        )

    def _free_path(self, name: str, what: str, offset: int) -> Path:
        """A name that is not taken."""
        path = self.folder / f"{name}.{what}-{offset}"
        number = 1
        while path.exists():
            number += 1
            path = self.folder / f"{name}.{what}-{offset}.{number}"
        return path

    def _open_log(self) -> int:
        path = self.folder / LOG
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        if not self._size:
            os.ftruncate(log, 0)
            try:
                self._size = _write_whole(log, MAGIC, 0)
                self._sync_folder()
            except OSError:
                os.close(log)
                raise
        return log

    def _close_to_others(self) -> None:
        """Only the owner reads what is kept, Secrets among it; a folder that holds other things keeps its mode."""
        own = True
        for path in self.folder.iterdir():
            if _OWN_FILES.fullmatch(path.name):
                path.chmod(FILE_MODE)
            else:
                own = False
        mode = self.folder.stat().st_mode
        if own and not mode & stat.S_ISVTX and stat.S_IMODE(mode) != FOLDER_MODE:
            self.folder.chmod(FOLDER_MODE)

    # Writing

    def _append(self, event: StoreEvent) -> None:
        """Write a change; WriteRefused if the disk does not take it, and the log is as before."""
        raw = event.record.raw if event.record is not None else None
        self._put(packed(event.table, event.key, event.rv, raw))

    def _put(self, record: bytes) -> None:
        if self._lost:
            raise JournalRefused(self.failure)
        try:
            self._size += _write_whole(self._log, record, self._size)
        except OSError as error:
            self.failure, self._refused_bytes = self._failed(error), len(record)
            raise JournalRefused(self.failure) from error
        self.failure = ""
        self._dirty = True

    def _failed(self, error: OSError) -> str:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = (
            message("free space there, and writes are taken again")
            if full
            else message("writes are refused until it can")
        )
        name = message("disk full ({strerror})", strerror=system_error(error)) if full else system_error(error)
        return message("cannot write to {folder}: {name}; {remedy}", folder=self.folder, name=name, remedy=remedy)

    def _lose(self, error: OSError) -> None:
        """What the kernel had taken may be gone: after this nothing can be acknowledged any more."""
        self._lost = True
        self.failure = message(
            "cannot write to {folder}: {strerror}; what was written last may be lost: stop the lab, "
            "see to the disk, start it again",
            folder=self.folder,
            strerror=system_error(error),
        )

    def health(self) -> str:
        """Why writes are refused now; empty if they are taken. After a refusal the disk is tried again,
        with as much as it refused."""
        if self.failure and not self._lost:
            try:
                _write_whole(self._log, bytes(self._refused_bytes), self._size)
                os.ftruncate(self._log, self._size)
            except OSError as error:
                self.failure = self._failed(error)
            else:
                self.failure = ""
        return self.failure

    def settled(self) -> asyncio.Future[None] | None:
        """Done when everything written so far is on disk; None if it is already."""
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
        """Flush for all the requests that wait; those that come meanwhile get the next round."""
        loop = asyncio.get_running_loop()
        while self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._dirty = False
            try:
                if self._lost:
                    raise JournalRefused(self.failure)
                await loop.run_in_executor(self._pool, os.fsync, self._log)
            except OSError as error:
                self._lose(error)
                if not waiting.done():
                    waiting.set_exception(JournalRefused(self.failure))
                continue
            except JournalRefused as refused:
                if not waiting.done():
                    waiting.set_exception(refused)
                continue
            if not waiting.done():
                waiting.set_result(None)
            if self._size > self._rotate_at:
                self._rotate()
        self._syncing = False

    def _rotate(self) -> None:
        """Write the present state as a snapshot and begin a new log; without room for both the log goes on."""
        try:
            self._base = self._write_snapshot()
        except OSError:
            with suppress(OSError):
                (self.folder / UNFINISHED).unlink(missing_ok=True)
            self._rotate_at = 2 * self._size
            return
        try:
            os.ftruncate(self._log, 0)
            self._size = _write_whole(self._log, MAGIC, 0)
            os.fsync(self._log)
        except OSError as error:
            self._lose(error)
        self._rotate_at = max(ROTATE_BYTES, 2 * self._base)

    def _write_snapshot(self) -> int:
        """The present state in the place of the last snapshot, for good before it returns; its size."""
        fresh = self.folder / UNFINISHED
        fresh.unlink(missing_ok=True)
        records = [(name, record) for name, table in self.store.tables.items() for record in table.records.values()]
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb") as out:
            out.write(MAGIC)
            out.write(packed("", "", self.store.rv, b"%d" % len(records)))
            for name, record in records:
                out.write(packed(name, record.key, record.rv, record.raw))
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        fresh.replace(self.folder / SNAPSHOT)
        self._sync_folder()
        return size

    def _sync_folder(self) -> None:
        """A file's name is on disk only once its folder is."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        self.store.journal = None
        if self._log >= 0:
            with suppress(OSError):  # requests that waited for it were answered already
                os.fsync(self._log)
            os.close(self._log)
            self._log = -1
        self._pool.shutdown()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _missing(snapshot: JournalContents, size: int) -> tuple[DamagedBytes, ...]:
    """A snapshot was whole when it got its name: one that ends early, or has too few records, is damaged."""
    if snapshot.torn:
        return (
            DamagedBytes(
                snapshot.end, message("its end is missing, from byte {size} on", size=size - snapshot.torn), 0
            ),
        )
    if snapshot.damage or not snapshot.entries:
        return ()
    table, _, _, counted = snapshot.entries[0]
    count = len(snapshot.entries) - 1
    if not table and counted and counted.isdigit() and int(counted) != count:
        return (
            DamagedBytes(
                snapshot.end,
                message("{count} of {counted} records are there", count=count, counted=counted.decode()),
                0,
            ),
        )
    return ()


def _write_whole(file: int, data: bytes, size: int) -> int:
    """Append, all of it or nothing: what a full disk took of it is cut off again."""
    written = 0
    try:
        while written < len(data):
            written += os.write(file, data[written:])
    except OSError:
        if written:
            os.ftruncate(file, size)
        raise
    return written


def _write_file(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
