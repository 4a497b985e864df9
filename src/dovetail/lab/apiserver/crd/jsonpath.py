"""Simple JSON paths: printer columns, scale paths, selectable fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Step = Callable[[list[Any]], list[Any]]
_FILTER = re.compile(r"\?\(\s*@\.([\w.\-/]+)\s*(==|!=)\s*(\"[^\"]*\"|'[^']*'|[\w.\-]+)\s*\)$")
_NAME = re.compile(r"\.((?:\\.|[^.\[\\])+)")


def steps(path: str) -> list[Step]:
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    steps: list[Step] = []
    while text:
        name = _NAME.match(text)
        if name:
            steps.append(_child(name[1].replace("\\", "")))
            text = text[name.end() :]
        elif text.startswith("["):
            end = text.index("]") if "?(" not in text else text.index(")]") + 1
            steps.append(_bracket(text[1:end]))
            text = text[end + 1 :]
        else:
            raise ValueError(f"unrecognized path {path!r}")
    return steps


def _child(name: str) -> Step:
    if name == "*":
        return lambda values: [i for v in values for i in (v.values() if isinstance(v, dict) else v)]
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _bracket(text: str) -> Step:
    if text == "*":
        return _child("*")
    if re.fullmatch(r"-?\d+", text):
        index = int(text)
        return lambda values: [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]
    if text[:1] in "'\"":
        return _child(text[1:-1])
    match = _FILTER.match(text)
    if match is None:
        raise ValueError(f"unrecognized filter {text!r}")
    inner, equal, literal = steps("." + match[1]), match[2] == "==", match[3].strip("\"'")

    def chosen(item: Any) -> bool:
        values = [item]
        for step in inner:
            values = step(values)
        return any((str(value) == literal) == equal for value in values)

    return lambda values: [i for v in values if isinstance(v, list) for i in v if chosen(i)]


def compile_path(path: str) -> Callable[[Any], list[Any]]:
    """A function from a document to the values at the path."""
    compiled = steps(path)

    def find(document: Any) -> list[Any]:
        values = [document]
        for step in compiled:
            values = step(values)
        return values

    return find


def dotted(path: str) -> tuple[str, ...]:
    """`.spec.replicas` as its names."""
    return tuple(part for part in path.split(".") if part)


def get(document: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    return document
