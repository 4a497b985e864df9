"""The reader's language, and the catalogue of its texts: what `message` and the recognition of English texts share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.language.catalogue import MessageCatalogue

LANGUAGES = ("en", "ko")
#: Where gettext finds `ko/LC_MESSAGES/dovetail.mo`; `scripts/build_messages.py` writes it from the `.po` beside it.
LOCALES = Path(__file__).parent / "locales"
DOMAIN = "dovetail"
#: Click's own sentences by themselves: it reads its catalogue whole.
CLICK_DOMAIN = "click"

_language: ContextVar[str] = ContextVar("language", default="en")
_catalogues: dict[str, MessageCatalogue] = {}


def catalogue_of(language: str) -> MessageCatalogue:
    catalogue = _catalogues.get(language)
    if catalogue is None:
        from dovetail.language.catalogue import MessageCatalogue  # a reader of English never pays for it

        catalogue = MessageCatalogue.of_file(LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.mo")
        _catalogues[language] = catalogue
    return catalogue


def translated(text: str) -> str:
    """A text without facts that is kept in a table or a help page: braces in it stay as they are."""
    language = _language.get()
    return text if language == "en" or not text else catalogue_of(language).gettext(text)


def source(text: str) -> str:
    """Marks a template that is kept in a table, for the catalogue; `message` translates it where it is filled in."""
    return text


def current() -> str:
    return _language.get()


def use(language: str) -> None:
    """Speaks this language from here on, in this context and the tasks that it starts."""
    _language.set(language)


@contextmanager
def in_language(language: str) -> Iterator[None]:
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)
