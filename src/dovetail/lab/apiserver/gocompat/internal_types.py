"""Objects as the server's internal types print them.

Some messages show a value of an internal struct as JSON: every field, under its Go name, in Go's order. The same
document as users know it goes in, that form comes out.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from typing import Any

from dovetail.lab.apiserver.kinds.types import packaged

_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "int": 0, "float64": 0}
_POD_SECURITY = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")


@cache
def _table() -> dict[str, list[list[str]]]:
    table: dict[str, list[list[str]]] = packaged("internal.json")
    return table


def internal(kind: str, value: Any) -> Any:
    """A document of the Go type `kind` ("core.PodSpec", "[]core.Container") as the internal type prints it."""
    if kind.startswith("*"):
        return None if value is None else internal(kind[1:], value)
    if kind.startswith("[]"):
        return None if value is None else [internal(kind[2:], item) for item in value]
    if kind.startswith("map["):
        inner = kind.split("]", 1)[1]
        return None if value is None else {key: internal(inner, value[key]) for key in sorted(value)}
    if kind in _ZEROS:
        return _ZEROS[kind] if value is None else value
    fields = _table().get(kind)
    if fields is None:
        return _foreign(kind, value)
    if fields and fields[0][0] == "=":
        return internal(fields[0][1], value)
    return _struct(kind, fields, value or {})


def _foreign(kind: str, value: Any) -> Any:
    """Types that print as users know them: quantities, times, metadata."""
    if value is None:
        return {"resource.Quantity": "0", "intstr.IntOrString": 0}.get(kind)
    return value


def _struct(kind: str, fields: list[list[str]], value: dict[str, Any]) -> dict[str, Any]:
    names = {name.lower(): name for name in value}
    shown: dict[str, Any] = {}
    for name, inner in fields:
        if not name:
            shown |= _metadata(value) if inner == "metav1.ObjectMeta" else internal(inner, value) or {}
            continue
        own = value.get(names.get(name.lower(), ""))
        if kind == "core.PodSpec" and name == "SecurityContext":
            own = {field: value[field] for field in _POD_SECURITY if field in value} | (own or {})
        shown[name] = internal(inner, own)
    return shown


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    meta = value.get("metadata") or {}
    return {k: dict(sorted(v.items())) if isinstance(v, dict) else v for k, v in meta.items()}


def difference(kind: str, old: Any, new: Any) -> str:
    """The unified diff of two values, as the message of a forbidden pod update shows it."""
    before = (_pretty(internal(kind, old)) + "\n").splitlines(keepends=True)
    after = (_pretty(internal(kind, new)) + "\n").splitlines(keepends=True)
    return "".join(list(difflib.unified_diff(before, after, n=3))[2:])


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
