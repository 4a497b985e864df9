"""Pruning: custom resources keep the fields their schema knows; metadata is read as ObjectMeta.

Nulls that the schema neither allows nor replaces fall away too, unless they were applied: those are for validation.
"""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.canonicalize import At, Reading, path_of, read_object
from dovetail.lab.apiserver.registry import Schema

Json = dict[str, Any]


class _Pruning(Reading):
    """One walk, and whether it lets nulls be."""

    __slots__ = ("applied",)

    def __init__(self, applied: bool) -> None:
        super().__init__()
        self.applied = applied

    def drops(self, schema: Schema, value: Any) -> bool:
        node = schema.custom
        return value is None and not self.applied and node is not None and not node.nullable and node.default is None


def prune(schema: Schema, value: Json, applied: bool = False) -> tuple[Json, str | None, list[str]]:
    """The object without unknown fields, the first type error of its metadata, and the unknown fields."""
    reading = _Pruning(applied)
    metadata = schema.fields["metadata"].schema if "metadata" in schema.fields else None
    out: Json = {}
    for name, item in value.items():
        if name in ("kind", "apiVersion"):
            out[name] = item
        elif name == "metadata" and metadata is not None:
            if item is not None:
                out[name] = _metadata(reading, metadata, item)
        elif name in schema.fields:
            if not reading.drops(schema.fields[name].schema, item):
                out[name] = _prune(reading, schema.fields[name].schema, item, (None, name))
        elif schema.preserve_unknown:
            out[name] = item
        else:
            reading.unknown.append(f'unknown field "{name}"')
    out.setdefault("metadata", {})
    return out, reading.error, reading.unknown


def _metadata(reading: Reading, schema: Schema, value: Any) -> Any:
    """Metadata is decoded on its own: type errors do not say where it stood, unknown fields do."""
    own = Reading()
    read = read_object(own, schema, value, None, "ObjectMeta")
    if own.error is not None:
        reading.fail(own.error)
    reading.unknown += [text.replace('"', '"metadata.', 1) for text in own.unknown]
    return read


def _prune(reading: _Pruning, schema: Schema, value: Any, location: At) -> Any:
    if isinstance(value, dict):
        return _prune_object(reading, schema, value, location)
    if isinstance(value, list) and schema.kind != "any" and not schema.preserve_unknown:
        items = schema.items if schema.kind == "array" and schema.items is not None else _NOTHING_KNOWN
        return [_prune(reading, items, item, (location, index)) for index, item in enumerate(value)]
    return value


#: What a list is made of where none should be.
_NOTHING_KNOWN = Schema("object")


def _prune_object(reading: _Pruning, schema: Schema, value: Json, location: At) -> Json:
    if schema.kind == "map" and schema.items is not None:
        items = schema.items
        kept = ((name, item) for name, item in value.items() if not reading.drops(items, item))
        return {name: _prune(reading, items, item, (location, name)) for name, item in kept}
    if schema.kind == "any":
        return value
    out: Json = {}
    for name, item in value.items():
        field = schema.fields.get(name)
        if field is not None:
            if not reading.drops(field.schema, item):
                out[name] = _prune(reading, field.schema, item, (location, name))
        elif schema.preserve_unknown or (schema.embedded_resource and name in ("kind", "apiVersion", "metadata")):
            out[name] = item
        else:
            reading.unknown.append(f'unknown field "{path_of((location, name))}"')
    return out
