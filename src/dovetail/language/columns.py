"""Tables whose columns line up in every language: a Hangul syllable takes two columns of a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence


def width_of(text: str) -> int:
    """Columns that a terminal gives the text: two for a wide character, none for a combining mark."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def left(text: str, columns: int) -> str:
    """The text, filled up with spaces to so many columns."""
    return text + " " * (columns - width_of(text))


def right(text: str, columns: int) -> str:
    return " " * (columns - width_of(text)) + text


def table(rows: Iterable[Sequence[str]], *, gap: int = 2) -> Iterator[str]:
    """Lines with the cells of each column below each other, the last one as long as it is."""
    lines = [tuple(row) for row in rows]
    if not lines:
        return
    widths = [max(width_of(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        yield (" " * gap).join(left(cell, columns) for cell, columns in zip(line, widths, strict=True)).rstrip()
