"""Values that JSON has not: durations, timestamps, quantities, URLs, addresses, optional values, types."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from dovetail.lab.apiserver.crd.cel.errors import CelError, no_overload
from dovetail.model import duration as go_duration
from dovetail.model.quantity import Quantity


class Optional:
    """optional.of(x), optional.none()."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, present: bool = True) -> None:
        self.value = value
        self.present = present

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optional) and (self.present, self.value) == (other.present, other.value)

    def __hash__(self) -> int:
        return hash((self.present, repr(self.value)))


NONE = Optional(present=False)


class Fields:
    """A value with fields of its own, which may be made when they are read."""

    def field(self, name: str) -> Any:
        raise CelError(f"no such key: {name}")

    def has(self, name: str) -> bool:
        return False


class Members:
    """A value whose methods expressions may call by the names in `CALLABLE`."""

    CALLABLE: frozenset[str] = frozenset()

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name not in self.CALLABLE:
            raise no_overload()
        return getattr(self, name)(*arguments)


class Message(Fields):
    """An object that an expression makes: `Object.spec{replicas: 3}`, `JSONPatch{op: "add", path: "/x"}`."""

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        self.type_name = type_name
        self.fields = fields

    def field(self, name: str) -> Any:
        if name not in self.fields:
            raise CelError(f"no such key: {name}")
        return self.fields[name]

    def has(self, name: str) -> bool:
        return name in self.fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.type_name, self.fields) == (other.type_name, other.fields)

    def __hash__(self) -> int:
        return hash((self.type_name, repr(self.fields)))


class Type:
    """A type as a value: `type(self.x) == string`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


_TYPES: list[tuple[type, str]] = [
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (timedelta, "google.protobuf.Duration"),
    (datetime, "google.protobuf.Timestamp"),
    (type(None), "null_type"),
    (Optional, "optional_type"),
    (Quantity, "kubernetes.Quantity"),
    (Type, "type"),
]


def type_of(value: Any) -> Type:
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return Type(name)
    return Type(type(value).__name__)


def same(left: Any, right: Any) -> bool:
    """Equality: numbers compare across types, nothing else does."""
    if left is right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool) and left == right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return bool(left == right)


def parse_duration(text: str) -> timedelta:
    try:
        return go_duration.parse(text)
    except ValueError as error:
        raise CelError("type conversion error from 'string' to 'google.protobuf.Duration'") from error


def parse_timestamp(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CelError("type conversion error from 'string' to 'google.protobuf.Timestamp'") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class Url:
    __slots__ = ("parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = urlsplit(text)
        if not (self.parts.scheme or text.startswith("/")):
            raise CelError(f"URL parse error during conversion from string: parse {text!r}: invalid URI for request")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Cidr:
    """A network with the address it was written with."""

    __slots__ = ("interface",)

    def __init__(self, text: str) -> None:
        if "/" not in text:
            raise CelError(f"network address parse error during conversion from string: invalid CIDR: {text}")
        try:
            self.interface = ipaddress.ip_interface(text)
        except ValueError as error:
            raise CelError(f"network address parse error during conversion from string: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr) and self.interface == other.interface

    def __hash__(self) -> int:
        return hash(self.interface)


def address(text: str) -> Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        why = f'ParseAddr("{text}"): unable to parse IP'
        raise CelError(f'IP Address "{text}" parse error during conversion from string: {why}') from error


def ordered(left: Any, right: Any) -> bool:
    """Whether two values can be compared by size."""
    if isinstance(left, bool) or isinstance(right, bool):
        return isinstance(left, bool) and isinstance(right, bool)
    if isinstance(left, int | float) and isinstance(right, int | float):
        return True
    return type(left) is type(right) and isinstance(left, str | bytes | timedelta | datetime)


def need(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise no_overload()
    return value
