"""What a definition must obey before it is taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.crd.checks import validate
from dovetail.lab.apiserver.crd.rulecheck import complaint_about
from dovetail.lab.apiserver.crd.rules import Rule
from dovetail.lab.apiserver.crd.structural import Structural
from dovetail.lab.apiserver.fielderror import FieldError, forbidden, invalid, required, unsupported
from dovetail.lab.apiserver.kinds import formats
from dovetail.lab.apiserver.registry import Object

Json = Mapping[str, Any]
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_SIMPLE = "must be a simple json path starting with ."


def check_definition(obj: Object) -> list[FieldError]:
    spec = obj["spec"]
    found: list[FieldError] = []
    names, group = spec.get("names") or {}, spec.get("group", "")
    name = obj["metadata"].get("name", "")
    if name != f"{names.get('plural', '')}.{group}":
        found.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        found.append(required("spec.group"))
    else:
        found += [invalid("spec.group", group, text) for text in formats.subdomain(group)]
        if "." not in group:
            found.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    scope = spec.get("scope", "")
    if scope not in ("Cluster", "Namespaced"):
        found.append(unsupported("spec.scope", scope, ("Cluster", "Namespaced")) if scope else required("spec.scope"))
    versions = spec.get("versions") or []
    found += _versions(versions)
    found += _names(names)
    conversion = (spec.get("conversion") or {}).get("strategy", "")
    if conversion not in ("None", "Webhook"):
        found.append(unsupported("spec.conversion.strategy", conversion, ("None", "Webhook")))
    elif conversion == "Webhook" and "webhook" not in spec["conversion"]:
        found.append(required("spec.conversion.webhookClientConfig", "required when strategy is set to Webhook"))
    if not (obj["status"].get("storedVersions")):
        found.append(invalid("status.storedVersions", None, "must have at least one stored version"))
    else:
        found += _stored(obj, versions)
    return found


def _stored(obj: Object, versions: list[Json]) -> list[FieldError]:
    known = {version["name"] for version in versions}
    return [
        invalid(f"status.storedVersions[{index}]", name, "must appear in spec.versions")
        for index, name in enumerate(obj["status"]["storedVersions"])
        if name not in known
    ]


def _names(names: Json) -> list[FieldError]:
    found: list[FieldError] = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        if not value and field in ("plural", "kind", "singular", "listKind"):
            found.append(required(f"spec.names.{field}"))
        else:
            texts = formats.label_1035(value.lower())
            found += [invalid(f"spec.names.{field}", value, text) for text in texts]
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        found.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    for index, short in enumerate(names.get("shortNames") or ()):
        texts = formats.label_1035(short)
        found += [invalid(f"spec.names.shortNames[{index}]", short, text) for text in texts]
    return found


def _internal_version(version: Json) -> dict[str, Any]:
    return {
        "Name": version.get("name", ""),
        "Served": bool(version.get("served")),
        "Storage": bool(version.get("storage")),
        "Deprecated": bool(version.get("deprecated")),
        "DeprecationWarning": version.get("deprecationWarning"),
        "Schema": None,
        "Subresources": None,
        "AdditionalPrinterColumns": None,
        "SelectableFields": None,
    }


def _versions(versions: list[Json]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    alone = len(versions) == 1
    for index, version in enumerate(versions):
        at, name = f"spec.versions[{index}]", version.get("name", "")
        found += [invalid(f"{at}.name", name, text) for text in formats.label_1035(name)]
        if name in seen:
            found.append(
                invalid("spec.versions", [_internal_version(v) for v in versions], "must contain unique version names")
            )
        seen.add(name)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        shown = [_internal_version(version) for version in versions]
        found.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    for index, version in enumerate(versions):
        at = "spec" if alone else f"spec.versions[{index}]"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            found.append(required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        else:
            place = "spec.validation" if alone else f"{at}.schema"
            found += check_schema(schema, f"{place}.openAPIV3Schema")
            found += _selectable(version.get("selectableFields") or (), Structural(schema), at)
        found += _doors(version.get("subresources") or {}, at)
        found += _columns(version.get("additionalPrinterColumns") or (), at)
    return found


def _doors(doors: Json, at: str) -> list[FieldError]:
    scale = doors.get("scale")
    if scale is None:
        return []
    found: list[FieldError] = []
    place = f"{at}.subresources.scale"
    for field, under in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        path = scale.get(field, "")
        if not path:
            found.append(required(f"{place}.{field}"))
        elif not path.startswith("."):
            found.append(invalid(f"{place}.{field}", path, _SIMPLE))
        elif not path.startswith(under):
            word = under.removesuffix(".")
            found.append(invalid(f"{place}.{field}", path, f"should be a json path under {word}"))
    return found


def _selectable(fields: Any, schema: Structural, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, field in enumerate(fields):
        path = field.get("jsonPath", "")
        place = f"{at}.selectableFields[{index}].jsonPath"
        if not path:
            found.append(required(place))
        elif not _reachable(schema, path):
            found.append(invalid(place, path, "is an invalid path: does not refer to a valid field"))
    return found


def _columns(columns: Any, at: str) -> list[FieldError]:
    found: list[FieldError] = []
    for index, column in enumerate(columns):
        place = f"{at}.additionalPrinterColumns[{index}]"
        if not column.get("name"):
            found.append(required(f"{place}.name"))
        kind = column.get("type", "")
        if not kind:
            found.append(required(f"{place}.type", f"must be one of {','.join(_COLUMN_TYPES)}"))
        elif kind not in _COLUMN_TYPES:
            found.append(invalid(f"{place}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
        path = column.get("jsonPath", "")
        if not path:
            found.append(required(f"{place}.JSONPath"))
        elif not path.startswith("."):
            found.append(invalid(f"{place}.JSONPath", path, _SIMPLE))
    return found


def check_schema(schema: Json, path: str) -> list[FieldError]:
    """Structural rules: every node has a type, maps and lists say what they are."""
    found = _node(schema, path, root=True)
    if not schema.get("type"):
        found.append(required(f"{path}.type", "must not be empty at the root"))
    elif schema["type"] != "object":
        found.append(invalid(f"{path}.type", schema["type"], "must be object at the root"))
    meta = (schema.get("properties") or {}).get("metadata") or {}
    if set(meta.get("properties") or ()) - {"name", "generateName"}:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(f"{path}.properties[metadata]", text))
    return found + _rules(Structural(schema, root=True), path)


def _node(schema: Json, path: str, root: bool = False) -> list[FieldError]:
    found: list[FieldError] = []
    kind = schema.get("type", "")
    loose = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not kind and not loose and not root:
        found.append(required(f"{path}.type", _missing_type(path)))
    if kind and kind not in _TYPES:
        found.append(unsupported(f"{path}.type", kind, _TYPES))
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        at = f"{path}.x-kubernetes-preserve-unknown-fields"
        found.append(invalid(at, False, "must be true or undefined"))
    if kind == "array" and not schema.get("items"):
        found.append(required(f"{path}.items", "must be specified"))
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        text = "additionalProperties and properties are mutual exclusive"
        found.append(forbidden(f"{path}.additionalProperties", text))
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(forbidden(f"{path}.uniqueItems", text))
    if "pattern" in schema:
        found += _pattern(schema["pattern"], f"{path}.pattern")
    if schema.get("default") is not None:
        for error in validate(Structural(schema), schema["default"]):
            at = f"{path}.default" if error.field == "<nil>" else f"{path}.default.{error.field}"
            found.append(FieldError(error.type, at, error.value, error.detail))
    found += _list_map(schema, path)
    for name, child in sorted((schema.get("properties") or {}).items()):
        found += _node(child, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        found += _node(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        found += _node(schema["additionalProperties"], f"{path}.additionalProperties")
    return found


def _pattern(pattern: str, path: str) -> list[FieldError]:
    try:
        re.compile(pattern)
    except re.error as error:
        why = f"missing closing ]: `{pattern}`" if "unterminated character set" in str(error) else str(error)
        text = f"must be a valid regular expression, but isn't: error parsing regexp: {why}"
        return [invalid(path, pattern, text)]
    return []


def _missing_type(path: str) -> str:
    if path.endswith(".items"):
        return "must not be empty for specified array items"
    return "must not be empty for specified object fields"


def _list_map(schema: Json, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind = schema.get("x-kubernetes-list-type")
    if kind is not None and kind not in ("atomic", "set", "map"):
        found.append(unsupported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map")))
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if kind == "map":
        if not keys:
            text = "must not be empty if x-kubernetes-list-type is map"
            found.append(required(f"{path}.x-kubernetes-list-map-keys", text))
        found_items = schema.get("items")
        items: Json = found_items if isinstance(found_items, dict) else {}
        for index, key in enumerate(keys):
            child = (items.get("properties") or {}).get(key) if items else None
            if child is None:
                at = f"{path}.x-kubernetes-list-map-keys[{index}]"
                text = "entries must all be names of item properties"
                found.append(invalid(at, key, text))
            elif key not in (items.get("required") or ()) and "default" not in child:
                at = f"{path}.items.properties[{key}].default"
                text = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
                text += "property"
                found.append(required(at, text))
    return found


_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")


def _rule(rule: Rule, node: Structural, at: str) -> list[FieldError]:
    raw = rule.raw
    found: list[FieldError] = []
    if not rule.text.strip():
        found.append(required(f"{at}.rule", "rule is not specified"))
    message = raw.get("message", "")
    if message and not message.strip():
        found.append(invalid(f"{at}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip():
        found.append(invalid(f"{at}.message", message, "must not contain line breaks"))
    elif "\n" in rule.text.strip() and not message and not raw.get("messageExpression"):
        found.append(required(f"{at}.message", "message must be specified if rule contains line breaks"))
    if raw.get("reason") and raw["reason"] not in _REASONS:
        found.append(unsupported(f"{at}.reason", raw["reason"], _REASONS))
    if rule.path and not _reachable(node, rule.path):
        found.append(invalid(f"{at}.fieldPath", rule.path, "must be a valid path"))
    if found:
        return found
    complaint = f"compilation failed: {rule.error}" if rule.error else complaint_about(rule.text, node)
    if complaint:
        shown = {
            "Rule": rule.text,
            "Message": message,
            "MessageExpression": raw.get("messageExpression", ""),
            "Reason": raw.get("reason"),
            "FieldPath": raw.get("fieldPath", ""),
            "OptionalOldSelf": raw.get("optionalOldSelf"),
        }
        found.append(invalid(f"{at}.rule", shown, complaint))
    return found


def _reachable(node: Structural, path: str) -> bool:
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
    found: list[FieldError] = []
    for index, rule in enumerate(node.rules):
        found += _rule(rule, node, f"{path}.x-kubernetes-validations[{index}]")
    for name, child in sorted(node.properties.items()):
        found += _rules(child, f"{path}.properties[{name}]")
    if node.items is not None:
        found += _rules(node.items, f"{path}.items")
    if node.additional is not None:
        found += _rules(node.additional, f"{path}.additionalProperties")
    return found
