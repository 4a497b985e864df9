"""IAM's decision on one request: statements, wildcards, policy variables and condition operators.

A condition operator that is not known here never holds: a policy that uses it grants less than it would at AWS.
"""

from __future__ import annotations

import enum
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Context = Mapping[str, str | list[str]]

_VARIABLE = re.compile(r"\$\{([^}]+)\}")
#: What stands for a character that a pattern must not take for a wildcard.
_LITERALS = {"*": "[*]", "?": "[?]", "$": "$"}
_VERBATIM = {"*": "*", "?": "?", "$": "$"}


class PolicyDecision(enum.Enum):
    """As `aws iam simulate-principal-policy` writes them."""

    ALLOWED = "allowed"
    IMPLICIT_DENY = "implicitDeny"
    EXPLICIT_DENY = "explicitDeny"


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _matches(patterns: Any, text: str, context: Context) -> bool:
    return any(fnmatch.fnmatchcase(text, _pattern(str(pattern), context)) for pattern in _list(patterns))


def _pattern(pattern: str, context: Context) -> str:
    """With its variables filled in, for fnmatch."""
    return _filled(pattern.replace("[", "[[]"), context, _LITERALS)


def _filled(text: str, context: Context, literals: Mapping[str, str]) -> str:
    """A variable without a value stays as it is: no value equals it."""

    def fill(match: re.Match[str]) -> str:
        name, _, default = match[1].partition(",")
        if name in literals:
            return literals[name]
        value = _value(context, name.strip())
        return str(_list(default.strip().strip("'") or match[0] if value is None else value)[0])

    return _VARIABLE.sub(fill, text)


def _equal(expected: str, value: str) -> bool:
    return expected == value


def _equal_ignoring_case(expected: str, value: str) -> bool:
    return expected.lower() == value.lower()


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    def holds(expected: str, value: str) -> bool:
        try:
            return compare(float(value), float(expected))
        except ValueError:
            return False

    return holds


_WILDCARDS = ("StringLike", "ArnEquals", "ArnLike")
_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _equal,
    "StringEqualsIgnoreCase": _equal_ignoring_case,
    "Bool": _equal_ignoring_case,
    "NumericEquals": _number(lambda value, expected: value == expected),
    "NumericLessThan": _number(lambda value, expected: value < expected),
    "NumericLessThanEquals": _number(lambda value, expected: value <= expected),
    "NumericGreaterThan": _number(lambda value, expected: value > expected),
    "NumericGreaterThanEquals": _number(lambda value, expected: value >= expected),
}
#: Operators that hold where another does not; they hold of an absent key too.
_NEGATIONS: Mapping[str, str] = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
}


def _holds(operator: str, key: str, condition_values: Any, context: Context) -> bool:
    quantifier, _, rest = operator.rpartition(":")
    name = rest.removesuffix("IfExists")
    value = _value(context, key)
    if name == "Null":
        return any(str(item).lower() == ("true" if value is None else "false") for item in _list(condition_values))
    if value is None:
        return quantifier == "ForAllValues" or rest.endswith("IfExists") or name in _NEGATIONS
    negated = name in _NEGATIONS
    plain = _NEGATIONS.get(name, name)
    if plain not in _COMPARISONS and plain not in _WILDCARDS:
        return False
    held = [_compares(plain, condition_values, str(item), context) != negated for item in _list(value)]
    every = quantifier == "ForAllValues" or (negated and quantifier != "ForAnyValue")
    return all(held) if every else any(held)


def _compares(operator: str, condition_values: Any, value: str, context: Context) -> bool:
    if operator in _WILDCARDS:
        return _matches(condition_values, value, context)
    compare = _COMPARISONS[operator]
    return any(compare(_filled(str(item), context, _VERBATIM), value) for item in _list(condition_values))


def _value(context: Context, key: str) -> str | list[str] | None:
    """Names of context keys are not case-sensitive, values of tags are."""
    if key in context:
        return context[key]
    lowered = key.lower()
    return next((value for name, value in context.items() if name.lower() == lowered), None)


def applies(statement: Mapping[str, Any], action: str, resource: str | None, context: Context) -> bool:
    """Whether a statement speaks of this request. `resource` None stands for one that the caller cannot name."""
    if "Action" in statement:
        named = _matches([str(pattern).lower() for pattern in _list(statement["Action"])], action.lower(), context)
    else:
        patterns = [str(pattern).lower() for pattern in _list(statement.get("NotAction", "*"))]
        named = not _matches(patterns, action.lower(), context)
    if not named:
        return False
    if resource is not None:
        if "NotResource" in statement and _matches(statement["NotResource"], resource, context):
            return False
        if "Resource" in statement and not _matches(statement["Resource"], resource, context):
            return False
    return all(
        _holds(operator, key, condition_values, context)
        for operator, tests in (statement.get("Condition") or {}).items()
        for key, condition_values in tests.items()
    )


def decide(
    policies: Iterable[Mapping[str, Any]], action: str, resource: str | None, context: Context
) -> tuple[PolicyDecision, list[Mapping[str, Any]]]:
    """The decision, and the statements that it rests on: those that deny, or else those that allow."""
    speaking = [
        statement
        for policy in policies
        for statement in _list(policy.get("Statement", []))
        if applies(statement, action, resource, context)
    ]
    denying = [statement for statement in speaking if statement["Effect"] == "Deny"]
    if denying:
        return PolicyDecision.EXPLICIT_DENY, denying
    return (PolicyDecision.ALLOWED, speaking) if speaking else (PolicyDecision.IMPLICIT_DENY, [])


def allowed(policies: Iterable[Mapping[str, Any]], action: str, resource: str, context: Context) -> bool:
    """Some statement allows it, and none denies it."""
    return decide(policies, action, resource, context)[0] is PolicyDecision.ALLOWED
