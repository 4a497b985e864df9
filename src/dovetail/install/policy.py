"""IAM's decision on one request: statements, wildcards and the condition operators that our policies use."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any

Context = Mapping[str, str | list[str]]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _matches(patterns: Any, text: str) -> bool:
    return any(fnmatch.fnmatchcase(text, str(pattern).replace("[", "[[]")) for pattern in _list(patterns))


def _holds(operator: str, key: str, wanted: Any, context: Context) -> bool:
    name = operator.removeprefix("ForAllValues:").removesuffix("IfExists")
    there = context.get(key)
    if operator.startswith("ForAllValues:"):
        return all(_compare(name, wanted, str(value)) for value in _list(there or []))
    if there is None:
        return operator.endswith("IfExists")
    return any(_compare(name, wanted, str(value)) for value in _list(there))


def _compare(operator: str, wanted: Any, value: str) -> bool:
    if operator in ("StringEquals", "Bool"):
        return value in [str(item) for item in _list(wanted)]
    if operator in ("StringLike", "ArnLike"):
        return _matches(wanted, value)
    raise ValueError(f"condition operator {operator!r} is not evaluated here")


def applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    """Whether a statement speaks of this request."""
    actions = [str(pattern).lower() for pattern in _list(statement["Action"])]
    if not _matches(actions, action.lower()) or not _matches(statement["Resource"], resource):
        return False
    return all(
        _holds(operator, key, wanted, context)
        for operator, tests in statement.get("Condition", {}).items()
        for key, wanted in tests.items()
    )


def allowed(policies: Iterable[Mapping[str, Any]], action: str, resource: str, context: Context) -> bool:
    """Some statement allows it, and none denies it."""
    speaking = [
        statement["Effect"]
        for policy in policies
        for statement in policy["Statement"]
        if applies(statement, action, resource, context)
    ]
    return "Allow" in speaking and "Deny" not in speaking
