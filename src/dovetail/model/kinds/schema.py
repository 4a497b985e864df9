"""How a field of our kinds is described once, for the API server, for lint and for the reader.

A struct's field carries a `Field` in its annotation. From it come the CRD's OpenAPI schema (`schema_of`) and
our own checks without a server (`dovetail.model.kinds.admission`). A `SchemaRule` says its condition twice, in CEL for
the API server and in Python for us; a test on a real API server holds the two together.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

Json = dict[str, Any]

QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


class SchemaRule(msgspec.Struct, frozen=True):
    """`holds` raises KeyError where CEL finds no such key; `moves` is for rules that compare with the old value."""

    cel: str
    message: str
    holds: Callable[[Any], bool] | None = None
    moves: Callable[[Any, Any], bool] | None = None


class Field(msgspec.Struct, frozen=True):
    """What a field means and may hold. `each` describes the members of a list or map."""

    description: str = ""
    required: bool = False
    pattern: str | None = None
    format: str | None = None
    enum: tuple[str, ...] | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    default: Any = None
    rules: tuple[SchemaRule, ...] = ()
    each: Field | None = None
    list_type: str | None = None
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None
    quantity: bool = False
    open: bool = False


_CONSTRAINTS = (
    ("pattern", "pattern"),
    ("format", "format"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("max_properties", "maxProperties"),
    ("default", "default"),
    ("list_type", "x-kubernetes-list-type"),
    ("map_type", "x-kubernetes-map-type"),
)


def schema_of(struct: type[msgspec.Struct], field: Field | None = None) -> Json:
    """The structural schema of a struct, properties in alphabetical order."""
    properties: Json = {}
    required: list[str] = []
    for name, annotation in _members(struct).items():
        kind, inner = _split(annotation)
        properties[name] = _schema(kind, inner)
        if inner.required:
            required.append(name)
    schema: Json = {"type": "object", "properties": dict(sorted(properties.items()))}
    if required:
        schema["required"] = sorted(required)
    return _decorate(schema, field or Field())


def members(struct: type[msgspec.Struct]) -> Mapping[str, tuple[Any, Field]]:
    """Wire name -> (type, description) of a struct's fields."""
    return {name: _split(annotation) for name, annotation in _members(struct).items()}


def _members(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct, include_extras=True)
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {wire: hints[name] for name, wire in names}


def _split(annotation: Any) -> tuple[Any, Field]:
    """The bare type and the Field of an annotation; `X | None` is X."""
    field = Field()
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        field = next((extra for extra in extras if isinstance(extra, Field)), field)
    return strip_optional(annotation), field


def strip_optional(annotation: Any) -> Any:
    if get_origin(annotation) in (Union, types.UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not type(None)]
        if len(choices) == 1:
            inner, _ = _split(choices[0])
            return inner
    return annotation


def _schema(kind: Any, field: Field) -> Json:
    if field.quantity:
        schema: Json = {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": True,
        }
        return _decorate(schema, field)
    if field.open:
        return _decorate({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, field)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return schema_of(kind, field)
    origin = get_origin(kind)
    if origin is tuple:
        inner, described = _split(get_args(kind)[0])
        return _decorate({"type": "array", "items": _schema(inner, field.each or described)}, field)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        inner, described = _split(get_args(kind)[1])
        return _decorate({"type": "object", "additionalProperties": _schema(inner, field.each or described)}, field)
    return _decorate(_scalar(kind), field)


def _scalar(kind: Any) -> Json:
    if kind is datetime:
        return {"type": "string", "format": "date-time"}
    names = {str: "string", int: "integer", bool: "boolean", float: "number"}
    return {"type": names[kind]}


def _decorate(schema: Json, field: Field) -> Json:
    if field.description:
        schema = {"description": field.description, **schema}
    for attribute, keyword in _CONSTRAINTS:
        value = getattr(field, attribute)
        if value is not None:
            schema[keyword] = value
    if field.enum:
        schema["enum"] = list(field.enum)
    if field.list_keys:
        schema["x-kubernetes-list-map-keys"] = list(field.list_keys)
    if field.rules:
        schema["x-kubernetes-validations"] = [{"message": rule.message, "rule": rule.cel} for rule in field.rules]
    return schema
