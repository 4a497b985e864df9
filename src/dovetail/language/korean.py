"""Korean texts: the particle after a fact depends on whether its last sound is a consonant.

`{pool:을}` writes the fact and 을 or 를; `{pool:-을}` the particle alone, for a fact in quotation marks:
`"{pool}"{pool:-을}`. A number format stands before a bar: `{price:.4f|을}`. Where the reading of a word is not
certain, both are written, as Korean documents do: `batch을(를)`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

#: Particle after a consonant → after a vowel.
PARTICLES = {
    "을": "를",
    "이": "가",
    "은": "는",
    "과": "와",
    "으로": "로",
    "이라": "라",
    "이나": "나",
    "이며": "며",
}
#: The last consonant of a syllable by its place in Unicode's table; 8 is ㄹ, after which 으로 becomes 로.
_RIEUL = 8
#: How digits end when read: 영 일 이 삼 사 오 육 칠 팔 구. Tens, hundreds and thousands end in a consonant too.
_DIGITS = {"0": 1, "1": _RIEUL, "2": 0, "3": 1, "4": 0, "5": 0, "6": 1, "7": _RIEUL, "8": _RIEUL, "9": 0}
#: Names of letters that end in a consonant: 엘, 엠, 엔, 알.
_LETTERS = {"L": _RIEUL, "M": 1, "N": 1, "R": _RIEUL}
#: Words of the field whose reading the letters do not tell: 파드, 디폴트, 스팟, 웹, 디스크 …
_WORDS = {
    "pod": 0, "node": 0, "default": 0, "spot": 1, "web": 1, "disk": 0, "batch": 0, "type": 1, "zone": 1,
    "namespace": 0, "service": 0, "instance": 0, "resource": 0, "volume": 1, "size": 0, "name": 1, "role": _RIEUL,
    "profile": _RIEUL, "file": _RIEUL, "rule": _RIEUL, "role-arn": 1, "state": 0, "template": 1, "cluster": 0,
    "nodepool": _RIEUL, "nodeclaim": 1, "nodeclass": 0, "ec2nodeclass": 0, "daemonset": 1, "statefulset": 1,
    "replicaset": 1, "deployment": 0, "job": 1, "secret": 1, "subnet": 1, "budget": 1, "taint": 0, "label": _RIEUL,
    "limit": 1, "webhook": 1, "event": 0, "lease": 0, "queue": 0, "key": 0, "fleet": 1, "group": 1, "request": 0,
}  # fmt: skip


class _Written(str):
    """A count with separators, which a number's own format in the template replaces."""

    number: int

    def __new__(cls, text: str, number: int) -> _Written:
        written = super().__new__(cls, text)
        written.number = number
        return written

    def __format__(self, spec: str) -> str:
        return str(self) if not spec or spec == "s" else format(self.number, spec)


#: Facts that are moments, and facts that are counts, by their names: a port or a process id has no separators.
MOMENTS = frozenset(("end", "last", "since", "stamp", "start", "started", "time", "until", "when"))
COUNTS = frozenset(("count", "n", "total"))
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|\+00:00)")
_LONG_COUNT = re.compile(r"[1-9]\d{3,}")


def moment(text: str) -> str:
    """A moment as Korean readers write it: `2026-01-05T12:34:00Z` is 2026년 1월 5일 12:34:00 UTC."""
    match = _MOMENT.fullmatch(text)
    return f"{match[1]}년 {int(match[2])}월 {int(match[3])}일 {match[4]} UTC" if match is not None else text


def count(text: str) -> str:
    return f"{int(text):,}" if _LONG_COUNT.fullmatch(text) else text


class _Formatter(string.Formatter):
    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Numbers and moments by the locale, here alone: JSON, logs and ids are never formatted by it."""
        fact, key = super().get_field(field_name, args, kwargs)
        if field_name in MOMENTS and isinstance(fact, str):
            return type(fact)(moment(fact)), key
        if field_name in COUNTS and isinstance(fact, int | str) and not isinstance(fact, bool):
            written = count(str(fact))
            return (type(fact)(written) if isinstance(fact, str) else _Written(written, fact)), key
        return fact, key

    def format_field(self, value: Any, format_spec: str) -> str:
        number, bar, particle = format_spec.rpartition("|")
        if not bar and not _is_particle(particle):
            return format(value, format_spec)
        shown = format(value, number)
        return _after(shown, particle[1:]) if particle.startswith("-") else shown + _after(shown, particle)


FORMATTER = _Formatter()


def has_particle(spec: str) -> bool:
    """Whether the format of a fact adds a particle to it; one after quotation marks is no part of it."""
    particle = spec.rpartition("|")[2]
    return _is_particle(particle) and not particle.startswith("-")


def _is_particle(spec: str) -> bool:
    return spec.removeprefix("-") in PARTICLES


def _after(text: str, particle: str) -> str:
    """The form of the particle that follows this text."""
    ending = last_sound(text)
    vowel_form = PARTICLES[particle]
    if ending is None:
        return particle if particle == vowel_form else _both(particle, vowel_form)
    if particle == "으로":
        return "로" if ending in (0, _RIEUL) else "으로"
    return particle if ending else vowel_form


def _both(consonant_form: str, vowel_form: str) -> str:
    """을(를), 이(가), (으)로, (이)라."""
    if consonant_form.endswith(vowel_form):
        return f"({consonant_form.removesuffix(vowel_form)}){vowel_form}"
    return f"{consonant_form}({vowel_form})"


def last_sound(text: str) -> int | None:
    """0 for a vowel, another number for a consonant, None where the reading is not certain."""
    spoken = text.rstrip()
    if spoken.endswith("%"):
        return 0  # 퍼센트
    while spoken and not spoken[-1].isalnum():
        spoken = spoken[:-1]
    if not spoken:
        return None
    last = spoken[-1]
    if "가" <= last <= "힣":
        return (ord(last) - ord("가")) % 28
    if last in _DIGITS:
        return _DIGITS[last]
    word = _last_word(spoken)
    if (ending := _WORDS.get(word.lower())) is not None:
        return ending
    if word.isupper():
        return _LETTERS.get(last, 0)
    return _by_spelling(word.lower())


def _last_word(text: str) -> str:
    start = len(text)
    while start and text[start - 1].isascii() and text[start - 1].isalpha():
        start -= 1
    return text[start:]


def _by_spelling(word: str) -> int | None:
    if not word:
        return None
    if word.endswith(("a", "i", "o", "u", "y", "w", "er", "or", "ar", "ee", "ss", "s")):
        return 0
    if word.endswith("l"):
        return _RIEUL
    if word.endswith(("m", "n", "ng")):
        return 1
    return None
