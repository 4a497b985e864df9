"""Selectors: which objects are meant, by label or by field.

Three spellings of one idea: the LabelSelector of manifests, the `labelSelector=` text of requests, and the
`fieldSelector=` text of requests. A missing LabelSelector selects nothing, an empty one everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import msgspec

from dovetail.model.meta import View

Labels = Mapping[str, str]


class LabelSelectorRequirement(View, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Whether the expression holds; one that nobody can read holds for nobody."""
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
        return all(each.matches(labels) for each in self.match_expressions)

    @property
    def empty(self) -> bool:
        """Selects everything."""
        return not self.match_labels and not self.match_expressions

    def text(self) -> str:
        """The selector in the words of a request, keys in order."""
        parts = [(key, f"{key}={value}") for key, value in self.match_labels.items()]
        parts += [(each.key, _expression_text(each)) for each in self.match_expressions]
        return ",".join(text for _, text in sorted(parts))


def matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether the labels are selected; no selector selects nothing."""
    return selector is not None and selector.matches(labels)


def _expression_text(each: LabelSelectorRequirement) -> str:
    if each.operator == "Exists":
        return each.key
    if each.operator == "DoesNotExist":
        return f"!{each.key}"
    word = "in" if each.operator == "In" else "notin"
    return f"{each.key} {word} ({','.join(sorted(each.values))})"


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
        return all(each.matches(labels) for each in self.requirements)


_TOKEN = re.compile(r"\s*(==|!=|[=<>!(),]|[^\s=!<>(),]+)")


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            break
        tokens.append(found[1])
        at = found.end()
    return tokens


@lru_cache(maxsize=4096)
def parse_labels(text: str) -> LabelQuery:
    """Read a label selector: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>3`."""
    tokens = _tokens(text)
    requirements: list[LabelSelectorRequirement] = []
    at = 0
    while at < len(tokens):
        requirement, at = _requirement(tokens, at)
        requirements.append(requirement)
        if at < len(tokens):
            if tokens[at] != ",":
                raise SelectorError(f"found '{tokens[at]}', expected: ',' or 'end of string'")
            at += 1
            if at == len(tokens):
                raise SelectorError("found '', expected: identifier after ','")
    return LabelQuery(tuple(requirements))


_PUNCTUATION = frozenset({"=", "==", "!=", "(", ")", ",", "<", ">", "!"})
_OPERATORS = {"=": "In", "==": "In", "!=": "NotIn", "in": "In", "notin": "NotIn", ">": "Gt", "<": "Lt"}


def _requirement(tokens: list[str], at: int) -> tuple[LabelSelectorRequirement, int]:
    absent = tokens[at] == "!"
    at += absent
    key = tokens[at] if at < len(tokens) else ""
    if not key or key in _PUNCTUATION:
        raise SelectorError(f"found '{key}', expected: identifier")
    at += 1
    word = tokens[at] if at < len(tokens) else ","
    if absent or word == ",":
        return LabelSelectorRequirement(key=key, operator="DoesNotExist" if absent else "Exists"), at
    if word not in _OPERATORS:
        raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
    values, at = _set(tokens, at + 1) if word in ("in", "notin") else _single(tokens, at + 1)
    return LabelSelectorRequirement(key=key, operator=_OPERATORS[word], values=values), at


def _single(tokens: list[str], at: int) -> tuple[tuple[str, ...], int]:
    if at == len(tokens) or tokens[at] == ",":
        return ("",), at
    if tokens[at] in _PUNCTUATION:
        raise SelectorError(f"found '{tokens[at]}', expected: identifier")
    return (tokens[at],), at + 1


def _set(tokens: list[str], at: int) -> tuple[tuple[str, ...], int]:
    if at == len(tokens) or tokens[at] != "(":
        raise SelectorError(f"found '{tokens[at] if at < len(tokens) else ''}', expected: '('")
    at += 1
    values: list[str] = []
    expect_value = True
    while at < len(tokens) and tokens[at] != ")":
        if tokens[at] == ",":
            if expect_value:
                values.append("")
            expect_value = True
        else:
            values.append(tokens[at])
            expect_value = False
        at += 1
    if at == len(tokens):
        raise SelectorError("found '', expected: ',' or ')'")
    if expect_value:
        values.append("")
    return tuple(sorted(set(values))), at + 1


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
    for at, char in enumerate(text):
        if escaped:
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == ",":
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _field_term(part: str) -> FieldTerm:
    for at in range(len(part)):
        rest = part[at:]
        for operator in ("!=", "==", "="):
            if rest.startswith(operator):
                return FieldTerm(part[:at], operator != "!=", _unescape(rest[len(operator) :]))
    raise SelectorError(f"invalid selector: '{part}'; can't understand '{part}'")


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\,=])", r"\1", text)
