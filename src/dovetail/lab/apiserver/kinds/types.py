"""The type tree of the built-in kinds, built once from the data tables."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from dovetail.lab.apiserver.registry import GoField, Schema, ValueKind

_DATA = Path(__file__).parent.parent / "data"
_META = "k8s.io/apimachinery/pkg/apis/meta/v1"
_SPECIAL: dict[str, ValueKind] = {
    f"{_META}.Time": "time",
    f"{_META}.MicroTime": "microtime",
    f"{_META}.Duration": "duration",
    f"{_META}.FieldsV1": "any",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "any",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "quantity",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "intorstring",
    "k8s.io/apimachinery/pkg/types.UID": "string",
    **{
        f"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.{name}": "any"
        for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
    },
}
_SCALARS: dict[str, ValueKind] = {
    "string": "string",
    "bool": "boolean",
    "int": "integer",
    "int32": "integer",
    "int64": "integer",
    "uint8": "integer",
    "float64": "number",
}
_BITS = {"int": 64, "int32": 32, "int64": 64, "uint8": 8}
_PACKAGES = {
    "": "k8s.io/api/core",
    "apps": "k8s.io/api/apps",
    "autoscaling": "k8s.io/api/autoscaling",
    "batch": "k8s.io/api/batch",
    "policy": "k8s.io/api/policy",
    "apiextensions.k8s.io": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions",
    "apiregistration.k8s.io": "k8s.io/kube-aggregator/pkg/apis/apiregistration",
    "metrics.k8s.io": "k8s.io/metrics/pkg/apis/metrics",
}


def packaged(name: str) -> Any:
    """A table that comes with the server."""
    return msgspec.json.decode((_DATA / name).read_bytes())


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = packaged("types.json")
    return table


def go_types() -> dict[str, Any]:
    """The types as Go declares them, by full name: the fields in order, or what a name stands for."""
    return _table()


@cache
def resources() -> list[dict[str, Any]]:
    """The served resources as discovery lists them."""
    rows: list[dict[str, Any]] = packaged("resources.json")
    return rows


def schema_of(group: str, version: str, kind: str) -> Schema:
    """The schema of a built-in kind."""
    package = _PACKAGES.get(group) or "k8s.io/api/" + group.split(".")[0]
    return _named(f"{package}/{version}.{kind}")


def meta_schema(name: str) -> Schema:
    """A type of the meta group: ObjectMeta, DeleteOptions, LabelSelector."""
    return _named(f"{_META}.{name}")


def _short(full: str) -> str:
    """The name Go's reflection prints: the last element of the package and the type."""
    return full.rsplit("/", 1)[-1]


def _definition(full: str) -> str:
    path, name = full.rsplit(".", 1)
    host, *rest = path.split("/")
    return ".".join([*reversed(host.split(".")), *rest, name])


@cache
def _named(full: str) -> Schema:
    bare = full.rsplit(".", 1)[1]
    if full in _SPECIAL:
        name = "v1.UID" if bare == "UID" else _short(full)
        return Schema(kind=_SPECIAL[full], name="types.UID" if bare == "UID" else name, definition=_definition(full))
    entry = _table().get(full)
    if entry is None:
        return Schema(kind="object", name=_short(full), struct=bare, definition=_definition(full))
    if "alias" in entry:
        base = _expression(entry["alias"])
        return Schema(
            kind=base.kind,
            name=_short(full),
            fields=base.fields,
            items=base.items,
            struct=base.struct,
            bits=base.bits,
            definition=_definition(full),
        )
    schema = Schema(
        kind="object",
        name=_short(full),
        struct=bare,
        definition=_definition(full),
        map_type=entry.get("map", ""),
        fields={},
    )
    _unfinished.append((schema, entry))
    _finish()
    return schema


_unfinished: list[tuple[Schema, dict[str, Any]]] = []
_copies: list[tuple[Schema, Schema]] = []  # a copy shares its original's fields, whenever they are filled in
_finishing = False


def _finish() -> None:
    """Fill in the fields of new structs, outermost call only: structs may contain themselves."""
    global _finishing
    if _finishing:
        return
    _finishing = True
    pending: list[tuple[Schema, dict[str, Any]]] = []
    while _unfinished:
        schema, entry = _unfinished.pop()
        pending.append((schema, entry))
        for declared in entry["fields"]:
            if not declared.get("inline"):
                schema.fields[declared["name"]] = _field(declared)
            else:
                _expression(declared["type"])
    _finishing = False
    done: set[int] = set()
    by_identity = {id(schema): (schema, entry) for schema, entry in pending}
    for schema, entry in pending:
        _inline(schema, entry, by_identity, done)
    for copy, original in _copies:
        copy.embedded = original.embedded
    _copies.clear()


def _inline(
    schema: Schema, entry: dict[str, Any], entries: dict[int, tuple[Schema, dict[str, Any]]], done: set[int]
) -> None:
    """Take the fields of inlined structs in, at their place."""
    if id(schema) in done:
        return
    done.add(id(schema))
    fields: dict[str, GoField] = {}
    embedded = []
    for declared in entry["fields"]:
        if not declared.get("inline"):
            fields[declared["name"]] = schema.fields[declared["name"]]
            continue
        inner = _expression(declared["type"])
        if id(inner) in entries:
            _inline(inner, entries[id(inner)][1], entries, done)
        if "number" in declared:
            embedded.append((declared["number"], inner))
        for name, field in inner.fields.items():
            fields[name] = _owned(field, inner.struct)
    schema.fields.clear()
    schema.fields.update(fields)
    schema.embedded = tuple(embedded)


def _owned(field: GoField, owner: str) -> GoField:
    copy = _copy_field(field)
    copy.owner = field.owner or owner
    copy.number = 0
    return copy


def _copy_field(field: GoField) -> GoField:
    return GoField(**{name: getattr(field, name) for name in GoField.__struct_fields__})


def _field(declared: dict[str, Any]) -> GoField:
    expression = declared["type"]
    schema = _expression(expression)
    if declared.get("list") or declared.get("map"):
        original = schema
        schema = Schema(**{name: getattr(original, name) for name in Schema.__struct_fields__})
        _copies.append((schema, original))
        schema.list_type = declared.get("list", "")
        schema.list_keys = tuple(declared.get("keys", ()))
        schema.map_type = declared.get("map", schema.map_type)
    return GoField(
        name=declared["name"],
        schema=schema,
        go_name=declared["go"],
        pointer=expression.startswith("*"),
        omitempty=not declared.get("always", False),
        omitzero=declared.get("omitzero", False),
        required=declared.get("required", False),
        number=declared.get("number", 0),
        patch_strategy=tuple(declared["strategy"].split(",")) if "strategy" in declared else (),
        merge_key=declared.get("key", ""),
        default=declared.get("default"),
        enum=tuple(declared.get("enum", ())),
    )


def _expression(text: str) -> Schema:
    if text.startswith("*"):
        return _expression(text[1:])
    if text in ("[]byte", "[]uint8"):
        return Schema(kind="bytes", name="[]uint8")
    if text.startswith("[]"):
        items = _expression(text[2:])
        star = "*" if text[2:].startswith("*") else ""
        return Schema(kind="array", name=f"[]{star}{items.name}", items=items)
    if text.startswith("map["):
        key, _, value = text.removeprefix("map[").partition("]")
        items = _expression(value)
        star = "*" if value.startswith("*") else ""
        return Schema(kind="map", name=f"map[{_short(key)}]{star}{items.name}", items=items)
    if text in _SCALARS:
        return Schema(kind=_SCALARS[text], name=text, bits=_BITS.get(text, 0))
    return _named(text)
