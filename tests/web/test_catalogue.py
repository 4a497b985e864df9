"""The page speaks Korean wherever it speaks: no text of the code is without a translation, and none is left over."""

from __future__ import annotations

import ast
import string
from pathlib import Path

from dovetail import web
from dovetail.web import blocks, budget_pages, fleet_page, layout, object_pages
from dovetail.web.catalogue import catalogue, chosen, parse

SOURCES = Path(web.__file__).parent
#: Texts that are translated where they are shown, and written elsewhere.
ELSEWHERE = (
    "There is no such page.",
    "The page writes nothing: it answers GET alone.",
    "open the URL that dovetail printed when it started: it has the token",
    "sign in with a Kubernetes token",
    "a request from another site is not answered",
    "not served",
    "not permitted",
)


def _written() -> set[str]:
    """Every text that the code translates."""
    found: set[str] = set(ELSEWHERE)
    for file in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "t":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant):
                    found.add(first.value)
    tables = (fleet_page.GROUP_LABELS, fleet_page.COLOUR_LABELS, fleet_page.FORM_LABELS, layout.DECISION_LABELS)
    for labels in (*tables, blocks.STATES):
        found |= set(labels.values())
    found |= set(budget_pages.WEEKDAYS)
    return found | set(object_pages.TITLES.values()) | {label for _, label in layout.PAGES}


def _catalogue() -> dict[str, str]:
    return parse((SOURCES / "locale" / "ko.po").read_text(encoding="utf-8"))


def test_every_text_is_translated_and_no_translation_is_left_over() -> None:
    written, translated = _written(), set(_catalogue())
    assert len(written) > 150
    assert written - translated == set()
    assert translated - written == set()


def test_translations_have_the_fields_of_the_text() -> None:
    def fields(text: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    wrong = {text for text, korean in _catalogue().items() if fields(text) != fields(korean)}
    assert wrong == set()


def test_the_language_is_that_of_the_link_then_of_the_command_then_of_the_browser() -> None:
    assert chosen("ko", "en", None) == "ko"
    assert chosen(None, "en", "ko") == "ko"
    assert chosen(None, "fr, ko-KR;q=0.8, en;q=0.5", None) == "ko"
    assert chosen("xx", "fr;q=broken", None) == "en"


def test_a_text_without_translation_is_shown_as_it_is() -> None:
    assert catalogue("en")("{count} more", count=3) == "3 more"
    assert catalogue("ko")("{count} more", count=3) == "3개 더"
    assert catalogue("ko")("never seen") == "never seen"


def test_a_catalogue_with_comments_and_long_lines_is_read() -> None:
    text = '# note\nmsgid ""\nmsgstr "header"\n\nmsgid "a "\n"b"\nmsgstr "가 "\n"나"\n\nmsgid "empty"\nmsgstr ""\n'
    assert parse(text) == {"a b": "가 나"}
