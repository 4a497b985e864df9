"""The language of a page: that of the link, the command or the browser. A server speaks both at the same time."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from dovetail.language import in_language, message, translated
from dovetail.language.recognition import recognized

#: Languages of the page, by their code; the first is that of the messages themselves.
LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어"}


#: A count of things in a recorded sentence: `5 pod(s)`.
_COUNTED = re.compile(r"\b(\d+) (\w+)\(s\)( are)?")


def _plural(match: re.Match[str]) -> str:
    count, noun, verb = match.groups()
    single = count == "1"
    return f"{count} {noun}{'' if single else 's'}{'' if verb is None else ' is' if single else ' are'}"


class PageLanguage:
    """Texts in one language. A text that has no translation is shown in English."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, text: str, /, **facts: object) -> str:
        with in_language(self.language):
            return message(text, **facts) if facts else translated(text)

    def recorded(self, text: str) -> str:
        """A sentence of the view or of the decision history, which are English, in this language where it is ours."""
        with in_language(self.language):
            shown = recognized(text)
        return _COUNTED.sub(_plural, shown) if self.language == "en" else shown


@functools.cache
def page_language(language: str) -> PageLanguage:
    return PageLanguage(language)


def chosen(language: str | None, accepted: str, default: str | None) -> str:
    """The language of `?lang=`, else of the command's `--lang`, else of Accept-Language, else English."""
    for code in (language, default, *preferences(accepted)):
        if code and code.lower().split("-")[0] in LANGUAGES:
            return code.lower().split("-")[0]
    return next(iter(LANGUAGES))


def preferences(accepted: str) -> Iterable[str]:
    """The languages of an Accept-Language header, the best first."""
    weighted = []
    for position, part in enumerate(accepted.split(",")):
        code, _, weight = part.strip().partition(";q=")
        try:
            weighted.append((-float(weight or 1), position, code.strip()))
        except ValueError:
            continue
    return [code for _, _, code in sorted(weighted)]
