"""Translations of the page. The catalogues are gettext's (`locale/*.po`), read as they are: no build step."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from importlib import resources

from dovetail.language import speaking
from dovetail.language.recognition import recognized

#: Languages of the page, by their code; the first is that of the messages themselves.
LANGUAGES: Mapping[str, str] = {"en": "English", "ko": "한국어"}


#: A count of things in a recorded sentence: `5 pod(s)`.
_COUNTED = re.compile(r"\b(\d+) (\w+)\(s\)( are)?")


def _plural(match: re.Match[str]) -> str:
    count, noun, verb = match.groups()
    single = count == "1"
    return f"{count} {noun}{'' if single else 's'}{'' if verb is None else ' is' if single else ' are'}"


class Catalogue:
    """Texts in one language. A text that has no translation is shown in English."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._texts = _read(language)

    def __call__(self, message: str, /, **values: object) -> str:
        translated = self._texts.get(message) or message
        return translated.format(**values) if values else translated

    def recorded(self, text: str) -> str:
        """A sentence of the view or of the decision history, which are English, in this language where it is ours."""
        with speaking(self.language):
            shown = recognized(text)
        return _COUNTED.sub(_plural, shown) if self.language == "en" else shown


@functools.cache
def catalogue(language: str) -> Catalogue:
    return Catalogue(language)


def chosen(asked: str | None, accepted: str, default: str | None) -> str:
    """The language of `?lang=`, else of the command's `--lang`, else of Accept-Language, else English."""
    for code in (asked, default, *preferences(accepted)):
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


@functools.cache
def _read(language: str) -> Mapping[str, str]:
    file = resources.files("dovetail.web") / "locale" / f"{language}.po"
    return parse(file.read_text(encoding="utf-8")) if file.is_file() else {}


def parse(text: str) -> dict[str, str]:
    """The messages of a catalogue; those without a translation are left out."""
    texts: dict[str, str] = {}
    parts: dict[str, str] = {}
    field = ""
    for line in (*text.splitlines(), ""):
        if line.startswith("#"):
            continue
        keyword, _, rest = line.partition(" ")
        if keyword in ("msgid", "msgstr"):
            field, parts[keyword] = keyword, ast.literal_eval(rest)
        elif line.startswith('"') and field:
            parts[field] += ast.literal_eval(line)
        elif not line:
            if parts.get("msgid") and parts.get("msgstr"):
                texts[parts["msgid"]] = parts["msgstr"]
            parts, field = {}, ""
    return texts
