"""The catalogue uses the terms of docs/glossary.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dovetail.language import LOCALES
from dovetail.language.catalogue import MessageCatalogue

ROOT = Path(__file__).parents[2]
#: Kinds, fields, flags and quoted values, in which a word is no term.
_CODE = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\{[^}]*\}|\S*[./=_@:$-]\S*|--\S+|\b[A-Z]\w*")


def terms() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "English":
            yield cells[0], cells[1], tuple(filter(None, cells[3].split(", ")))


def entries() -> list[tuple[str, str]]:
    return list(MessageCatalogue.of_file(LOCALES / "ko" / "LC_MESSAGES" / "dovetail.mo").entries())


def test_no_text_uses_a_term_that_the_glossary_rejects() -> None:
    rejected = [(korean, words) for _, korean, words in terms() if words]
    assert len(rejected) > 10
    found = [
        f"{text!r}: write {korean}, not {word}"
        for _, text in entries()
        for korean, words in rejected
        for word in words
        if word in text
    ]
    assert found == []


def test_a_term_is_translated_as_the_glossary_says() -> None:
    """Now and then a sentence does without the word; a term that is mostly another word is not the glossary's."""
    plain = [(_CODE.sub(" ", english).lower(), korean) for english, korean in entries()]
    wrong = []
    for english, korean, _ in terms():
        if not english.islower() or "-" in english:
            continue
        word = re.compile(rf"\b{english}s?\b")
        using = [text for source, text in plain if word.search(source)]
        assert using, english
        share = sum(korean in text for text in using) / len(using)
        if share < 0.5:
            wrong.append(f"{english}: {korean} in {share:.0%} of {len(using)}")
    assert wrong == []
