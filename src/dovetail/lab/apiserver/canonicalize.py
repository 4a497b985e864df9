"""Normal form: a decoded body as Go's types would hold and print it again.

Built-in kinds are read through their Go structs on the real server. What that does to a document is done here once:
unknown fields fall away and are reported, wrong types are refused in Go's words, zero values of `omitempty` fields
vanish, fields without it appear, quantities and times become canonical.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dovetail.lab.apiserver.gocompat import gotime
from dovetail.lab.apiserver.registry import GoField, Schema
from dovetail.model import quantity

Json = dict[str, Any]
#: Where we are: (parent, field name or index), None at the top.
At = tuple[Any, str | int] | None

_SCALAR_ZERO: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "bytes": None,
    "duration": "0s",
}
#: Empty lists, by struct and field, that stay until validation refuses them; absent ones get defaults.
_REFUSED_IF_EMPTY = frozenset({("HPAScalingRules", "policies")})
_STRUCT_KINDS = frozenset(("object", "time", "microtime", "quantity", "intorstring", "duration"))


class DecodeError(ValueError):
    """Go could not put the document into the type."""


class Embedded(str):
    """The name of a struct that Go embeds: errors of types name it on the way, other paths do not."""


class FieldReader:
    """A field, ready for reading."""

    __slots__ = ("default", "drop_zero", "embedded", "name", "read", "schema", "struct")

    def __init__(self, field: GoField, schema: Schema) -> None:
        self.name = field.name
        self.schema = field.schema
        self.struct = schema.struct
        self.embedded = Embedded(field.owner) if field.owner else None
        kind = field.schema.kind
        self.read = READERS[kind]
        is_kept = (schema.struct, field.name) in _REFUSED_IF_EMPTY
        self.drop_zero = field.omitempty and not field.pointer and kind not in _STRUCT_KINDS and not is_kept
        self.default = _default_of(field)


def _default_of(field: GoField) -> Callable[[], Any] | None:
    """What is printed for an absent field; None: nothing."""
    kind = field.schema.kind
    if field.pointer:
        return None if field.omitempty else lambda: None
    if kind in _STRUCT_KINDS:
        if field.omitzero:
            return None
        if kind == "object":
            return lambda: zero(field.schema)
        if kind in ("time", "microtime"):
            return lambda: None
        value: Any = {"quantity": "0", "intorstring": 0, "duration": "0s"}[kind]
        return lambda: value
    if field.omitempty:
        return None
    if kind in ("array", "map", "any"):
        return lambda: None
    scalar = _SCALAR_ZERO[kind]
    return lambda: scalar


class StructPlan:
    """The slots of a struct, and what to print when they are absent."""

    __slots__ = ("always", "slots")

    def __init__(self, schema: Schema) -> None:
        self.slots = {name: FieldReader(field, schema) for name, field in schema.fields.items()}
        self.always = [(slot.name, slot.default) for slot in self.slots.values() if slot.default is not None]


_plans: dict[int, tuple[Schema, StructPlan]] = {}


def plan_of(schema: Schema) -> StructPlan:
    cached = _plans.get(id(schema))
    if cached is None:
        cached = _plans[id(schema)] = (schema, StructPlan(schema))
    return cached[1]


def zero(schema: Schema) -> Json:
    """An empty struct, as printed."""
    return {name: default() for name, default in plan_of(schema).always if default is not None}


class Reading:
    """One walk: the first type error, and what strict decoding would complain about, in document order.

    A type that reads itself ends the walk when it cannot: its complaint comes before those of mere types.
    """

    __slots__ = ("ended", "error", "unknown")

    def __init__(self) -> None:
        self.error: str | None = None
        self.ended = False
        self.unknown: list[str] = []

    def fail(self, text: str) -> None:
        if self.error is None:
            self.error = text

    def end(self, text: str) -> None:
        if not self.ended:
            self.error, self.ended = text, True

    def mistyped(self, value: Any, schema: Schema, struct: str, location: At) -> None:
        where = f"Go struct field {struct}.{_dotted(location)}" if location is not None else "Go value"
        self.fail(f"json: cannot unmarshal {go_value(value)} into {where} of type {schema.name}")


def _dotted(location: At) -> str:
    names: list[str] = []
    while location is not None:
        location, name = location
        if isinstance(name, str):
            names.append(name)
    return ".".join(reversed(names))


def path_of(location: At) -> str:
    """`spec.containers[0].image`, as strict decoding names a field."""
    parts: list[str] = []
    while location is not None:
        location, name = location
        if isinstance(name, Embedded):
            continue
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
    return "".join(reversed(parts)).removeprefix(".")


def go_value(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "number"


def normalise(schema: Schema, value: Any) -> tuple[Any, Reading]:
    """`value` in normal form, with what there was to complain about."""
    reading = Reading()
    return read_object(reading, schema, value, None, schema.struct), reading


def read_object(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is not dict:
        reading.mistyped(value, schema, struct, location)
        return zero(schema)
    plan = plan_of(schema)
    slots = plan.slots
    out: Json = {}
    for name, item in value.items():
        slot = slots.get(name)
        if slot is None:
            reading.unknown.append(f'unknown field "{path_of((location, name))}"')
            continue
        if item is None:
            continue
        place = (location, name) if slot.embedded is None else ((location, slot.embedded), name)
        read = slot.read(reading, slot.schema, item, place, slot.struct)
        if read or not slot.drop_zero:
            out[name] = read
    for name, default in plan.always:
        if name not in out and default is not None:
            out[name] = default()
    return out


def settle(schema: Schema, value: Any) -> None:
    """An empty list that is always printed is printed as null once it was stored. In place: the object is our own."""
    if isinstance(value, list):
        for item in value:
            settle(schema.items, item) if schema.items is not None else None
        return
    if not isinstance(value, dict):
        return
    for name, item in value.items():
        field = schema.fields.get(name)
        child = field.schema if field is not None else schema.items
        if child is None:
            continue
        if item == [] and child.kind == "array":
            value[name] = None
        elif item:
            settle(child, item)


def read_array(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is not list:
        reading.mistyped(value, schema, struct, location)
        return None
    items = schema.items
    assert items is not None
    read = READERS[items.kind]
    out: list[Any] = []
    for index, item in enumerate(value):
        if item is None:
            out.append(_null_item(items))
        else:
            out.append(read(reading, items, item, (location, index), struct))
    return out


def _null_item(schema: Schema) -> Any:
    if schema.kind == "object":
        return zero(schema)
    return _SCALAR_ZERO.get(schema.kind, {"quantity": "0", "intorstring": 0}.get(schema.kind))


def read_map(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is not dict:
        reading.mistyped(value, schema, struct, location)
        return None
    items = schema.items
    assert items is not None
    if items.kind == "string":
        for item in value.values():
            if type(item) is not str:
                break
        else:
            return value or None
    read = READERS[items.kind]
    out: Json = {}
    for name, item in value.items():
        out[name] = _null_item(items) if item is None else read(reading, items, item, location, struct)
    return out or None


def read_string(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is str:
        return value
    reading.mistyped(value, schema, struct, location)
    return ""


def read_integer(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is int:
        bits = schema.bits or 64
        if -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            return value
    if type(value) is int or type(value) is float:
        text = str(value) if type(value) is int else repr(value)
        where = f"Go struct field {struct}.{_dotted(location)}"
        reading.fail(f"json: cannot unmarshal number {text} into {where} of type {schema.name}")
        return 0
    reading.mistyped(value, schema, struct, location)
    return 0


def read_number(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is int or type(value) is float:
        return value
    reading.mistyped(value, schema, struct, location)
    return 0


def read_boolean(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is bool:
        return value
    reading.mistyped(value, schema, struct, location)
    return False


@lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    return str(quantity.parse(text))


def read_quantity(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is str:
        text = value
    elif type(value) in (int, float):
        text = repr(value)
    else:
        text = go_value(value)
    try:
        return _canonical(text.strip())
    except ValueError as error:
        reading.end(str(error))
        return "0"


def read_intorstring(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is str:
        return value
    if type(value) is int and -(1 << 31) <= value < 1 << 31:
        return value
    shown = f"number {value!r}" if type(value) in (int, float) else go_value(value)
    reading.end(f"json: cannot unmarshal {shown} into Go struct field {struct}.{_dotted(location)} of type int32")
    return 0


def read_time(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is not str:
        where = f"Go struct field {struct}.{_dotted(location)}"
        reading.end(f"json: cannot unmarshal {go_value(value)} into {where} of type string")
        return None
    try:
        return gotime.micro(value) if schema.kind == "microtime" else gotime.seconds(value)
    except ValueError as error:
        reading.end(str(error))
        return None


def read_bytes(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    if type(value) is not str:
        reading.mistyped(value, schema, struct, location)
        return ""
    try:
        b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        reading.fail(f"illegal base64 data at input byte {_illegal_at(value)}")
    return value


def _illegal_at(text: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for index, char in enumerate(text):
        if char not in alphabet and char not in "\r\n":
            return index
    return len(text) // 4 * 4


def read_any(reading: Reading, schema: Schema, value: Any, location: At, struct: str) -> Any:
    return value


READERS: dict[str, Callable[[Reading, Schema, Any, At, str], Any]] = {
    "object": read_object,
    "array": read_array,
    "map": read_map,
    "string": read_string,
    "integer": read_integer,
    "number": read_number,
    "boolean": read_boolean,
    "quantity": read_quantity,
    "intorstring": read_intorstring,
    "time": read_time,
    "microtime": read_time,
    "duration": read_any,
    "bytes": read_bytes,
    "any": read_any,
}
