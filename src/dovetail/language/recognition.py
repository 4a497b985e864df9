"""Texts that exist in English only, in the reader's language: what was recorded, and what a library says.

Decisions, conditions and events are written in English, because everyone reads them; a library's error is in English,
because it knows no other language. Both are made of templates. Where the catalogue has the template, the facts are read
out of the text again and filled into its translation:

    recognized("no subnet in ap-northeast-2a has addresses left")     ap-northeast-2a에 주소가 남은 서브넷이 없습니다

A text that no template made stays as it is. Of the templates that fit the one wins that leaves least in English; facts
are recognized in turn.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import NamedTuple

from dovetail.language.korean import FORMATTER, has_particle
from dovetail.language.reader import catalogue_of, current

#: Letters beside the facts that a template needs to be recognized by: `{name}: {why}` would fit everything.
MIN_LETTERS = 3
#: Where a text was put together from several.
_JOINTS = ("\n", "; ", ": ", ", ")
#: How a text begins that is added to the end of another.
_ADDITIONS = ("; ", ", ", " (")

#: The name of most NodePools; what help pages say of an option begins with it too.
_USUAL_NAME = "default"
#: The part of the words that a reading may leave in English; shorter texts than this consist of names for the most.
MAX_LEFT_IN_ENGLISH, MIN_WORDS_OF_ANOTHER = 0.7, 8
_WORD = re.compile(r"[A-Za-z]{2,}")
#: Words that say nothing of what a text is about.
_FUNCTION_WORDS = frozenset(("and", "at", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to", "with"))
#: Words that a name or a requirement does not have.
_SENTENCE_WORDS = frozenset(
    ("an", "are", "be", "been", "could", "has", "have", "is", "not", "the", "was", "were", "will")
)
#: An object, and why its condition is not met.
_CONDITION = re.compile(r"[A-Z]\w+ [\w.-]+: (?:[A-Z]\w+: )?")
#: What a fact named `code` may be: brackets of the text before it are no part of it.
_CODE = r"[^\s()\[\]]+"
#: A text that ends with a code of the vocabulary of reasons.
_CODED = re.compile(r"(.+) \(([A-Z]+(?:_[A-Z]+)*)\)", re.DOTALL)
#: A word that is no part of a name.
_PLAIN_WORD = re.compile(r"(?<!\S)[A-Za-z]{2,}(?=[\s.,:;)]|$)")


class _Template(NamedTuple):
    text: str
    fragment: str  # the longest text between two facts
    translation: str


class _Fact(str):
    """A fact as it stood in the text: formatted already, so that a number's format or `!r` leaves it alone."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)


def recognized(text: str) -> str:
    """The text in the reader's language, where one of our templates made it; else as it is.

    A reading that leaves nearly every word in English is none: a sentence of another program that happens to have
    the words of a short template in it. What we add to such a sentence is ours all the same.
    """
    if current() == "en":
        return text
    shown, words = _recognized(text), len(_PLAIN_WORD.findall(text))
    left = len(_PLAIN_WORD.findall(shown))
    is_of_another = words >= MIN_WORDS_OF_ANOTHER and left > MAX_LEFT_IN_ENGLISH * words
    return _with_remedy(text) if is_of_another else shown


def _with_remedy(text: str) -> str:
    """An error of AWS, which stays as it is, with the remedy and the code that we put behind it."""
    coded = _CODED.fullmatch(text)
    if coded is None:
        return text
    for joint in re.finditer("; ", coded[1]):
        said, remedy = text[: joint.start()], _fixed().get(text[joint.end() : coded.end(1)])
        if remedy is not None:
            before, added = _last_bracket(said)
            hint = _fixed().get(added)
            return f"{f'{before} ({hint})' if hint else said}; {remedy} ({coded[2]})"
    return text


@lru_cache(maxsize=4096)
def _recognized(text: str) -> str:
    if not _WORD.search(text):
        return text
    readings = (_before_code(text), _whole(text), _pieces(text), _parts(text))
    return min((shown for shown in readings if shown is not None), key=_english_words, default=text)


def _before_code(text: str) -> str | None:
    """A text in front of a code, which is no part of its last fact: that may stand anywhere in a translation."""
    coded = _CODED.fullmatch(text)
    shown = _recognized(coded[1]) if coded is not None else None
    return f"{shown} ({coded[2]})" if coded is not None and shown != coded[1] else None


def _pieces(text: str) -> str | None:
    """Several texts in a row, of which each is whole; None where one is not."""
    pieces = text.split("; ")
    shown = [_whole(piece) for piece in pieces] if len(pieces) > 1 else []
    whole = [piece for piece in shown if piece is not None]
    return "; ".join(whole) if whole and len(whole) == len(pieces) else None


def _whole(text: str) -> str | None:
    if (translation := _fixed().get(text)) is not None:
        return translation
    readings = [shown for shown in (_with_addition(text), _filled(text, _templates())) if shown is not None]
    return min(readings, key=_english_words, default=None)


def _filled(text: str, templates: Iterable[_Template]) -> str | None:
    """Of the templates that may have made it the one that leaves least in English; of equals the first."""
    readings: list[str] = []
    for template in templates:
        match = _pattern(template).fullmatch(text) if template.fragment in text else None
        if match is not None and all(map(_is_fact, match.groups())):
            recorded = match.groupdict()
            facts = {name: _Fact(_fact(fact)) for name, fact in recorded.items()}
            sentences = {name for name, fact in facts.items() if _is_sentence(fact)}
            rows = {name for name, fact in recorded.items() if _is_row(fact)}
            if sentences.isdisjoint(_followed(template.translation, "")) and rows.isdisjoint(
                _followed(template.translation, " ")
            ):
                readings.append(FORMATTER.vformat(template.translation, (), facts))
    return min(readings, key=_english_words, default=None)


def _is_sentence(fact: str) -> bool:
    """Whether a fact has words that only a sentence has, and that stay English: `the role` is no name."""
    return not _SENTENCE_WORDS.isdisjoint(_PLAIN_WORD.findall(fact))


def _is_row(fact: str) -> bool:
    """Whether a fact is several texts in a row: it is then no fact of a text that goes on behind it."""
    return any(_is_balanced(fact[: match.start()]) for match in re.finditer("; ", fact))


@cache
def _followed(translation: str, space: str) -> frozenset[str]:
    """The facts to which a translation adds a particle or an ending, or, behind a `space`, more words.

    `{name} is not {kind}` fits half of all sentences of other programs.
    """
    pieces = list(string.Formatter().parse(translation))
    following = [literal for literal, _, _, _ in pieces[1:]] + [""]
    return frozenset(
        name
        for (_, name, spec, _), literal in zip(pieces, following, strict=True)
        if name and (literal.removeprefix(space)[:1].isalpha() or has_particle(spec or ""))
    )


def _english_words(text: str) -> int:
    return len(_WORD.findall(text))


def _is_fact(text: str) -> bool:
    """Whether a fact may be this text: the colon after a name is the template's, as in `nodepool default: …`."""
    return _is_balanced(text) and not (text[-1:] in (":", ";") and text[:-1].isidentifier())


def _is_balanced(text: str) -> bool:
    """Whether every parenthesis is closed that is opened, and none before: a fact ends where it began."""
    depth = 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth < 0:
            return False
    return depth == 0


def _fact(text: str) -> str:
    """A fact may be a text itself; a single word is a name or a value."""
    return _recognized(text) if " " in text.strip() or text.startswith(_ADDITIONS) else text


def _with_addition(text: str) -> str | None:
    """A text to whose end another was added: `…; nearest m5.large`, `… (3 left)`."""
    for start in _ADDITIONS:
        place = text.rfind(start)
        before = text[:place]
        if place < 1 or not _is_balanced(before):
            continue
        added = _fixed().get(text[place:])
        if added is None:
            added = _filled(text[place:], _additions())
        if added is not None:
            return _recognized(before) + added
    return None


def _parts(text: str) -> str | None:
    """A text of several, each of them recognized; None where none is."""
    outside, inside = _last_bracket(text)
    if outside and (facts := (_fact(outside), _fact(inside))) != (outside, inside):
        return f"{facts[0]} ({facts[1]})"
    if (named := _named(text)) is not None:
        return named
    for joint in _JOINTS:
        if joint in text:
            if (halves := _halves(text, joint)) is not None:
                return halves
            parts = text.split(joint)
            shown = [_fact(part) for part in parts]
            if shown != parts:
                return joint.join(shown)
    return None


def _named(text: str) -> str | None:
    """A whole text behind the object and the reason of a condition: `EC2NodeClass web: AMINotFound: …`."""
    name = _CONDITION.match(text)
    shown = _whole(text[name.end() :]) if name is not None else None
    return name[0] + shown if name is not None and shown is not None else None


def _last_bracket(text: str) -> tuple[str, str]:
    """The text before the bracket that ends it, and what is in that bracket; empty where none does."""
    place = text.rfind(" (") if text.endswith(")") else -1
    while place > 0:
        if _is_balanced(text[place:]) and _is_balanced(text[place + 2 : -1]):
            return text[:place], text[place + 2 : -1]
        place = text.rfind(" (", 0, place)
    return "", ""


def _halves(text: str, joint: str) -> str | None:
    """Two texts, of which each is whole, although either has a joint of its own; the first may be a name."""
    place = text.find(joint)
    while place > 0:
        name = text[:place] if joint == ": " and " " not in text[:place] else None
        first = _whole(text[:place]) or name
        second = _whole(text[place + len(joint) :])
        if first and second:
            return first + joint + second
        place = text.find(joint, place + 1)
    return None


@cache
def _fixed() -> dict[str, str]:
    return {text: translation for text, translation in catalogue_of(current()).entries() if not _names(text)}


@cache
def _additions() -> tuple[_Template, ...]:
    return tuple(template for template in _templates() if template.text.startswith(_ADDITIONS))


@cache
def _templates() -> tuple[_Template, ...]:
    """Those with facts: what begins with a text before what begins with a fact, and the one with most text first."""
    templates: list[tuple[int, _Template]] = []
    for text, translation in catalogue_of(current()).entries():
        if not _names(text) or text.startswith(_USUAL_NAME) or not set(_names(translation)) <= set(_names(text)):
            continue  # a form of a plural may lack a fact that the other form's translation names
        literals = [literal for literal, _, _, _ in string.Formatter().parse(text) if literal]
        words = _WORD.findall(" ".join(literals))
        if words and all(word in _FUNCTION_WORDS for word in words):
            continue  # `{nodes} from {schedule} for {duration}` is in half of all English sentences
        letters = sum(char.isalpha() for literal in literals for char in literal)
        if letters >= MIN_LETTERS:
            templates.append((letters, _Template(text, max(literals, key=len), translation)))
    templates.sort(key=lambda entry: (entry[1].text.startswith("{"), -entry[0]))
    return tuple(template for _, template in templates)


def _names(text: str) -> list[str]:
    """The facts of a template; none of a help page or an example, in which braces are braces."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError:
        return []
    return names if all(name.isidentifier() for name in names) else []


#: Facts that are counts or moments, written without a space.
_SINGLE_WORDS = ("n", "count", "time", "stamp")
_NUMBER_FORMATS = ("%", "d", "e", "f", "g", ",")


def _single_word(name: str, spec: str | None, translation: str) -> str:
    """The pattern of a fact without spaces, by its format, its name or its counter; empty for any other."""
    if spec and not spec.startswith("%") and spec.endswith(_NUMBER_FORMATS):
        return r"-?\d\S*?"
    return r"\S+?" if name in _SINGLE_WORDS or f"{{{name}}}개" in translation else ""


@cache
def _pattern(template: _Template) -> re.Pattern[str]:
    """What the template makes. Of facts side by side the first is as long as can be: the others are additions.

    What follows a closing bracket is an addition too, which may be empty.
    """
    pattern, seen = "", set[str]()
    pieces = [(literal, name, spec) for literal, name, spec, _ in string.Formatter().parse(template.text)]
    for index, (literal, name, spec) in enumerate(pieces):
        pattern += re.escape(literal)
        if not name:
            continue
        beside = index + 1 < len(pieces) and not pieces[index + 1][0] and bool(pieces[index + 1][1])
        form = _CODE if name == "code" else _single_word(name, spec, template.translation)
        if not form and index and not literal:
            form = ".*?"
        elif not form and literal.endswith(("]", ")")):
            form = ".*"
        pattern += f"(?P={name})" if name in seen else f"(?P<{name}>{form or ('.+' if beside else '.+?')})"
        seen.add(name)
    return re.compile(pattern, re.DOTALL)
