"""Protobuf request bodies: kubectl from 1.32 on sends them for what it makes itself.

Field numbers and types come from the same type tree as everything else. Go writes zero values of plain fields too;
reading into normal form afterwards drops them.
"""

from __future__ import annotations

import base64
import struct
from datetime import UTC, datetime
from typing import Any

from dovetail.lab.apiserver.gocompat.gotime import stamp
from dovetail.lab.apiserver.registry import GoField, Schema

Json = dict[str, Any]
MAGIC = b"k8s\x00"


class ProtobufProblem(ValueError):
    """The bytes are no message of the type."""


def read(body: bytes, schema: Schema) -> tuple[str, str, Json]:
    """apiVersion, kind and document of an enveloped message."""
    api_version, kind, raw = _envelope(body)
    return api_version, kind, message(raw, schema)


def _envelope(body: bytes) -> tuple[str, str, bytes]:
    if not body.startswith(MAGIC):
        raise ProtobufProblem("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    api_version = kind = ""
    raw = b""
    for number, _, value in fields(body[4:]):
        if number == 1 and isinstance(value, bytes):
            for inner, _, text in fields(value):
                if inner == 1 and isinstance(text, bytes):
                    api_version = text.decode("utf-8", "replace")
                elif inner == 2 and isinstance(text, bytes):
                    kind = text.decode("utf-8", "replace")
        elif number == 2 and isinstance(value, bytes):
            raw = value
    return api_version, kind, raw


def read_delete_options(body: bytes) -> Json:
    from dovetail.lab.apiserver.kinds.types import meta_schema

    _, _, raw = _envelope(body)
    return message(raw, meta_schema("DeleteOptions"))


def fields(raw: bytes) -> list[tuple[int, int, int | bytes]]:
    """The fields of a message: number, wire type, value."""
    out: list[tuple[int, int, int | bytes]] = []
    position = 0
    size = len(raw)
    while position < size:
        tag, position = _varint(raw, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            out.append((number, wire, value))
        elif wire == 2:
            length, position = _varint(raw, position)
            if position + length > size:
                raise ProtobufProblem("unexpected EOF")
            out.append((number, wire, raw[position : position + length]))
            position += length
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            if position + width > size:
                raise ProtobufProblem("unexpected EOF")
            out.append((number, wire, raw[position : position + width]))
            position += width
        else:
            raise ProtobufProblem(f"proto: illegal wireType {wire}")
    return out


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(raw) or shift > 63:
            raise ProtobufProblem("unexpected EOF" if position >= len(raw) else "proto: integer overflow")
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7


_by_number: dict[int, tuple[Schema, dict[int, GoField], dict[int, Schema]]] = {}


def _numbered(schema: Schema) -> tuple[dict[int, GoField], dict[int, Schema]]:
    cached = _by_number.get(id(schema))
    if cached is None:
        own = {field.number: field for field in schema.fields.values() if field.number}
        cached = _by_number[id(schema)] = (schema, own, dict(schema.embedded))
    return cached[1], cached[2]


def message(raw: bytes, schema: Schema) -> Json:
    """A message as a document; fields of embedded structs stand where JSON has them."""
    own, embedded = _numbered(schema)
    out: Json = {}
    for number, _, value in fields(raw):
        field = own.get(number)
        if field is not None:
            _put(out, field, value)
        elif number in embedded and isinstance(value, bytes):
            out.update(message(value, embedded[number]))
    return out


def _put(out: Json, field: GoField, value: int | bytes) -> None:
    schema = field.schema
    if schema.kind == "array":
        assert schema.items is not None
        out.setdefault(field.name, []).append(scalar(schema.items, value))
    elif schema.kind == "map":
        assert schema.items is not None and isinstance(value, bytes)
        key, item = _entry(value, schema.items)
        out.setdefault(field.name, {})[key] = item
    else:
        read_value = scalar(schema, value)
        if read_value is not None:
            out[field.name] = read_value


def _entry(raw: bytes, items: Schema) -> tuple[str, Any]:
    key, value = "", _zero(items)
    for number, _, part in fields(raw):
        if number == 1 and isinstance(part, bytes):
            key = part.decode("utf-8", "replace")
        elif number == 2:
            value = scalar(items, part)
    return key, value


def _zero(schema: Schema) -> Any:
    return {"string": "", "integer": 0, "boolean": False, "quantity": "0", "bytes": ""}.get(schema.kind, {})


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def scalar(schema: Schema, value: int | bytes) -> Any:
    kind = schema.kind
    if isinstance(value, int):
        return bool(value) if kind == "boolean" else _signed(value)
    if kind == "string":
        return value.decode("utf-8", "replace")
    if kind == "object":
        return message(value, schema)
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if kind == "number":
        return struct.unpack("<d", value)[0]
    if kind == "array":
        return _wrapped_list(value, schema)
    return _special(kind, value)


def _wrapped_list(value: bytes, schema: Schema) -> list[Any]:
    """A list type of its own is a message with the items in field 1."""
    assert schema.items is not None
    return [scalar(schema.items, part) for number, _, part in fields(value) if number == 1]


def _special(kind: str, raw: bytes) -> Any:
    parts = {number: value for number, _, value in fields(raw)} if kind != "any" else {}
    if kind == "quantity":
        text = parts.get(1, b"0")
        return text.decode() if isinstance(text, bytes) and text else "0"
    if kind == "intorstring":
        if parts.get(1, 0) == 0:
            number = parts.get(2, 0)
            return _signed(number) if isinstance(number, int) else 0
        text = parts.get(3, b"")
        return text.decode() if isinstance(text, bytes) else ""
    if kind in ("time", "microtime"):
        return _time(kind, parts)
    if kind == "duration":
        nanos = parts.get(1, 0)
        return f"{_signed(nanos) / 1e9:g}s" if isinstance(nanos, int) else "0s"
    return _raw_json(raw)


def _time(kind: str, parts: dict[int, int | bytes]) -> str | None:
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ProtobufProblem("proto: wrong wireType for field Seconds")
    signed = _signed(seconds)
    if (signed == 0 and nanos == 0) or not -62135596800 < signed < 253402300800:
        return None
    moment = datetime.fromtimestamp(signed, UTC)
    if kind == "time":
        return stamp(moment)
    return moment.replace(microsecond=nanos // 1000).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _raw_json(raw: bytes) -> Any:
    """RawExtension and FieldsV1: a message whose field 1 is JSON text."""
    import msgspec

    for number, _, value in fields(raw):
        if number == 1 and isinstance(value, bytes) and value:
            try:
                return msgspec.json.decode(value)
            except msgspec.DecodeError as error:
                raise ProtobufProblem(str(error)) from error
    return None
