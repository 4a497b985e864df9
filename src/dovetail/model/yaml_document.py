"""YAML from files, requests and ConfigMaps: every way in which it cannot be read is one error, `yaml.YAMLError`.

PyYAML lets out whatever a value that has no meaning raises (`2020-13-45`, `!!int x`), a RecursionError for nesting
without end, and lone surrogates that no text can hold; libyaml's loader ends the process where it is nested too deeply
for the stack of C.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import yaml

from dovetail.language import message

#: Levels that libyaml's loader takes with any stack that is in use; no manifest has a hundredth of them.
MAX_LEVELS = 5_000
_LEADING = re.compile(rf"^[ \t?:-]{{{MAX_LEVELS}}}", re.MULTILINE)
_FLOW = re.compile(r"[\[\]{}]")
_SURROGATE = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, OverflowError)

T = TypeVar("T")


class NestedTooDeeply(yaml.YAMLError, RecursionError):
    """Nesting without end, or nearly so."""


def load(text: str | bytes, loader: Any = yaml.SafeLoader) -> Any:
    """The document of a text. Raises `yaml.YAMLError`."""
    return read(text, lambda: yaml.load(text, Loader=loader))


def load_all(text: str, loader: Any = yaml.SafeLoader) -> list[Any]:
    """Every document of a text. Raises `yaml.YAMLError`."""
    return read(text, lambda: list(yaml.load_all(text, Loader=loader)))


def read(text: str | bytes, parse: Callable[[], T]) -> T:
    """What `parse` makes of a text. Raises `yaml.YAMLError` for whatever it raises."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if _is_deep(shown):
        raise NestedTooDeeply(message("nested too deeply"))
    try:
        value = parse()
    except RecursionError as problem:
        raise NestedTooDeeply(message("nested too deeply")) from problem
    except _UNREADABLE as problem:
        raise yaml.YAMLError(message("a value cannot be read: {problem}", problem=problem)) from problem
    if _SURROGATE.search(shown) and _has_surrogate(value):
        raise yaml.YAMLError(message("a value cannot be read: {problem}", problem=message("half of a character")))
    return value


def _is_deep(text: str) -> bool:
    """Whether a text may be nested too deeply for libyaml: by its longest indent, and by what its brackets open."""
    if _LEADING.search(text):
        return True
    level = 0
    for bracket in _FLOW.finditer(text):
        level = level + 1 if bracket[0] in "[{" else max(0, level - 1)
        if level > MAX_LEVELS:
            return True
    return False


def _has_surrogate(value: Any) -> bool:
    """Each value once, however many aliases stand for it."""
    left, seen = [value], {id(value)}
    while left:
        current = left.pop()
        if isinstance(current, str):
            if any("\ud800" <= character <= "\udfff" for character in current):
                return True
            continue
        parts: list[Any] = []
        if isinstance(current, dict):
            parts = [part for pair in current.items() for part in pair]
        elif isinstance(current, list | tuple | set):
            parts = list(current)
        for part in parts:
            if id(part) not in seen:
                seen.add(id(part))
                left.append(part)
    return False
