"""Checking an applied configuration against the type tree, in the words of server-side apply."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver import fieldpath, structured_merge
from dovetail.lab.apiserver.gocompat.goprint import plain, syntax
from dovetail.lab.apiserver.registry import Schema

_ROOT = frozenset(("kind", "apiVersion", "metadata"))


def problems(schema: Schema, value: dict[str, Any]) -> list[str]:
    """Complaints, each with its path."""
    return [f"{path}: {text}" if path else text for path, text in _object(schema, value, top=True)]


def message(texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return "errors:\n" + "\n".join(f"  {text}" for text in texts)


Found = list[tuple[str, str]]


def _below(name: str, problems: Found) -> Found:
    prefix = fieldpath.show((name,))
    return [(prefix + path, text) for path, text in problems]


def _check(schema: Schema, value: Any) -> Found:
    if value is None:
        return []
    kind = schema.kind
    if kind == "any" or (schema.custom is not None and schema.custom.int_or_string):
        return []
    if kind in ("object", "map"):
        if not isinstance(value, dict):
            return [("", f"expected map, got {_shown(value)}")]
        return _object(schema, value)
    if kind == "array":
        if not isinstance(value, list):
            return [("", f"expected list, got {_shown(value)}")]
        return _array(schema, value)
    return _scalar(kind, value)


def _object(schema: Schema, value: dict[str, Any], top: bool = False) -> Found:
    problems: Found = []
    for name in sorted(value):
        if schema.kind == "object" and name not in schema.fields and not _open(schema, name, top):
            problems.append((f".{name}", "field not declared in schema"))
            break
        problems += _below("f:" + name, _check(structured_merge.child(schema, name), value[name]))
    return problems


def _open(schema: Schema, name: str, top: bool) -> bool:
    return (
        schema.preserve_unknown
        or ((top or schema.embedded_resource) and name in _ROOT)
        or (not schema.fields and bool(schema.custom))
    )


def _array(schema: Schema, value: list[Any]) -> Found:
    items = schema.items or structured_merge.ANY
    if not structured_merge.associative(schema):
        out: Found = []
        for index, item in enumerate(value):
            out += _below(f"i:{index}", _check(items, item))
        return out
    array: Found = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        problem = _keyless(schema, item)
        if problem:
            return [*array, ("", f"element {index}: {problem}")]
        name = structured_merge.element(schema, item)
        if name in seen:
            array.append(("", f"duplicate entries for key {fieldpath.show((name,))}"))
        seen.add(name)
        array += _below(name, _check(items, item))
    return array


def _keyless(schema: Schema, item: Any) -> str:
    if schema.list_type == "set":
        if isinstance(item, dict):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null" if item is None else ""
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    if structured_merge.element(schema, item) == "k:{}":
        keys = " ".join(f'"{name}"' for name in schema.list_keys)
        return (
            f"associative list with keys has an element that omits all key fields [{keys}] "
            "(and doesn't have default values for any key fields)"
        )
    return ""


def _scalar(kind: str, value: Any) -> Found:
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return [("", f"expected numeric (int or float), got {_go_type(value)}")]
    elif kind in ("string", "bytes"):
        if not isinstance(value, str):
            return [("", f"expected string, got &value.valueUnstructured{{Value:{syntax(value)}}}")]
    elif kind == "boolean":
        if not isinstance(value, bool):
            return [("", f"expected boolean, got {_shown(value)}")]
    elif isinstance(value, (dict, list)):
        return [("", f"expected any scalar, got {_shown(value)}")]
    return []


def _go_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "map[string]interface {}"
    return "[]interface {}"


def _shown(value: Any) -> str:
    """Go's %v of the wrapped value."""
    return "&{" + plain(value) + "}"
