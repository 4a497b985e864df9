"""The order of keys in a message that shows a whole object: Go prints structs by declaration, maps by key."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Schema
from dovetail.model.validation.field_errors import go_json

Json = dict[str, Any]


def ordered(schema: Schema | None, value: Any) -> Any:
    """A value as Go would print it: struct fields as declared, everything else sorted."""
    if isinstance(value, dict):
        if schema is not None and schema.kind == "object" and schema.fields:
            declared = [name for name in schema.fields if name in value]
            names = list(dict.fromkeys([*declared, *sorted(value)]))
            return {name: ordered(_child(schema, name), value[name]) for name in names}
        return {name: ordered(_child(schema, name), value[name]) for name in sorted(value)}
    if isinstance(value, list):
        items = schema.items if schema is not None else None
        return [ordered(items, item) for item in value]
    return value


def _child(schema: Schema | None, name: str) -> Schema | None:
    if schema is None:
        return None
    field = schema.fields.get(name)
    return field.schema if field is not None else schema.items


#: Where all of a value came with a merge patch, and where it came with an operation of a JSON patch.
_SORTED, _AS_GIVEN = object(), object()


def patched(schema: Schema | None, value: Any, touched: Any) -> Any:
    """A patched object: what the patch went through was parsed into maps and comes out sorted."""
    if touched is _AS_GIVEN:
        return value
    if touched is _SORTED:
        return ordered(None, value)
    if touched is None:
        return ordered(schema, value)
    if isinstance(value, dict) and isinstance(touched, dict):
        out: Json = {}
        for name in sorted(value):
            out[name] = patched(_child(schema, name), value[name], touched.get(name))
        return out
    return ordered(schema, value)


def of_merge(patch: Any) -> Any:
    """What a merge patch goes through: every object in it, and all of what else it brings."""
    if not isinstance(patch, dict):
        return _SORTED
    return {name: of_merge(item) for name, item in patch.items()}


def of_json(operations: Any) -> Any:
    """What a JSON patch goes through: the containers on the way to each path, whose end it brings as it is."""
    touched: Json = {}
    for operation in operations if isinstance(operations, list) else []:
        for key in ("path", "from"):
            path = operation.get(key)
            if isinstance(path, str):
                here: Any = touched
                tokens = path.split("/")[1:]
                for token in tokens[:-1]:
                    here = here.setdefault(token, {}) if isinstance(here, dict) else {}
                if tokens and tokens[-1] != "-" and "value" in operation and isinstance(here, dict):
                    here[tokens[-1]] = _AS_GIVEN
    return touched


def text(schema: Schema | None, value: Any, touched: Any) -> str:
    return go_json(patched(schema, value, touched))
