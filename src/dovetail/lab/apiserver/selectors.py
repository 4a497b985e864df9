"""Selectors of a request: a test of objects, or the 400 that says what is wrong with the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dovetail.lab.apiserver import status_errors
from dovetail.lab.apiserver.registry import ResourceType
from dovetail.lab.apiserver.request import RequestCall
from dovetail.model import formats
from dovetail.model.selector import FieldTerm, NameValidators, SelectorError, parse_fields, parse_labels
from dovetail.model.validation.field_errors import invalid

Json = dict[str, Any]
Test = Callable[[Json], bool]


def compile(call: RequestCall, labels: str, fields: str) -> Test | None:  # noqa: A001 - the verb for it
    """A test of objects in the request's version; None where everything passes."""
    name = call.name
    tests: list[Test] = []
    if labels:
        tests.append(_labels(labels))
    if fields:
        tests.append(_fields(fields, call.resource))
    if name:
        tests.append(lambda obj: bool(obj["metadata"].get("name") == name))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _labels(text: str) -> Test:
    try:
        query = parse_labels(text, _STRICT)
    except SelectorError as error:
        raise status_errors.bad_request(str(error)) from error
    matches = query.matches
    return lambda obj: matches(obj["metadata"].get("labels") or {})


def _check_key(key: str) -> None:
    problems = formats.qualified_name(key)
    if problems:
        raise SelectorError(str(invalid("<nil>", key, "; ".join(problems))))


def _check_values(key: str, operator: str, values: Sequence[str]) -> None:
    if operator in ("Gt", "Lt") and not re.fullmatch(r"[+-]?[0-9]+", values[0]):
        detail = "for 'Gt', 'Lt' operators, the value must be an integer"
        raise SelectorError(str(invalid("values[0]", values[0], detail)))
    for index, value in enumerate(values):
        problems = formats.label_value(value)
        if problems:
            raise SelectorError(str(invalid(f"values[{index}][{key}]", value, "; ".join(problems))))


#: Names and values must be such as labels can have.
_STRICT = NameValidators(_check_key, _check_values)


def _fields(text: str, resource: ResourceType) -> Test:
    _check_escapes(text)
    try:
        terms = parse_fields(text)
    except SelectorError as error:
        raise status_errors.bad_request(str(error)) from error
    strategy = resource.strategy
    selectable_fields = strategy.selectable_fields()
    for term in terms:
        if term.path not in ("metadata.name", "metadata.namespace") and term.path not in selectable_fields:
            raise status_errors.bad_request(strategy.unknown_selector(term.path))
    plain = all(term.path.startswith("metadata.") for term in terms)

    def test(obj: Json) -> bool:
        values = {} if plain else strategy.selectable(obj)
        return all(_holds(term, obj, values) for term in terms)

    return test


def exact_name(text: str) -> str:
    """The one name that a field selector leaves, if it does."""
    names = (term.value for term in parse_fields(text) if term.path == "metadata.name" and term.equal) if text else ()
    return next(iter(names), "")


def _check_escapes(text: str) -> None:
    """A value may hold `,`, `=` and backslashes only behind a backslash."""
    for part in re.split(r"(?<!\\),", text):
        value = re.split(r"!=|==|=", part, maxsplit=1)[-1]
        escaped = False
        for rune in value if "=" in part else "":
            if escaped:
                if rune not in "\\,=":
                    raise status_errors.bad_request(f"invalid field selector: invalid escape sequence: \\{rune}")
                escaped = False
            elif rune == "\\":
                escaped = True
            elif rune == "=":
                raise status_errors.bad_request(f"invalid field selector: unescaped character in value: {ord(rune)}")


def _holds(term: FieldTerm, obj: Json, values: Any) -> bool:
    if term.path == "metadata.name":
        value = obj["metadata"].get("name", "")
    elif term.path == "metadata.namespace":
        value = obj["metadata"].get("namespace", "")
    else:
        value = values.get(term.path, "")
    return (value == term.value) is term.equal
