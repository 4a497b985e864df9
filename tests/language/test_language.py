"""Which language is spoken, and to whom."""

from __future__ import annotations

import asyncio
import gettext
import io
from collections.abc import Iterator

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from dovetail import language
from dovetail.language import choose, english, in_language, message, plural, reader
from dovetail.language.catalogue import MessageCatalogue


@pytest.fixture
def korean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    catalogue = Catalog(locale="ko")
    catalogue.add("NodePool {pool} has no limit", "NodePool {pool}에는 제한이 없습니다")
    catalogue.add(("{n} pod waits for {pool}", "{n} pods wait for {pool}"), ("파드 {n}개가 {pool:을} 기다립니다",))
    encoded = io.BytesIO()
    write_mo(encoded, catalogue)
    monkeypatch.setitem(reader._catalogues, "ko", MessageCatalogue(encoded.getvalue()))
    with in_language("ko"):
        yield


def test_english_is_the_source() -> None:
    assert message("NodePool {pool} has no limit", pool="default") == "NodePool default has no limit"
    assert message("a literal {{brace}}") == "a literal {brace}"
    assert [plural("{n} pod", "{n} pods", n=n) for n in (0, 1, 2)] == ["0 pods", "1 pod", "2 pods"]


def test_korean_comes_from_the_catalogue(korean: None) -> None:
    assert message("NodePool {pool} has no limit", pool="spot") == "NodePool spot에는 제한이 없습니다"
    assert (
        plural("{n} pod waits for {pool}", "{n} pods wait for {pool}", n=3, pool="노드")
        == "파드 3개가 노드를 기다립니다"
    )


def test_a_text_without_a_translation_stays_english(korean: None) -> None:
    assert message("no command {name}", name="fly") == "no command fly"


def test_what_controllers_write_stays_english(korean: None) -> None:
    async def controller() -> str:
        with english():
            await asyncio.sleep(0)
            return message("NodePool {pool} has no limit", pool="spot")

    async def both() -> tuple[str, str]:
        written = asyncio.create_task(controller())
        shown = message("NodePool {pool} has no limit", pool="spot")
        return await written, shown

    assert asyncio.run(both()) == ("NodePool spot has no limit", "NodePool spot에는 제한이 없습니다")


@pytest.mark.parametrize(
    ("option", "environment", "chosen"),
    [
        ("ko", {"LANG": "en_US.UTF-8"}, "ko"),
        (None, {"DOVETAIL_LANG": "ko", "LC_ALL": "C"}, "ko"),
        (None, {"LC_ALL": "ko_KR.UTF-8", "LANG": "C"}, "ko"),
        (None, {"LC_ALL": "C", "LANG": "ko_KR.UTF-8"}, "en"),
        (None, {"LC_ALL": "", "LANG": "ko_KR.UTF-8"}, "ko"),
        (None, {"LANG": "fr_FR.UTF-8"}, "en"),
        (None, {}, "en"),
    ],
)
def test_option_then_own_variable_then_locale(option: str | None, environment: dict[str, str], chosen: str) -> None:
    assert choose(option, environment) == chosen


def test_an_output_that_cannot_show_korean_gets_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert choose("ko", {}) == "en"


def test_the_catalogue_agrees_with_the_standard_library() -> None:
    path = language.LOCALES / "ko" / "LC_MESSAGES" / "dovetail.mo"
    ours = MessageCatalogue.of_file(path)
    with path.open("rb") as file:
        theirs = gettext.GNUTranslations(file)
    entries = list(ours.entries())
    assert len(entries) > 2000
    for english_text, _ in entries:
        assert ours.gettext(english_text) == (
            theirs.gettext(english_text)
            if theirs.gettext(english_text) != english_text
            else theirs.ngettext(english_text, "", 1) or english_text
        )
    assert ours.gettext("not in it") == "not in it"
    assert [ours.ngettext("{n} cat", "{n} cats", n) for n in (1, 2)] == ["{n} cat", "{n} cats"]
