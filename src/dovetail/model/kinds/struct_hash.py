"""A hash of structures, as Karpenter's objects are hashed: names and values of the fields that are there.

Fields count in their order, maps and lists in none. A field that holds nothing is left out; one behind a
pointer holds something as soon as it is written, be it empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_BASIS, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def _fnv(data: bytes) -> int:
    found = _BASIS
    for byte in data:
        found = (found * _PRIME & _MASK) ^ byte
    return found


def _pair(one: int, other: int) -> int:
    return _fnv(one.to_bytes(8, "little") + other.to_bytes(8, "little"))


def word(text: str) -> int:
    return _fnv(text.encode())


def number(value: int, size: int = 8) -> int:
    """A whole number of so many bytes."""
    return _fnv((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))


def struct(name: str, fields: Iterable[tuple[str, int | None]]) -> int:
    found = word(name)
    for field, value in fields:
        if value is not None:
            found = _fnv((found ^ _pair(word(field), value)).to_bytes(8, "little"))
    return found


def mapping(values: Mapping[str, int]) -> int:
    found = 0
    for key, value in values.items():
        found ^= _pair(word(key), value)
    return _fnv(found.to_bytes(8, "little"))


def bag(values: Iterable[int]) -> int:
    """A list whose order does not count."""
    found = 0
    for value in values:
        found ^= value
    return found
