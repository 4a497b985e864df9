"""Label and node selectors inside objects, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.model import formats
from dovetail.model.validation import metadata
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required

Selector = Mapping[str, Any]
_NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
_NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def label_name(key: str, path: str) -> list[FieldError]:
    return [invalid(path, key, text) for text in formats.qualified_name(key)]


def label_selector(selector: Selector | None, path: str, lenient: bool = False) -> list[FieldError]:
    """A LabelSelector; `lenient` lets label values through that are none (node affinity preferences do)."""
    if not selector:
        return []
    errors = metadata.labels(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions", ())):
        errors += _expression(expression, f"{path}.matchExpressions[{index}]", lenient)
    return errors


def _expression(expression: Selector, path: str, lenient: bool, numeric: bool = False) -> list[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values", ())
    errors: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", _NEEDS_VALUES))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            errors.append(forbidden(f"{path}.values", _NO_VALUES))
    elif numeric and operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    return errors + label_name(expression.get("key", ""), f"{path}.key") + _values(values, path, lenient)


def _values(values: Sequence[str], path: str, lenient: bool) -> list[FieldError]:
    if lenient:
        return []
    return [
        invalid(f"{path}.values[{index}]", value, text)
        for index, value in enumerate(values)
        for text in formats.label_value(value)
    ]


def node_requirement(expression: Selector, path: str, lenient: bool) -> list[FieldError]:
    """An expression about a node's labels, which may also be compared as numbers."""
    return _expression(expression, path, lenient, numeric=True)


def _node_field(expression: Selector, path: str) -> list[FieldError]:
    operator, values, key = expression.get("operator", ""), expression.get("values", ()), expression.get("key", "")
    errors: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errors.append(required(f"{path}.values", text))
    else:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    if key != "metadata.name":
        return [*errors, invalid(f"{path}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        errors += [invalid(f"{path}.values[{index}]", value, text) for text in formats.subdomain(value)]
    return errors


def node_term(term: Selector, path: str, lenient: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, expression in enumerate(term.get("matchExpressions", ())):
        errors += node_requirement(expression, f"{path}.matchExpressions[{index}]", lenient)
    for index, expression in enumerate(term.get("matchFields", ())):
        errors += _node_field(expression, f"{path}.matchFields[{index}]")
    return errors


def node_selector(selector: Selector, path: str) -> list[FieldError]:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    errors: list[FieldError] = []
    for index, term in enumerate(terms):
        errors += node_term(term, f"{path}.nodeSelectorTerms[{index}]")
    return errors


def match_labels(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a LabelSelector; an absent selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    return all(_satisfied(expression, labels) for expression in selector.get("matchExpressions", ()))


def _satisfied(expression: Selector, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", ())
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    return bool((key in labels) == (operator == "Exists"))


def canonical(selector: Selector | None) -> str:
    """A selector as a string, sorted by key: `app=d,tier notin (a,b)`."""
    if not selector:
        return ""
    parts = [(key, f"{key}={value}") for key, value in selector.get("matchLabels", {}).items()]
    for expression in selector.get("matchExpressions", ()):
        key, operator = expression["key"], expression["operator"]
        values = ",".join(sorted(expression.get("values", ())))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[operator]
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))
