"""A compiled catalogue (`.mo`), searched where it lies: a command that shows ten texts reads ten.

The standard library's reader builds a dictionary of all of them first, which takes longer than most commands.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path


class MessageCatalogue:
    """Texts by their English, which a `.mo` keeps sorted. Without a translation the English is returned."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        counts: tuple[int, ...] = struct.unpack_from("<5I", data)
        self._count, self._english, self._translated = counts[2:]

    @classmethod
    def of_file(cls, path: Path) -> MessageCatalogue:
        return cls(path.read_bytes())

    def gettext(self, text: str) -> str:
        place = self._place(text)
        return self._text(self._translated, place).partition("\0")[0] if place is not None else text

    def ngettext(self, singular: str, plural: str, n: int) -> str:
        """Korean has one form, whatever the number."""
        translated = self.gettext(singular)
        return plural if translated is singular and n != 1 else translated

    def entries(self) -> Iterator[tuple[str, str]]:
        """English and translation; each form of a plural by itself."""
        for index in range(self._count):
            translation = self._text(self._translated, index)
            for form in self._text(self._english, index).split("\0"):
                if form:
                    yield form, translation

    def _place(self, text: str) -> int | None:
        needle = text.encode()
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            key = self._bytes(self._english, middle).partition(b"\0")[0]
            if key == needle:
                return middle
            low, high = (middle + 1, high) if key < needle else (low, middle)
        return None

    def _text(self, table: int, index: int) -> str:
        return self._bytes(table, index).decode()

    def _bytes(self, table: int, index: int) -> bytes:
        length, offset = struct.unpack_from("<2I", self._data, table + 8 * index)
        return self._data[offset : offset + length]
