"""The format of the data folder's files, and what may be wrong with one.

A file begins with `MAGIC`; then come records, each with the length and the checksum of its body. Writes only append,
so a process that is killed leaves at most one incomplete record, the last, and a power cut may leave zeros behind it:
that is a torn tail, and nothing in it was acknowledged. Everything else that cannot be read is damage: the bytes were
whole once, and sound records may lie behind them. A torn tail is cut off; damage is reported and never cut off.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgspec

MAGIC = b"dovetail data 1\n"
_HEAD = struct.Struct("<II")
#: The body of every record is a MessagePack array of four, which begins with this byte.
_FIRST_BODY_BYTE = b"\x94"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, int, bytes | None]).decode

#: Table, key, resource version, and the object's bytes; None if it was deleted.
Entry = tuple[str, str, int, bytes | None]


class DamagedBytes(NamedTuple):
    """Bytes that are no record and no torn tail."""

    offset: int
    reason: str
    #: Sound records behind it.
    readable: int


class JournalContents(NamedTuple):
    """What a file holds."""

    entries: list[Entry]
    #: Where the sound records end that stand at the beginning of the file.
    end: int
    damage: tuple[DamagedBytes, ...] = ()
    #: Bytes of a torn tail.
    torn: int = 0


class ForeignFile(Exception):
    """The file was not written by a lab."""


def packed(table: str, key: str, rv: int, raw: bytes | None) -> bytes:
    """A record."""
    body = _encode((table, key, rv, raw))
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def contents(data: bytes) -> JournalContents:
    """Read a file. Records behind damage are read too, so that they can be counted and recovered."""
    ours = data.startswith(MAGIC)
    if ours:
        position = len(MAGIC)
    elif MAGIC.startswith(data):
        return JournalContents([], 0)
    elif _record(data, 0) is not None:  # written before files had a beginning of their own
        position = 0
    elif data.strip(b"\0") and _next_record(data, 0) == len(data):
        raise ForeignFile
    else:
        position = 0
    entries: list[Entry] = []
    damage: list[DamagedBytes] = []
    end, torn = position, 0
    while position < len(data):
        record = _record(data, position)
        if record is not None:
            position, entry = record
            entries.append(entry)
            if damage:
                damage[-1] = damage[-1]._replace(readable=damage[-1].readable + 1)
            else:
                end = position
            continue
        resumed = _next_record(data, position + 1)
        if (ours or entries) and resumed == len(data) and _is_torn(data, position):
            torn = len(data) - position
            break
        damage.append(DamagedBytes(position, _reason(data, position), 0))
        position = resumed
    return JournalContents(entries, end, tuple(damage), torn)


def _record(data: bytes, position: int) -> tuple[int, Entry] | None:
    """The record at a position and where it ends; None if there is none."""
    start = position + _HEAD.size
    if start > len(data):
        return None
    size, check = _HEAD.unpack_from(data, position)
    if not size or start + size > len(data):
        return None
    body = data[start : start + size]
    if zlib.crc32(body) != check:
        return None
    try:
        return start + size, _decode(body)
    except msgspec.DecodeError:
        return None


def _next_record(data: bytes, position: int) -> int:
    """Where the next sound record begins, at or behind a position; the end of the file if there is none."""
    while True:
        body = data.find(_FIRST_BODY_BYTE, position + _HEAD.size)
        if body < 0:
            return len(data)
        if _record(data, body - _HEAD.size) is not None:
            return body - _HEAD.size
        position = body - _HEAD.size + 1


def _is_torn(data: bytes, position: int) -> bool:
    """Whether what follows is the beginning of a record, cut off or with zeros in the place of its end."""
    written = data[position:].rstrip(b"\0")
    if len(written) < _HEAD.size:
        return True
    size, check = _HEAD.unpack_from(data, position)
    if zlib.crc32(data[position + _HEAD.size :]) == check:
        return False  # the body is whole: it is the length that is wrong
    return len(written) - _HEAD.size < int(size)


def _reason(data: bytes, position: int) -> str:
    rest = len(data) - position
    if rest < _HEAD.size:
        return f"{rest} bytes are no record"
    size, check = _HEAD.unpack_from(data, position)
    if not size and not check:
        return "zeros where a record should be"
    if size > rest - _HEAD.size:
        return f"a record's length, {size} bytes, reaches beyond the end of the file"
    return "a record's checksum does not match its content"
