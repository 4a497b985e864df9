"""Headings and code blocks of a Markdown page, as the site, its hooks and its tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown.extensions.toc import slugify, unique

_HEADING = re.compile(r"(#{1,6}) +(.+?)\s*$")
_FENCE = re.compile(r"(?P<indent> *)(?P<ticks>`{3,}) *(?P<info>[^`\n]*?)\s*$")


class Line(NamedTuple):
    number: int
    text: str
    in_code: bool


class Block(NamedTuple):
    """A fenced code block: the first word of its info string, the rest of it, and the lines between the fences."""

    line: int
    language: str
    options: str
    text: str


def lines(page: str) -> Iterator[Line]:
    """The lines of a page; those of code blocks, with their fences, are marked."""
    fence = ""
    for number, text in enumerate(page.splitlines(), 1):
        mark = _FENCE.match(text)
        if not fence and mark:
            fence = mark["ticks"]
            yield Line(number, text, True)
        elif fence and mark and mark["ticks"] == fence and not mark["info"]:
            fence = ""
            yield Line(number, text, True)
        else:
            yield Line(number, text, bool(fence))


def headings(page: str) -> list[tuple[int, str]]:
    """Level and text of every heading, in order."""
    matches = (_HEADING.match(line.text) for line in lines(page) if not line.in_code)
    return [(len(match[1]), match[2]) for match in matches if match]


def anchors(page: str) -> list[str]:
    """The anchor of every heading of an English page, as the site gives them."""
    ids: set[str] = set()
    return [unique(slugify(_plain(text), "-"), ids) for _, text in headings(page)]


def _plain(text: str) -> str:
    """A heading without its marks of code, emphasis and links."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[`*]", "", text)


def with_anchors(page: str, ids: list[str]) -> str:
    """The page with these anchors on its headings, so that a link is the same in every language."""
    rest = iter(ids)
    written = []
    for line in lines(page):
        if not line.in_code and _HEADING.match(line.text):
            anchor = next(rest, None)
            written.append(f"{line.text} {{ #{anchor} }}" if anchor else line.text)
        else:
            written.append(line.text)
    return "\n".join(written) + "\n"


def blocks(page: str) -> list[Block]:
    """Every fenced code block."""
    result: list[Block] = []
    start: Line | None = None
    body: list[str] = []
    for line in lines(page):
        if line.in_code and start is None:
            start, body = line, []
        elif start is not None and line.in_code and _closes(line.text, start.text):
            result.append(_block(start, body))
            start = None
        elif start is not None:
            body.append(line.text)
    return result


def _closes(text: str, opening: str) -> bool:
    mark, first = _FENCE.match(text), _FENCE.match(opening)
    return bool(mark and first and mark["ticks"] == first["ticks"] and not mark["info"])


def _block(start: Line, body: list[str]) -> Block:
    mark = _FENCE.match(start.text)
    info = mark["info"] if mark else ""
    indent = len(mark["indent"]) if mark else 0
    language, _, options = info.partition(" ")
    return Block(start.number, language, options.strip(), "".join(f"{text[indent:]}\n" for text in body))
