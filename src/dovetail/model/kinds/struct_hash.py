"""A hash of structures, as Karpenter's objects are hashed: names and values of the fields that are there.

Fields count in their order, maps and lists in none. A field that holds nothing is left out; one behind a
pointer holds something as soon as it is written, be it empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def _fnv(data: bytes) -> int:
    hash_ = _BASIS
    for byte in data:
        hash_ = (hash_ * _PRIME & _MASK) ^ byte
    return hash_


def _pair(left: int, other: int) -> int:
    return _fnv(left.to_bytes(8, "little") + other.to_bytes(8, "little"))


def word(text: str) -> int:
    return _fnv(text.encode())


def number(value: int, size: int = 8) -> int:
    """A whole number of so many bytes."""
    return _fnv((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))


def struct(name: str, fields: Iterable[tuple[str, int | None]]) -> int:
    hash_ = word(name)
    for field, value in fields:
        if value is not None:
            hash_ = _fnv((hash_ ^ _pair(word(field), value)).to_bytes(8, "little"))
    return hash_


def mapping(values: Mapping[str, int]) -> int:
    hash_ = 0
    for key, value in values.items():
        hash_ ^= _pair(word(key), value)
    return _fnv(hash_.to_bytes(8, "little"))


def bag(values: Iterable[int]) -> int:
    """A list whose order does not count."""
    hash_ = 0
    for value in values:
        hash_ ^= value
    return hash_
