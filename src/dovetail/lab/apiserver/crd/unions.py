"""The places of a schema where one of several forms may stand: a schema or a list, a schema or a boolean.

The decoder leaves them as they came; here they take the form that Go's types would give them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dovetail.lab.apiserver.canonicalize import normalise
from dovetail.lab.apiserver.kinds.types import schema_of
from dovetail.lab.apiserver.registry import Object, RequestRefused, Schema

_KIND = "CustomResourceDefinition"
_MAPS = ("properties", "patternProperties", "definitions")
_LISTS = ("allOf", "anyOf", "oneOf")


@cache
def _props() -> Schema:
    versions = schema_of("apiextensions.k8s.io", "v1", _KIND).fields["spec"].schema.fields["versions"].schema
    assert versions.items is not None
    return versions.items.fields["schema"].schema.fields["openAPIV3Schema"].schema


def _refuse(text: str) -> RequestRefused:
    return RequestRefused(400, "BadRequest", f'{_KIND} in version "v1" cannot be handled as a {_KIND}: {text}')


def _read(value: Any) -> Object:
    made, reading = normalise(_props(), value)
    if reading.error is not None:
        raise _refuse(reading.error)
    settle(made)
    return made  # type: ignore[no-any-return]


def settle(schema: Any) -> None:
    """Give every union below a schema its form, in place."""
    if not isinstance(schema, dict):
        return
    for name in ("items", "additionalProperties", "additionalItems"):
        if name not in schema:
            continue
        value = schema[name]
        if isinstance(value, dict):
            schema[name] = _read(value)
        elif value is None:
            del schema[name]
        elif name == "items" and isinstance(value, list):
            schema[name] = [_read(item) for item in value]
        elif not (isinstance(value, bool) and name != "items"):
            raise _refuse("boolean or JSON schema expected" if name != "items" else "expected { or [")
    for name in _MAPS:
        for child in (schema.get(name) or {}).values():
            settle(child)
    for name in _LISTS:
        for child in schema.get(name) or ():
            settle(child)
    settle(schema.get("not"))
