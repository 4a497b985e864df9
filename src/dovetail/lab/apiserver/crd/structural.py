"""Structural schemas: a definition's OpenAPI schema, read once into a tree that pruning, defaults and checks share."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.lab.apiserver.crd.cel.values import parse_duration, parse_timestamp
from dovetail.lab.apiserver.crd.rule import ValidationRule
from dovetail.lab.apiserver.kinds.types import meta_schema
from dovetail.lab.apiserver.registry import GoField, Schema, ValueKind

Json = dict[str, Any]
_MISSING = object()
#: Formats of text that expressions see as something else than text.
FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": parse_timestamp,
    "date": parse_timestamp,
    "duration": parse_duration,
    "byte": base64.b64decode,
}
_KINDS: dict[str, ValueKind] = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "array": "array",
    "object": "object",
}


class Structural:
    """One node of a schema. `raw` is the node as it was written."""

    __slots__ = (
        *("additional", "all_of", "any_of", "check", "default", "embedded", "enum", "has_rules", "int_or_string"),
        *("items", "keys", "list_type", "map_type", "not_", "nullable", "one_of", "preserve", "properties", "raw"),
        *("required", "rich", "root", "rules", "type", "wants_defaults"),
    )

    def __init__(self, raw: Mapping[str, Any], root: bool = False) -> None:
        self.raw = raw
        self.root = root
        self.type: str = raw.get("type", "")
        self.nullable = bool(raw.get("nullable"))
        self.preserve = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(raw.get("x-kubernetes-embedded-resource"))
        self.int_or_string = bool(raw.get("x-kubernetes-int-or-string"))
        self.list_type: str = raw.get("x-kubernetes-list-type", "")
        self.keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.map_type: str = raw.get("x-kubernetes-map-type", "")
        self.default: Any = raw.get("default")
        self.enum: list[Any] | None = raw.get("enum")
        self.required: list[str] = list(raw.get("required") or ())
        self.properties = {name: Structural(child) for name, child in (raw.get("properties") or {}).items()}
        self.items = Structural(raw["items"]) if isinstance(raw.get("items"), dict) else None
        extra = raw.get("additionalProperties")
        self.additional: Structural | None = Structural(extra) if isinstance(extra, dict) else None
        if extra is True:
            self.additional = Structural({"x-kubernetes-preserve-unknown-fields": True})
        self.any_of = [Structural(child) for child in raw.get("anyOf") or ()]
        self.one_of = [Structural(child) for child in raw.get("oneOf") or ()]
        self.all_of = [Structural(child) for child in raw.get("allOf") or ()]
        self.not_ = Structural(raw["not"]) if isinstance(raw.get("not"), dict) else None
        self.has_rules: bool
        self.wants_defaults: bool
        self.rules = [ValidationRule(rule) for rule in raw.get("x-kubernetes-validations") or ()]
        inner = [*self.properties.values(), *self.all_of]
        inner += [child for child in (self.items, self.additional) if child is not None]
        self.has_rules = bool(self.rules) or any(child.has_rules for child in inner)
        self.wants_defaults = self.default is not None or any(child.wants_defaults for child in inner)
        self.rich: bool = is_rich(self) or any(child.rich for child in inner)
        self.check: Any = None

    def kind(self) -> str:
        """The type as rule errors name it."""
        return self.type

    def published(self) -> Json:
        """What OpenAPI shows of it."""
        shown = copy.deepcopy(dict(self.raw))
        if self.root:
            shown.setdefault("type", "object")
            properties = dict(shown.get("properties") or {})
            properties["apiVersion"] = {"type": "string", "description": "The version of this object's form."}
            properties["kind"] = {"type": "string", "description": "What this object is."}
            reference = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
            properties["metadata"] = {"allOf": [{"$ref": reference}], "description": "The object's metadata."}
            shown["properties"] = dict(sorted(properties.items()))
        return shown


def as_schema(node: Structural) -> Schema:
    """The same tree as the machinery knows types: for pruning, apply and publishing."""
    fields = {name: _field(name, child, node) for name, child in node.properties.items()}
    kind: ValueKind = _KINDS.get(node.type, "any")
    items: Schema | None = None
    if node.int_or_string or (node.type == "string" and node.raw.get("format", "") not in ("", "byte")):
        kind = "intorstring"
    elif node.type == "array":
        items = as_schema(node.items) if node.items is not None else Schema(kind="any")
    elif node.type == "object" and node.additional is not None and not fields:
        kind, items = "map", as_schema(node.additional)
    if node.root:
        fields.setdefault("apiVersion", GoField(name="apiVersion", schema=Schema(kind="string", name="string")))
        fields.setdefault("kind", GoField(name="kind", schema=Schema(kind="string", name="string")))
        fields["metadata"] = GoField(name="metadata", schema=meta_schema("ObjectMeta"))
    return Schema(
        kind=kind,
        name=node.type,
        fields=fields,
        items=items,
        list_type=node.list_type,
        list_keys=node.keys,
        map_type=node.map_type,
        preserve_unknown=node.preserve,
        embedded_resource=node.embedded,
        custom=node,
    )


def _field(name: str, child: Structural, parent: Structural) -> GoField:
    return GoField(name=name, schema=as_schema(child), required=name in parent.required, pointer=True)


def apply_defaults(node: Structural, value: Any) -> None:
    """Fill in what the schema says, for nulls too where they may not be."""
    if isinstance(value, dict):
        _default_object(node, value)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            apply_defaults(node.items, item)


def _default_object(node: Structural, value: Json) -> None:
    for name, child in node.properties.items():
        if node.root and name == "metadata":
            continue
        current = value.get(name, _MISSING)
        if child.default is not None and (current is _MISSING or (current is None and not child.nullable)):
            current = value[name] = copy.deepcopy(child.default)
        if isinstance(current, dict | list):
            apply_defaults(child, current)
    if node.additional is not None:
        for name in [n for n in value if n not in node.properties]:
            item = value[name]
            if item is None and not node.additional.nullable and node.additional.default is not None:
                value[name] = copy.deepcopy(node.additional.default)
            else:
                apply_defaults(node.additional, item)


def prune(node: Structural, value: Any) -> Any:
    """The value without fields that the schema does not know (a copy)."""
    if isinstance(value, dict):
        out = {}
        for name, item in value.items():
            child = node.properties.get(name)
            if node.root and name in ("apiVersion", "kind", "metadata"):
                out[name] = item
            elif child is not None:
                out[name] = prune(child, item)
            elif node.additional is not None:
                out[name] = prune(node.additional, item)
            elif node.preserve or (node.embedded and name in ("apiVersion", "kind", "metadata")):
                out[name] = item
        return out
    if isinstance(value, list) and node.items is not None:
        return [prune(node.items, item) for item in value]
    return value


def is_rich(node: Structural) -> bool:
    """Whether values of this node itself are more than their JSON."""
    return node.type == "number" or (node.type == "string" and node.raw.get("format") in FORMATS)
