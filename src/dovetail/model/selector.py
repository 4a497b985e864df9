"""Selectors: which objects are meant, by label or by field.

Three spellings of one idea: the LabelSelector of manifests, the `labelSelector=` text of requests, and the
`fieldSelector=` text of requests. A missing LabelSelector selects nothing, an empty one everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from dovetail.model.meta import View

Labels = Mapping[str, str]


class LabelSelectorRequirement(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the expression holds; an unreadable one never holds."""
        test = _TESTS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)


class LabelSelector(View, frozen=True, kw_only=True):
    """The selector of a manifest: every label and every expression must hold."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def matches(self, labels: Labels) -> bool:
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(match_expression.matches(labels) for match_expression in self.match_expressions)

    @property
    def empty(self) -> bool:
        """Selects everything."""
        return not self.match_labels and not self.match_expressions

    def text(self) -> str:
        """The selector in the words of a request, keys in order."""
        parts = [(key, f"{key}={value}") for key, value in self.match_labels.items()]
        parts += [
            (match_expression.key, _expression_text(match_expression)) for match_expression in self.match_expressions
        ]
        return ",".join(text for _, text in sorted(parts))


def matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether the labels are selected; no selector selects nothing."""
    return selector is not None and selector.matches(labels)


def _expression_text(expression: LabelSelectorRequirement) -> str:
    if expression.operator == "Exists":
        return expression.key
    if expression.operator == "DoesNotExist":
        return f"!{expression.key}"
    word = "in" if expression.operator == "In" else "notin"
    return f"{expression.key} {word} ({','.join(sorted(expression.values))})"


_TESTS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
    "Gt": lambda value, values: _integers(value, values, lambda mine, bound: mine > bound),
    "Lt": lambda value, values: _integers(value, values, lambda mine, bound: mine < bound),
}


def _integers(value: str | None, values: Sequence[str], test: Callable[[int, int], bool]) -> bool:
    if value is None or len(values) != 1:
        return False
    mine, bound = integer(value), integer(values[0])
    return mine is not None and bound is not None and test(mine, bound)


_INTEGER = re.compile(r"[+-]?[0-9]+")


def integer(text: str) -> int | None:
    """The 64-bit integer a text spells, as Go reads it, or None."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


class SelectorError(ValueError):
    """The text of a selector cannot be read."""


class LabelQuery(msgspec.Struct, frozen=True):
    """A parsed `labelSelector=` text."""

    requirements: tuple[LabelSelectorRequirement, ...]

    def matches(self, labels: Labels) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


class NameValidators(NamedTuple):
    """What an API server has against names and values that the grammar lets pass; each raises SelectorError."""

    key: Callable[[str], None] = lambda key: None
    values: Callable[[str, str, Sequence[str]], None] = lambda key, operator, values: None


_LENIENT = NameValidators()
_TOKEN = re.compile(r"\s*(==|!=|[=<>!(),]|[^\s=!<>(),]+)")
_PUNCTUATION = frozenset({"=", "==", "!=", "(", ")", ",", "<", ">", "!"})
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}


@lru_cache(maxsize=4096)
def parse_labels(text: str, judge: NameValidators = _LENIENT) -> LabelQuery:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`. A mistake is named in the server's words."""
    reader = _Reader(text)
    requirements: list[LabelSelectorRequirement] = []
    while reader.peek():
        if not reader.starts():
            raise SelectorError(f"found '{reader.peek()}', expected: !, identifier, or 'end of string'")
        try:
            requirements.append(_requirement(reader, judge))
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from error
        separator = reader.take()
        if separator not in ("", ","):
            raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
        if separator and not reader.starts():
            raise SelectorError(f"found '{reader.peek()}', expected: identifier after ','")
    return LabelQuery(tuple(requirements))


class _Reader:
    """The words of a selector, one after the other; the empty word is the end."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def starts(self) -> bool:
        """Whether a requirement can begin here."""
        return _identifier(self.peek()) or self.peek() == "!"


def _identifier(token: str) -> bool:
    return bool(token) and token not in _PUNCTUATION


def _requirement(reader: _Reader, judge: NameValidators) -> LabelSelectorRequirement:
    key = reader.take()
    absent = key == "!"
    if absent:
        key = reader.take()
    if not _identifier(key):
        raise SelectorError(f"found '{key}', expected: identifier")
    judge.key(key)
    if absent or reader.peek() in ("", ","):
        return LabelSelectorRequirement(key=key, operator="DoesNotExist" if absent else "Exists")
    word = reader.take()
    if word not in _OPERATORS:
        raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
    values = tuple(sorted(set(_set(reader)))) if word in ("in", "notin") else (_single(reader),)
    judge.values(key, _OPERATORS[word], values)
    return LabelSelectorRequirement(key=key, operator=_OPERATORS[word], values=values)


def _single(reader: _Reader) -> str:
    if reader.peek() in ("", ","):
        return ""
    value = reader.take()
    if not _identifier(value):
        raise SelectorError(f"found '{value}', expected: identifier")
    return value


def _set(reader: _Reader) -> list[str]:
    opening = reader.take()
    if opening != "(":
        raise SelectorError(f"found '{opening}' expected: '('")
    first = reader.peek()
    if first == ")":
        reader.take()
        return [""]
    if not _identifier(first) and first != ",":
        raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
    values: list[str] = []
    while True:
        token, following = reader.take(), reader.peek()
        if _identifier(token):
            values.append(token)
            if following not in (",", ")"):
                raise SelectorError(f"found '{following}', expected: ',' or ')'")
        elif token == ",":
            if not values or following in (",", ")"):
                values.append("")
        else:
            raise SelectorError(f"found '{token}', expected: ',', or identifier")
        if following == ")":
            reader.take()
            return values


class FieldTerm(msgspec.Struct, frozen=True):
    path: str
    equal: bool
    value: str


@lru_cache(maxsize=4096)
def parse_fields(text: str) -> tuple[FieldTerm, ...]:
    """Read a field selector: `spec.nodeName=n1,status.phase!=Running`; a backslash escapes `,`, `=` and itself."""
    return tuple(_field_term(part) for part in _split_fields(text) if part)


def _split_fields(text: str) -> list[str]:
    parts, start, escaped = [], 0, False
    for index, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ",":
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _field_term(part: str) -> FieldTerm:
    for index in range(len(part)):
        rest = part[index:]
        for operator in ("!=", "==", "="):
            if rest.startswith(operator):
                return FieldTerm(part[:index], operator != "!=", _unescape(rest[len(operator) :]))
    raise SelectorError(f"invalid selector: '{part}'; can't understand '{part}'")


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", text)
