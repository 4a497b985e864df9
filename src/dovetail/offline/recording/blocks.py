"""The file of a recording: a head, then blocks that are only ever appended.

    head    8 bytes DVTLREC\\n, version u16, zero u16, 16 bytes identity of the file, CRC-32 of these
    block   marker u16, kind u8, flags u8, number u32, payload length u32, raw length u32,
            first time i64, last time i64 (milliseconds since 1970), CRC-32 of the payload, CRC-32 of this header

The CRC of a header starts from the identity, so a block of another file does not fit in, and blocks are numbered, so
none can be missing or doubled. A payload is raw deflate; its dictionary is what the blocks since the last one with
RESET end with, so small blocks compress as well as large ones. A file that ends within a block was interrupted: what
is before it is whole. Anything else that does not check is an error with its offset.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import BinaryIO

import msgspec

from dovetail.errors import UserError
from dovetail.language import message
from dovetail.language.system_errors import system_error

VERSION = 1
MAGIC = b"DVTLREC\n"
_HEAD = Struct("<8sHH16s")
_CRC = Struct("<I")
_BLOCK = Struct("<HBBIIIqqI")
_MARKER = 0xB10C
HEAD_BYTES = _HEAD.size + _CRC.size
BLOCK_HEADER_BYTES = _BLOCK.size + _CRC.size
#: A block holds no more than this, so that a hostile file cannot ask for more memory.
MAX_RAW_BYTES = 1 << 24
MAX_PAYLOAD_BYTES = MAX_RAW_BYTES + (1 << 16)
#: What deflate can refer back to.
DICTIONARY_BYTES = 1 << 15
IDENTITY_BYTES = 16
#: The end of the year 9999, in milliseconds since 1970.
MAX_MS = 253_402_300_799_999

#: Flag of a block whose dictionary is empty.
RESET = 1
#: Flag of the block that ends a bookmark.
LAST = 2


class BlockKind(IntEnum):
    HEADER = 1
    BOOKMARK = 2
    EVENTS = 3
    END = 4


class RecordingError(UserError):
    """A file that is no sound recording; `offset` is the byte at which that shows."""

    def __init__(self, path: Path, offset: int, what: str) -> None:
        super().__init__(message("{path}: byte {offset}: {what}", path=path, offset=offset, what=what))
        self.offset = offset


class Block(msgspec.Struct, frozen=True):
    """Where a block is and what it says of itself."""

    offset: int
    kind: BlockKind
    flags: int
    number: int
    length: int
    raw_length: int
    first_ms: int
    last_ms: int
    crc: int

    @property
    def end(self) -> int:
        return self.offset + BLOCK_HEADER_BYTES + self.length


class Index(msgspec.Struct, frozen=True):
    """The whole blocks of a file, and where an interrupted one begins."""

    identity: bytes
    blocks: tuple[Block, ...]
    interrupted_at: int | None

    @property
    def end(self) -> int:
        """The byte after the last whole block."""
        return self.blocks[-1].end if self.blocks else HEAD_BYTES


def head(identity: bytes) -> bytes:
    data = _HEAD.pack(MAGIC, VERSION, 0, identity)
    return data + _CRC.pack(zlib.crc32(data))


def scan(path: Path) -> Index:
    """Check every byte of a file and say which blocks it has."""
    try:
        with path.open("rb") as file:
            return _scan(path, file)
    except OSError as problem:
        raise UserError(f"{path}: {system_error(problem)}") from problem


def _scan(path: Path, file: BinaryIO) -> Index:
    identity = _identity(path, file.read(HEAD_BYTES))
    size = os.fstat(file.fileno()).st_size
    blocks: list[Block] = []
    offset, previous = HEAD_BYTES, None
    while offset < size:
        data = file.read(BLOCK_HEADER_BYTES)
        if len(data) < BLOCK_HEADER_BYTES or _is_zero_to_the_end(path, data, offset):
            return Index(identity, tuple(blocks), offset)
        block = _block(path, data, offset, identity)
        _check_order(path, block, previous)
        if block.end > size:
            return Index(identity, tuple(blocks), offset)
        if zlib.crc32(file.read(block.length)) != block.crc:
            raise RecordingError(path, offset, message("the content of block {n} is damaged", n=block.number))
        blocks.append(block)
        previous, offset = block, block.end
    return Index(identity, tuple(blocks), None)


def _identity(path: Path, data: bytes) -> bytes:
    if len(data) < HEAD_BYTES or not data.startswith(MAGIC):
        raise RecordingError(path, 0, message("not a recording; dovetail record makes one"))
    if zlib.crc32(data[: _HEAD.size]) != _CRC.unpack(data[_HEAD.size :])[0]:
        raise RecordingError(path, 0, message("the head of the file is damaged"))
    _, version, _, identity = _HEAD.unpack(data[: _HEAD.size])
    if version != VERSION:
        raise RecordingError(
            path,
            len(MAGIC),
            message("format version {version}; this release reads {known}", version=version, known=VERSION),
        )
    return bytes(identity)


def _is_zero_to_the_end(path: Path, data: bytes, offset: int) -> bool:
    """Whether the rest was never written: file systems leave zeros where a computer lost power."""
    if any(data):
        return False
    with path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(1 << 20):
            if any(chunk):
                return False
    return True


def _block(path: Path, data: bytes, offset: int, identity: bytes) -> Block:
    if zlib.crc32(data[: _BLOCK.size], zlib.crc32(identity)) != _CRC.unpack(data[_BLOCK.size :])[0]:
        raise RecordingError(path, offset, message("the header of a block is damaged"))
    marker, kind, flags, number, length, raw_length, first_ms, last_ms, crc = _BLOCK.unpack(data[: _BLOCK.size])
    sound = marker == _MARKER and kind in set(BlockKind) and 0 <= first_ms <= last_ms <= MAX_MS
    if not sound or length > MAX_PAYLOAD_BYTES or raw_length > MAX_RAW_BYTES:
        raise RecordingError(path, offset, message("the header of a block makes no sense"))
    return Block(offset, BlockKind(kind), flags, number, length, raw_length, first_ms, last_ms, crc)


def _check_order(path: Path, block: Block, previous: Block | None) -> None:
    if previous is None:
        if block.number != 0 or block.kind is not BlockKind.HEADER:
            raise RecordingError(path, block.offset, message("the first block is missing"))
        return
    if previous.kind is BlockKind.END:
        raise RecordingError(path, block.offset, message("there is a block after the end"))
    if block.kind is BlockKind.HEADER or block.number != previous.number + 1:
        raise RecordingError(
            path,
            block.offset,
            message("block {n} is out of order: {m} was before it", n=block.number, m=previous.number),
        )
    if block.first_ms < previous.last_ms:
        raise RecordingError(path, block.offset, message("block {n} is older than the one before it", n=block.number))


def payloads(path: Path, blocks: tuple[Block, ...]) -> Iterator[tuple[Block, bytes]]:
    """The raw content of consecutive blocks; the first must have RESET."""
    dictionary = b""
    with path.open("rb") as file:
        for block in blocks:
            if block.flags & RESET:
                dictionary = b""
            file.seek(block.offset + BLOCK_HEADER_BYTES)
            data = file.read(block.length)
            if zlib.crc32(data) != block.crc:
                raise RecordingError(
                    path, block.offset, message("the content of block {n} changed while it was read", n=block.number)
                )
            raw = _decompressed(path, block, data, dictionary)
            dictionary = (dictionary + raw)[-DICTIONARY_BYTES:]
            yield block, raw


def _decompressed(path: Path, block: Block, data: bytes, dictionary: bytes) -> bytes:
    decompressor = zlib.decompressobj(-15, zdict=dictionary) if dictionary else zlib.decompressobj(-15)
    try:
        raw = decompressor.decompress(data, block.raw_length + 1)
    except zlib.error as problem:
        raise RecordingError(
            path, block.offset, message("block {n}: {problem}", n=block.number, problem=problem)
        ) from problem
    if len(raw) != block.raw_length or not decompressor.eof or decompressor.unused_data:
        raise RecordingError(path, block.offset, message("block {n} has another length than it says", n=block.number))
    return raw


class Appender:
    """Writes blocks to the end of a file."""

    def __init__(self, file: BinaryIO, identity: bytes, number: int = 0) -> None:
        self._file = file
        self._seed = zlib.crc32(identity)
        self._number = number
        self._dictionary = b""
        #: Bytes written so far by this appender.
        self.written = 0

    def append(self, kind: BlockKind, raw: bytes, first_ms: int, last_ms: int, flags: int = 0) -> None:
        if flags & RESET:
            self._dictionary = b""
        compressor = (
            zlib.compressobj(9, zlib.DEFLATED, -15, 9, zdict=self._dictionary)
            if self._dictionary
            else zlib.compressobj(9, zlib.DEFLATED, -15, 9)
        )
        data = compressor.compress(raw) + compressor.flush()
        fields = (kind, flags, self._number, len(data), len(raw), first_ms, last_ms, zlib.crc32(data))
        header = _BLOCK.pack(_MARKER, *fields)
        self._file.write(header + _CRC.pack(zlib.crc32(header, self._seed)) + data)
        self._file.flush()
        self._dictionary = (self._dictionary + raw)[-DICTIONARY_BYTES:]
        self._number += 1
        self.written += BLOCK_HEADER_BYTES + len(data)
