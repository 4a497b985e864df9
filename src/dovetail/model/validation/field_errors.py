"""Field errors: what is wrong with which field, in the words and the printing of the real server.

Messages show Go values (quoted strings, compact JSON with HTML escapes), so the printing lives here, once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

_WORDS = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTooFew": "Too few",
    "InternalError": "Internal error",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueTooShort": "Too short",
}
_WITHOUT_VALUE = frozenset(
    ("FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "FieldValueTooShort", "InternalError")
)
_PLAIN = re.compile(r"[ !#-\[\]-~]*")
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", '"': '\\"'}
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


class Omitted:
    """The value of an error whose message shows none."""


OMIT = Omitted()


class Verbatim(str):
    """A value printed as it stands: what Go would print for a struct that JSON cannot show."""


class FieldError(msgspec.Struct, frozen=True):
    """One complaint: `type` is the cause's reason, `field` a path such as `spec.containers[0].name`."""

    type: str
    field: str
    value: Any
    detail: str

    def body(self) -> str:
        """The text without the field: the `message` of a cause."""
        text = _WORDS[self.type]
        if self.type not in _WITHOUT_VALUE and self.value is not OMIT:
            text = f"{text}: {shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"

    def cause(self) -> dict[str, str]:
        cause = {"reason": self.type, "message": self.body(), "field": self.field}
        return {key: value for key, value in cause.items() if value}


def quoted(text: str) -> str:
    """A string as Go's %q prints it."""
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return '"' + "".join(_quoted_rune(rune) for rune in text) + '"'


def _quoted_rune(rune: str) -> str:
    if rune in _ESCAPES:
        return _ESCAPES[rune]
    if rune == "\\":
        return "\\\\"
    if rune.isprintable():
        return rune
    code = ord(rune)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def go_json(value: Any) -> str:
    """Compact JSON as Go's encoder writes it: HTML characters escaped, keys in the order given."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    if any(char in text for char in "<>&\u2028\u2029"):
        text = "".join(_HTML.get(char, char) for char in text)
    return text


def go_float(value: float) -> str:
    """A float as Go's %v prints it: shortest form, exponent from 1e21 on and below 1e-4."""
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return text
    return f"{mantissa}e{exponent[0] if exponent[0] in '+-' else '+'}{exponent.lstrip('+-').zfill(2)}"


def shown(value: Any) -> str:
    """A bad value as the message prints it."""
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return go_float(value)
    return go_json(value)


def required(field: str, detail: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, "", detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, value, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, value, "")


def not_found(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueNotFound", field, value, "")


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, "", detail)


def unsupported(field: str, value: Any, supported: Sequence[str]) -> FieldError:
    detail = "supported values: " + ", ".join(quoted(item) for item in supported) if supported else ""
    return FieldError("FieldValueNotSupported", field, value, detail)


def too_long(field: str, limit: int, unit: str = "byte") -> FieldError:
    detail = f"may not be more than {limit} {unit}{'' if limit == 1 else 's'}" if limit >= 0 else "value is too long"
    return FieldError("FieldValueTooLong", field, "<value omitted>", detail)


def too_many(field: str, actual: int, limit: int) -> FieldError:
    detail = f"must have at most {limit} item{'' if limit == 1 else 's'}" if limit >= 0 else "has too many items"
    return FieldError("FieldValueTooMany", field, actual if actual >= 0 else OMIT, detail)


def internal(field: str, detail: str) -> FieldError:
    return FieldError("InternalError", field, detail, detail)
