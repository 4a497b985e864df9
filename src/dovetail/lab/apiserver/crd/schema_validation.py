"""Values against a schema, in the words of the server's own validator.

`compile_checks` turns a schema into closures once; a check appends (field path, complaint) pairs and costs
microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dovetail.lab.apiserver.crd import formats
from dovetail.lab.apiserver.crd.cel_rules import Correlation
from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.model.validation.field_errors import (
    FieldError,
    go_float,
    go_json,
    invalid,
    quoted,
    required,
    too_long,
    too_many,
    type_invalid,
    unsupported,
)

Check = Callable[[Any, str, list[FieldError]], None]
_NUMBERS = ("integer", "number")
_GO_FORMATS = {"integer": "int64", "number": "float64"}


def _at(path: str) -> str:
    return path.removeprefix(".") or "<nil>"


def type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def validate(node: Structural, value: Any, trace: Correlation | None = None) -> list[FieldError]:
    """Complaints about a value; with `trace` (an update) parts that did not change are let be."""
    errors: list[FieldError] = []
    _node(node, value, "", trace, errors)
    if len(errors) > 1:
        errors = []
        _node(node, _sorted(value), "", trace, errors)
    return errors


def _sorted(value: Any) -> Any:
    """The same value, keys in order: complaints come out the same every time."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _node(node: Structural, value: Any, path: str, trace: Correlation | None, errors: list[FieldError]) -> None:
    if trace is not None and trace.known and trace.new == trace.old:
        return
    for check in _checks(node):
        check(value, path, errors)
    if value is None:
        return
    if isinstance(value, dict):
        _object(node, value, path, trace, errors)
    elif isinstance(value, list):
        _array(node, value, path, trace, errors)


def _checks(node: Structural) -> list[Check]:
    if node.check is None:
        node.check = compile_checks(node)
    checks: list[Check] = node.check
    return checks


def _object(
    node: Structural, value: dict[str, Any], path: str, trace: Correlation | None, errors: list[FieldError]
) -> None:
    properties, additional = node.properties, node.additional
    if additional is not None:
        for name in value:
            if name not in properties:
                child = trace.key(name) if trace is not None and trace.known else None
                _node(additional, value[name], f"{path}.{name}", child, errors)
    for name, item in value.items():
        existing = properties.get(name)
        if existing is not None and not (node.root and name == "metadata"):
            child = trace.key(name) if trace is not None and trace.known else None
            _node(existing, item, f"{path}.{name}" if path else name, child, errors)
    for name in node.required:
        if name not in value:
            errors.append(required(_at(f"{path}.{name}")))
    if node.embedded:
        errors += [required(_at(f"{path}.{name}")) for name in ("apiVersion", "kind") if not value.get(name)]


def _array(node: Structural, value: list[Any], path: str, trace: Correlation | None, errors: list[FieldError]) -> None:
    if node.items is not None:
        for index, item in enumerate(value):
            child = trace.item(node, item, trace.old)[0] if trace is not None and trace.known else None
            _node(node.items, item, f"{path}[{index}]", child, errors)
    least, most = node.raw.get("minItems"), node.raw.get("maxItems")
    if least is not None and len(value) < least:
        errors.append(invalid(_at(path), len(value), f"{path} in body should have at least {least} items"))
    if most is not None and len(value) > most:
        errors.append(too_many(_at(path), len(value), most))


def compile_checks(node: Structural) -> list[Check]:
    """The checks of one node, its children aside."""
    raw = node.raw
    checks: list[Check] = []
    types = ("integer", "string") if node.int_or_string else (node.type,) if node.type else ()
    if types:
        checks.append(_type_check(types, node.nullable, raw.get("format", "")))
    if node.any_of or node.one_of or node.all_of or node.not_ is not None:
        checks.append(_combined(node))
    strings = [raw.get("maxLength"), raw.get("minLength"), raw.get("pattern")]
    if any(limit is not None for limit in strings):
        checks.append(_string_check(*strings))
    if formats.known(raw.get("format", "")):
        checks.append(_format_check(raw["format"]))
    numeric = any(raw.get(name) is not None for name in ("minimum", "maximum", "multipleOf"))
    if numeric or node.type in _NUMBERS:
        checks.append(_number_check(node))
    if node.enum is not None:
        checks.append(_enum_check(node.enum))
    if raw.get("maxProperties") is not None or raw.get("minProperties") is not None:
        checks.append(_properties_check(raw.get("maxProperties"), raw.get("minProperties")))
    return checks


def _type_check(types: tuple[str, ...], nullable: bool, form: str) -> Check:
    expected = ",".join(types)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        kind = type_name(value)
        if kind in types or (value is None and nullable):
            return
        if kind == "integer" and "number" in types:
            return
        if kind == "number" and "integer" in types and value == int(value):
            return
        if form and kind in ("string", "array") and not set(types) & set(_NUMBERS):
            return
        expected_type = expected
        if form and kind not in ("string", "array", "null"):
            expected_type, kind = form, _GO_FORMATS.get(kind, "")
        errors.append(type_invalid(_at(path), kind, f'{path} in body must be of type {expected_type}: "{kind}"'))

    return check


def _string_check(longest: int | None, shortest: int | None, pattern: str | None) -> Check:
    compiled = re.compile(pattern) if pattern else None

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if type(value) is not str:
            return
        if longest is not None and len(value) > longest:
            errors.append(too_long(_at(path), longest))
        elif shortest is not None and len(value) < shortest:
            errors.append(invalid(_at(path), value, f"{path} in body should be at least {shortest} chars long"))
        elif compiled is not None and not compiled.search(value):
            errors.append(invalid(_at(path), value, f"{path} in body should match '{pattern}'"))

    return check


def _number_check(node: Structural) -> Check:
    raw, kind, form = node.raw, node.type, node.raw.get("format", "")
    low, high, factor = raw.get("minimum"), raw.get("maximum"), raw.get("multipleOf")
    above, below = bool(raw.get("exclusiveMinimum")), bool(raw.get("exclusiveMaximum"))
    bits = 31 if form == "int32" else 63

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        if kind == "integer" and (value != int(value) or not -(2**bits) <= value < 2**bits):
            suffix = f"with format {form} in {path}" if form in ("int32", "int64") else f"(default format) in {path}"
            errors.append(invalid("<nil>", "", f"Checked value must be of type integer {suffix}"))
        if factor is not None and value % factor:
            errors.append(invalid(_at(path), value, f"{path} in body should be a multiple of {go_float(factor)}"))
        if low is not None and (value < low or (above and value == low)):
            word = "greater than" if above else "greater than or equal to"
            errors.append(invalid(_at(path), value, f"{path} in body should be {word} {go_float(low)}"))
        if high is not None and (value > high or (below and value == high)):
            word = "less than" if below else "less than or equal to"
            errors.append(invalid(_at(path), value, f"{path} in body should be {word} {go_float(high)}"))

    return check


def _properties_check(most: int | None, least: int | None) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not isinstance(value, dict):
            return
        if least is not None and len(value) < least:
            errors.append(invalid(_at(path), len(value), f"{path} in body should have at least {least} properties"))
        if most is not None and len(value) > most:
            errors.append(too_many(_at(path), len(value), most))

    return check


def _enum_check(allowed: list[Any]) -> Check:
    shown = [item if isinstance(item, str) else go_json(item) for item in allowed]

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if value is not None and value not in allowed:
            errors.append(unsupported(_at(path), value, shown))

    return check


def _combined(node: Structural) -> Check:
    """anyOf, oneOf, allOf, not."""

    def trial(child: Structural, value: Any, path: str) -> list[FieldError]:
        complaints: list[FieldError] = []
        _node(child, value, path, None, complaints)
        return complaints

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if value is None:
            return
        if node.any_of:
            results = [trial(child, value, path) for child in node.any_of]
            if all(results):
                errors.append(invalid("<nil>", "", f"{quoted(path)} must validate at least one schema (anyOf)"))
                errors.extend(_nearest(results, value))
        if node.one_of:
            results = [trial(child, value, path) for child in node.one_of]
            valid = sum(not result for result in results)
            if valid != 1:
                why = "Found none valid" if valid == 0 else f"Found {valid} valid alternatives"
                text = f"{quoted(path)} must validate one and only one schema (oneOf). {why}"
                errors.append(invalid("<nil>", "", text))
                if valid == 0:
                    errors.extend(_nearest(results, value))
        if node.all_of:
            results = [trial(child, value, path) for child in node.all_of]
            for result in results:
                errors.extend(result)
            if any(results):
                why = ". None validated" if all(results) else ""
                text = f"{quoted(path)} must validate all the schemas (allOf){why}"
                errors.append(invalid("<nil>", "", text))
        if node.not_ is not None and not trial(node.not_, value, path):
            errors.append(invalid("<nil>", "", f"{quoted(path)} must not validate the schema (not)"))

    return check


def _nearest(results: list[list[FieldError]], value: Any) -> list[FieldError]:
    """The complaints of the alternative that fits best; a plain value fits none better than the first."""
    return min(results, key=len) if isinstance(value, dict | list) else results[0]


def _format_check(form: str) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and not formats.accepts(form, value):
            text = f"{path} in body must be of type {form}: {quoted(value)}"
            errors.append(type_invalid(_at(path), value, text))

    return check


def list_types(node: Structural, value: Any, path: str = "") -> list[FieldError]:
    """Sets without repeats, maps without repeated keys; of many alike the second is named."""
    errors: list[FieldError] = []
    if isinstance(value, list):
        if node.list_type in ("set", "map"):
            errors += _repeats(node, value, path)
        if node.items is not None:
            for index, item in enumerate(value):
                errors += list_types(node.items, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name in value:
            child = node.properties.get(name)
            if child is not None:
                errors += list_types(child, value[name], f"{path}.{name}" if path else name)
            elif node.additional is not None:
                errors += list_types(node.additional, value[name], f"{path}[{name}]")
    return errors


def _repeats(node: Structural, value: list[Any], path: str) -> list[FieldError]:
    seen: list[Any] = []
    errors: list[FieldError] = []
    for index, item in enumerate(value):
        key = item
        if node.list_type == "map":
            if not isinstance(item, dict | None):
                text = "must be an object for an array of list-type map"
                return [*errors, invalid(f"{path}[{index}]", item, text)]
            key = {name: item[name] for name in node.keys if name in item} if item else {}
        if seen.count(key) == 1:
            errors.append(FieldError("FieldValueDuplicate", f"{path}[{index}]", key, ""))
        seen.append(key)
    return errors
