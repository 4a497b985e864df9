"""Structural rules: what the schema of a definition's version must obey, its expressions included."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.lab.apiserver.crd.cel_typecheck import complaint_about, no_text
from dovetail.lab.apiserver.crd.rule import ValidationRule
from dovetail.lab.apiserver.crd.schema_validation import validate
from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.model.validation.field_errors import FieldError, forbidden, invalid, required, unsupported

Json = Mapping[str, Any]
_TYPES = ("array", "boolean", "integer", "number", "object", "string")


def check_schema(schema: Json, path: str) -> list[FieldError]:
    """Every node has a type, maps and lists say what they are."""
    errors = _node(schema, path, root=True)
    if not schema.get("type"):
        errors.append(required(f"{path}.type", "must not be empty at the root"))
    elif schema["type"] != "object":
        errors.append(invalid(f"{path}.type", schema["type"], "must be object at the root"))
    meta = (schema.get("properties") or {}).get("metadata") or {}
    if set(meta.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        errors.append(forbidden(f"{path}.properties[metadata]", text))
    return errors + _rules(Structural(schema, root=True), path)


def _node(schema: Json, path: str, root: bool = False) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = schema.get("type", "")
    loose = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if "$ref" in schema:
        return [forbidden(f"{path}.$ref", "$ref is not supported")]
    if not kind and not loose and not root:
        errors.append(required(f"{path}.type", _missing_type(path)))
    if kind and kind not in _TYPES:
        errors.append(unsupported(f"{path}.type", kind, _TYPES))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        field_path = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(invalid(field_path, False, "must be true or undefined"))
    if kind == "array" and not schema.get("items"):
        errors.append(required(f"{path}.items", "must be specified"))
    if isinstance(schema.get("items"), list):
        errors.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if schema.get("x-kubernetes-embedded-resource") and not schema.get("properties") and not loose:
        text = "must not be empty if x-kubernetes-embedded-resource is true without "
        errors.append(required(f"{path}.properties", f"{text}x-kubernetes-preserve-unknown-fields"))
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        text = "additionalProperties and properties are mutual exclusive"
        errors.append(forbidden(f"{path}.additionalProperties", text))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.append(forbidden(f"{path}.uniqueItems", text))
    if "pattern" in schema:
        errors += _pattern(schema["pattern"], f"{path}.pattern")
    if schema.get("default") is not None:
        for error in validate(Structural(schema), schema["default"]):
            field_path = f"{path}.default" if error.field == "<nil>" else f"{path}.default.{error.field}"
            errors.append(FieldError(error.type, field_path, error.value, error.detail))
    errors += _list_map(schema, path)
    for name, child in sorted((schema.get("properties") or {}).items()):
        errors += _node(child, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        errors += _node(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        errors += _node(schema["additionalProperties"], f"{path}.additionalProperties")
    return errors


_REGEXP = {"unterminated character set": "missing closing ]", "unterminated subpattern": "missing closing )"}


def _pattern(pattern: str, path: str) -> list[FieldError]:
    try:
        re.compile(pattern)
    except re.error as error:
        why = next((f"{go}: `{pattern}`" for ours, go in _REGEXP.items() if ours in str(error)), str(error))
        text = f"must be a valid regular expression, but isn't: error parsing regexp: {why}"
        return [invalid(path, pattern, text)]
    return []


def _missing_type(path: str) -> str:
    if path.endswith(".items"):
        return "must not be empty for specified array items"
    return "must not be empty for specified object fields"


def _list_map(schema: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    kind = schema.get("x-kubernetes-list-type")
    if kind is not None and kind not in ("atomic", "set", "map"):
        errors.append(unsupported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map")))
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if kind == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            errors.append(required(f"{path}.x-kubernetes-list-map-keys", text))
        errors += _keys(keys, schema.get("items"), path)
    elif kind == "set":
        items: Any = schema.get("items")
        granular = isinstance(items, dict) and items.get("type") == "object"
        if granular and items.get("x-kubernetes-map-type") != "atomic":
            text = "must be atomic as item of a list with x-kubernetes-list-type=set"
            errors.append(invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), text))
    return errors


def _keys(keys: Sequence[str], items: Any, path: str) -> list[FieldError]:
    """The keys of a list of type map are properties of its items, and there is no item without them."""
    errors: list[FieldError] = []
    item: Json = items if isinstance(items, dict) else {}
    if item.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        errors.append(invalid(f"{path}.items.type", item.get("type", ""), text))
        return errors
    properties = item.get("properties") or {}
    if any(key not in properties for key in keys):
        text = "entries must all be names of item properties"
        errors.append(invalid(f"{path}.x-kubernetes-list-map-keys", list(keys), text))
    for key in keys:
        if key in properties and key not in (item.get("required") or ()) and "default" not in properties[key]:
            text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            errors.append(required(f"{path}.items.properties[{key}].default", text))
    return errors


_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def _rule(rule: ValidationRule, node: Structural, field_path: str) -> list[FieldError]:
    raw = rule.raw
    errors: list[FieldError] = []
    if not rule.text.strip():
        errors.append(required(f"{field_path}.rule", "rule is not specified"))
    message = raw.get("message", "")
    if message and not message.strip():
        errors.append(invalid(f"{field_path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip():
        errors.append(invalid(f"{field_path}.message", message, "must not contain line breaks"))
    elif "\n" in rule.text.strip() and not message and not raw.get("messageExpression"):
        errors.append(required(f"{field_path}.message", "message must be specified if rule contains line breaks"))
    if raw.get("reason") and raw["reason"] not in _REASONS:
        errors.append(unsupported(f"{field_path}.reason", raw["reason"], _REASONS))
    if rule.path and not reachable(node, rule.path):
        errors.append(invalid(f"{field_path}.fieldPath", rule.path, "must be a valid path"))
    if errors:
        return errors
    shown = {
        "Rule": rule.text,
        "Message": message,
        "MessageExpression": raw.get("messageExpression", ""),
        "Reason": raw.get("reason"),
        "FieldPath": raw.get("fieldPath", ""),
        "OptionalOldSelf": raw.get("optionalOldSelf"),
    }
    complaint = f"compilation failed: {rule.error}" if rule.error else complaint_about(rule, node)
    if complaint:
        errors.append(invalid(f"{field_path}.rule", shown, complaint))
    if raw.get("messageExpression") and not rule.error and no_text(raw["messageExpression"], node):
        errors.append(invalid(f"{field_path}.messageExpression", shown, "messageExpression must evaluate to a string"))
    return errors


def reachable(node: Structural, path: str) -> bool:
    """Whether a rule's field path leads to a field of the schema."""
    current: Structural | None = node
    for name in re.findall(r"\.([^.\[]+)|\['([^']*)'\]", path):
        word = name[0] or name[1]
        if current is None:
            return False
        current = current.properties.get(word) or current.additional
        if current is None:
            return False
    return True


def _rules(node: Structural, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, rule in enumerate(node.rules):
        errors += _rule(rule, node, f"{path}.x-kubernetes-validations[{index}]")
    for name, child in sorted(node.properties.items()):
        errors += _rules(child, f"{path}.properties[{name}]")
    if node.items is not None:
        errors += _rules(node.items, f"{path}.items")
    if node.additional is not None:
        errors += _rules(node.additional, f"{path}.additionalProperties")
    return errors
