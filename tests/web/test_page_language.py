"""The page speaks the reader's language; its texts are in the catalogue of all commands."""

from __future__ import annotations

from dovetail.web.page_language import chosen, page_language


def test_the_language_is_that_of_the_link_then_of_the_command_then_of_the_browser() -> None:
    assert chosen("ko", "en", None) == "ko"
    assert chosen(None, "en", "ko") == "ko"
    assert chosen(None, "fr, ko-KR;q=0.8, en;q=0.5", None) == "ko"
    assert chosen("xx", "fr;q=broken", None) == "en"


def test_a_text_without_translation_is_shown_as_it_is() -> None:
    assert page_language("en")("{count} more", count=3) == "3 more"
    assert page_language("ko")("{count} more", count=3) == "3개 더"
    assert page_language("ko")("never seen") == "never seen"
    assert page_language("ko")("a {brace} without facts") == "a {brace} without facts"


def test_two_languages_are_spoken_at_the_same_time() -> None:
    english, korean = page_language("en"), page_language("ko")
    assert [english("Pending"), korean("Pending"), english("Pending")] == ["Pending", "대기", "Pending"]
