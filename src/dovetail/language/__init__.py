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
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from dovetail.language.reader import (
    CLICK_DOMAIN,
    DOMAIN,
    LANGUAGES,
    LOCALES,
    catalogue_of,
    current,
    in_language,
    source,
    translated,
    use,
)

__all__ = [
    "CLICK_DOMAIN",
    "DOMAIN",
    "LANGUAGES",
    "LOCALES",
    "choose",
    "current",
    "data_in_english",
    "english",
    "in_language",
    "message",
    "plural",
    "source",
    "translated",
    "use",
]


def message(template: str, /, **facts: object) -> str:
    """The text with its facts filled in, in the reader's language."""
    language = current()
    if language == "en":
        return template.format_map(facts) if facts else _unescaped(template)
    return _format(language, catalogue_of(language).gettext(template), facts)


def plural(singular: str, plural: str, /, *, n: int, **facts: object) -> str:
    """The text for `n` things; `{n}` is a fact of it."""
    facts["n"] = n
    language = current()
    if language == "en":
        return (singular if n == 1 else plural).format_map(facts)
    return _format(language, catalogue_of(language).ngettext(singular, plural, n), facts)


def _unescaped(template: str) -> str:
    return template.format_map({}) if "{" in template or "}" in template else template


def _format(language: str, template: str, facts: Mapping[str, object]) -> str:
    from dovetail.language.exceptions import words_of  # a reader of English never pays for these
    from dovetail.language.korean import FORMATTER

    assert language == "ko"
    spoken = {name: words_of(fact) if isinstance(fact, BaseException) else fact for name, fact in facts.items()}
    return FORMATTER.vformat(template, (), spoken)


def english() -> AbstractContextManager[None]:
    """Controllers, and whatever else writes events, logs and status, speak English whatever the reader speaks."""
    return in_language("en")


def data_in_english(output: str) -> AbstractContextManager[None]:
    """Inside, texts are English where `output` is a format that programs read: JSON is never translated."""
    return english() if output == "json" else nullcontext()


def choose(option: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The language asked for: the option, else DOVETAIL_LANG, LC_ALL, LC_MESSAGES, LANG; English where none is ours.

    An option that is no language of ours is refused in the language of the environment. An output that cannot show
    Korean (a Latin-1 terminal) gets English, not question marks.
    """
    environment = next((value for name in _VARIABLES if (value := environ.get(name))), "")
    choice = option if option in LANGUAGES else environment
    language = choice.split(".")[0].split("_")[0].split("@")[0].lower()
    return language if language in LANGUAGES and (language == "en" or _shows_korean()) else "en"


_VARIABLES = ("DOVETAIL_LANG", "LC_ALL", "LC_MESSAGES", "LANG")


def _shows_korean() -> bool:
    try:
        "한".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
