"""Texts of the reference in two languages, and tables of Markdown.

Texts that the program prints are translated by its catalogue; those of the kinds, charts, metrics and formats, which stay
English in a cluster, by `korean.yaml` beside this module. A text without Korean is collected, and the build fails.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from dovetail import language

KOREAN = Path(__file__).with_name("korean.yaml")


class Words:
    """Says texts in one language; `missing` are those without Korean."""

    def __init__(self, chosen: str) -> None:
        self.language = chosen
        self.korean: dict[str, str] = yaml.safe_load(KOREAN.read_text()) if KOREAN.exists() else {}
        self.missing: dict[str, None] = {}

    def __call__(self, text: str) -> str:
        """A text of the code in the page's language."""
        if self.language == "en" or not re.search(r"[A-Za-z]{2}", re.sub(r"`[^`]*`", "", text)):
            return text
        if text in self.korean:
            return self.korean[text]
        with language.in_language("ko"):
            translated = language.translated(text)
        if translated == text:
            self.missing[text] = None
        return translated

    def either(self, english: str, korean: str) -> str:
        """A text of the page itself."""
        return english if self.language == "en" else korean


def cell(text: object) -> str:
    """A text as it stands in a table: on one line, its bars escaped."""
    return re.sub(r"\s*\n\s*", " ", str(text)).replace("|", "\\|").strip()


def code(text: object) -> str:
    """A value in the type of code; nothing where there is none."""
    shown = str(text)
    marks = "``" if "`" in shown else "`"
    inner = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
    return f"{marks}{inner}{marks}" if shown else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; empty where there are no rows."""
    lines = [" | ".join(cell(value) for value in row) for row in rows]
    if not lines:
        return ""
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return head + "".join(f"| {line} |\n" for line in lines)


def page(*parts: str) -> str:
    """The parts of a page, a blank line apart."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"
