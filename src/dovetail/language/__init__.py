"""Texts in the reader's language: `message("no command {name}", name=name)`.

English is the source, and the key of the catalogue; `locales/ko` has the Korean. A text is translated where it is
made, because only there are the template and its facts still apart. API fields, reason codes, object names, log lines,
metrics and events stay English, as Kubernetes users expect: controllers run under `english()`.

    message("NodePool {pool} has no limit", pool="default")     NodePool default has no limit
                                                                 NodePool default에는 제한이 없습니다
    plural("{n} pod waits", "{n} pods wait", n=3)

In a Korean text a particle follows the sound of the fact before it: `{pool:을}` is `default를` or `spot을`
(`dovetail.language.korean`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dovetail.language.catalogue import Catalogue

LANGUAGES = ("en", "ko")
#: Where gettext finds `ko/LC_MESSAGES/dovetail.mo`; `scripts/build_messages.py` writes it from the `.po` beside it.
LOCALES = Path(__file__).parent / "locales"
DOMAIN = "dovetail"
#: Click's own sentences by themselves: it reads its catalogue whole.
CLICK_DOMAIN = "click"

_language: ContextVar[str] = ContextVar("language", default="en")
_catalogues: dict[str, Catalogue] = {}


def message(template: str, /, **facts: object) -> str:
    """The text with its facts filled in, in the reader's language."""
    language = _language.get()
    if language == "en":
        return template.format_map(facts) if facts else _unescaped(template)
    return _format(language, _catalogue(language).gettext(template), facts)


def plural(singular: str, plural: str, /, *, n: int, **facts: object) -> str:
    """The text for `n` things; `{n}` is a fact of it."""
    facts["n"] = n
    language = _language.get()
    if language == "en":
        return (singular if n == 1 else plural).format_map(facts)
    return _format(language, _catalogue(language).ngettext(singular, plural, n), facts)


def _unescaped(template: str) -> str:
    return template.format_map({}) if "{" in template or "}" in template else template


def _format(language: str, template: str, facts: Mapping[str, object]) -> str:
    from dovetail.language.korean import FORMATTER  # a reader of English never pays for it

    assert language == "ko"
    return FORMATTER.vformat(template, (), facts)


def _catalogue(language: str) -> Catalogue:
    catalogue = _catalogues.get(language)
    if catalogue is None:
        from dovetail.language.catalogue import Catalogue  # a reader of English never pays for it

        catalogue = Catalogue.of_file(LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.mo")
        _catalogues[language] = catalogue
    return catalogue


def translated(text: str) -> str:
    """A text without facts that is kept in a table or a help page: braces in it stay as they are."""
    language = _language.get()
    return text if language == "en" or not text else _catalogue(language).gettext(text)


def source(text: str) -> str:
    """Marks a template that is kept in a table, for the catalogue; `message` translates it where it is filled in."""
    return text


def current() -> str:
    return _language.get()


def use(language: str) -> None:
    """Speaks this language from here on, in this context and the tasks that it starts."""
    _language.set(language)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


def english() -> AbstractContextManager[None]:
    """Controllers, and whatever else writes events, logs and status, speak English whatever the reader speaks."""
    return speaking("en")


def data_in_english(output: str) -> AbstractContextManager[None]:
    """Inside, texts are English where `output` is a format that programs read: JSON is never translated."""
    return english() if output == "json" else nullcontext()


def choose(option: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The language asked for: the option, else DOVETAIL_LANG, LC_ALL, LC_MESSAGES, LANG; English where none is ours.

    An output that cannot show Korean (a Latin-1 terminal) gets English, not question marks.
    """
    wanted = option or next((value for name in _VARIABLES if (value := environ.get(name))), "")
    language = wanted.split(".")[0].split("_")[0].split("@")[0].lower()
    return language if language in LANGUAGES and (language == "en" or _shows_korean()) else "en"


_VARIABLES = ("DOVETAIL_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


def _shows_korean() -> bool:
    try:
        "한".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
