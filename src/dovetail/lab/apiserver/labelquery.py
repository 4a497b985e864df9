"""Label selector texts: read as the real server's parser reads them, so that a mistake is named in the same words."""

from __future__ import annotations

import re

from dovetail.lab.apiserver.fielderror import invalid
from dovetail.lab.apiserver.kinds import formats

_TOKEN = re.compile(r"\s*(==|!=|[=<>!(),]|[^\s=!<>(),]+)")
_PUNCTUATION = frozenset(("=", "==", "!=", "(", ")", ",", "<", ">", "!"))
_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_KNOWN = frozenset(("in", "notin", "=", "==", "!=", ">", "<"))


class QueryError(ValueError):
    """What is wrong with the text."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                break
            self.tokens.append(match[1])
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token


def check(text: str) -> None:
    """Raise QueryError unless the text is a label selector."""
    reader = _Reader(text)
    while True:
        token = reader.peek()
        if not token:
            return
        if token in _PUNCTUATION and token != "!":
            raise QueryError(f"found '{token}', expected: !, identifier, or 'end of string'")
        try:
            _requirement(reader)
        except QueryError as error:
            raise QueryError(f"unable to parse requirement: {error}") from error
        separator = reader.take()
        if not separator:
            return
        if separator != ",":
            raise QueryError(f"found '{separator}', expected: ',' or 'end of string'")
        following = reader.peek()
        if not following or (following in _PUNCTUATION and following != "!"):
            raise QueryError(f"found '{following}', expected: identifier after ','")


def _identifier(token: str) -> bool:
    return bool(token) and token not in _PUNCTUATION


def _requirement(reader: _Reader) -> None:
    key = reader.take()
    absent = key == "!"
    if absent:
        key = reader.take()
    if not _identifier(key):
        raise QueryError(f"found '{key}', expected: identifier")
    problems = formats.qualified_name(key)
    if problems:
        raise QueryError(str(invalid("<nil>", key, "; ".join(problems))))
    if absent or reader.peek() in ("", ","):
        return
    word = reader.take()
    if word not in _KNOWN:
        raise QueryError(f"found '{word}', expected: {', '.join(_OPERATORS)}")
    values = _set(reader) if word in ("in", "notin") else _one(reader)
    if word in (">", "<") and not re.fullmatch(r"[+-]?[0-9]+", values[0]):
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise QueryError(str(invalid("values[0]", values[0], detail)))
    for index, value in enumerate(sorted(set(values))):
        problems = formats.label_value(value)
        if problems:
            raise QueryError(str(invalid(f"values[{index}][{key}]", value, "; ".join(problems))))


def _one(reader: _Reader) -> list[str]:
    if reader.peek() in ("", ","):
        return [""]
    value = reader.take()
    if not _identifier(value):
        raise QueryError(f"found '{value}', expected: identifier")
    return [value]


def _set(reader: _Reader) -> list[str]:
    opening = reader.take()
    if opening != "(":
        raise QueryError(f"found '{opening}' expected: '('")
    first = reader.peek()
    if first == ")":
        reader.take()
        return [""]
    if not _identifier(first) and first != ",":
        raise QueryError(f"found '{first}', expected: ',', ')' or identifier")
    values: list[str] = []
    while True:
        token = reader.take()
        following = reader.peek()
        if _identifier(token):
            values.append(token)
            if following not in (",", ")"):
                raise QueryError(f"found '{following}', expected: ',' or ')'")
        elif token == ",":
            if not values or following in (",", ")"):
                values.append("")
        else:
            raise QueryError(f"found '{token}', expected: ',', or identifier")
        if following == ")":
            reader.take()
            return values
