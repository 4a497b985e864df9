"""Reading a strategically patched object back: what does not fit is named in the words of Go's converter."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver import canonicalize
from dovetail.lab.apiserver.registry import Schema

_GO_KINDS = {"integer": "int", "number": "float64", "boolean": "bool", "string": "string"}


def problem(schema: Schema, value: Any, fits: Any = None) -> str:
    """The first thing that does not fit, in the order of the struct's fields; nothing if all fits.

    `fits` is what was there before: where it is the very same value, there is nothing to look for.
    """
    if value is None:
        return ""
    kind = schema.kind
    if kind == "object":
        return _struct(schema, value, fits)
    if kind == "map":
        return _map(schema, value)
    if kind == "array":
        return _list(schema, value)
    if kind in _GO_KINDS:
        return _scalar(schema, value)
    if kind == "any":
        return ""
    reading = canonicalize.Reading()
    canonicalize.READERS[kind](reading, schema, value, None, "")
    if reading.error and kind == "bytes":
        return f"error decoding from json: {reading.error}"
    return reading.error or ""


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "map"
    if isinstance(value, list):
        return "slice"
    return "int64" if isinstance(value, int) else "float64"


def _struct(schema: Schema, value: Any, fits: Any) -> str:
    if not isinstance(value, dict):
        return f"cannot restore struct from: {_kind(value)}"
    fields = fits if isinstance(fits, dict) else {}
    for name, field in schema.fields.items():
        if name in value:
            item, before = value[name], fields.get(name)
            struct = "" if item is before else problem(field.schema, item, before)
            if struct:
                return struct
    return ""


def _map(schema: Schema, value: Any) -> str:
    if not isinstance(value, dict):
        return f"cannot restore map from {_kind(value)}"
    items = schema.items
    problems = (problem(items, item) for _, item in sorted(value.items())) if items is not None else iter(())
    return next((problem for problem in problems if problem), "")


def _list(schema: Schema, value: Any) -> str:
    if not isinstance(value, list):
        return f"cannot restore slice from {_kind(value)}"
    items = schema.items
    problems = (problem(items, item) for item in value) if items is not None else iter(())
    return next((problem for problem in problems if problem), "")


def _scalar(schema: Schema, value: Any) -> str:
    source, kind = _kind(value), schema.kind
    target = f"int{schema.bits or 64}" if kind == "integer" else _GO_KINDS[kind]
    if kind == "string":
        if source == "string":
            return ""
        return (
            f"cannot convert {source} to {schema.name or 'string'}"
            if source == "int64"
            else f"unrecognized type: {target}"
        )
    if kind == "boolean":
        return "" if source == "bool" else f"unrecognized type: {target}"
    if source == "int64" or (source == "float64" and (kind == "number" or value == int(value))):
        return ""
    return f"cannot convert {source} to {target}" if source == "float64" else f"unrecognized type: {target}"
