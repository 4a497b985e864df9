"""The hashes in generated names, as Kubernetes makes them.

A ReplicaSet's name ends in a hash of its pod template, and users see it in every listing. Kubernetes hashes the text
that a Go debugging printer makes of the typed template, with every field and type named; so the same text is written
here from the table of types. What the wire leaves out is printed as its zero value: absent and empty are the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from dovetail.lab.apiserver.kinds.types import go_types
from dovetail.lab.controllers.views import Json

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_TEMPLATE = "k8s.io/api/core/v1.PodTemplateSpec"
_PORT = "k8s.io/api/discovery/v1.EndpointPort"
_QUANTITY = re.compile(r"([+-]?)0*(\d*)(?:\.(\d*))?(.*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DIGITS = 18


def template_hash(template: Json, collisions: int | None = None) -> str:
    """The suffix of ReplicaSets and of the revisions of DaemonSets."""
    text = dump(template).encode()
    if collisions is not None:
        text += collisions.to_bytes(8, "little")
    value = 2166136261
    for byte in text:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return _safe_encoded(value)


def revision_hash(data: Json, collisions: int = 0) -> str:
    """The suffix of the revisions of StatefulSets: over the JSON that they keep."""
    text = msgspec.json.encode(data, order="sorted")
    for char in (b"&", b"<", b">"):
        text = text.replace(char, b"\\u00%02x" % char[0])
    value = 2166136261
    for byte in text + str(collisions).encode():
        value = (value * 16777619 & 0xFFFFFFFF) ^ byte
    return _safe_encoded(value)


def port_hash(port: Json) -> int:
    """What the ports of an EndpointSlice are ordered by."""
    value = 0x6C62272E07BB014262B821756295C58D
    for byte in _typed(_PORT, port).encode():
        value = (value ^ byte) * 0x0000000001000000000000000000013B & (1 << 128) - 1
    return value


def _safe_encoded(value: int) -> str:
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(value))


def dump(template: Json) -> str:
    """The template as the printer writes it."""
    return _typed(_TEMPLATE, template)


def _short(name: str) -> str:
    """A type as Go prints it: packages by their last element."""
    return re.sub(r"[\w.-]+(?:/[\w.-]+)*/([\w-]+\.\w+)", r"\1", name)


def _typed(name: str, value: Any) -> str:
    if name.startswith("*"):
        inner = "<nil>" if value is None else _plain(name[1:], value)
        return f"({_short(name)}){inner}"
    return f"({_short(name)}){_plain(name, value)}"


def _plain(name: str, value: Any) -> str:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(value)
    if name.startswith("[]"):
        return "[" + " ".join(_element(name[2:], item) for item in value) + "]" if value else "<nil>"
    if name.startswith("map["):
        inner = name[name.index("]") + 1 :]
        pairs = " ".join(f"{key}:{_element(inner, value[key])}" for key in sorted(value)) if value else ""
        return f"map[{pairs}]" if value else "<nil>"
    entry = go_types().get(name)
    if entry is None:
        return _scalar(name, value)
    if "alias" in entry:
        return _plain(entry["alias"], value)
    return "{" + " ".join(_field(field, value or {}) for field in entry["fields"]) + "}"


def _element(name: str, value: Any) -> str:
    """In a list or map the type is known, so a pointer is only marked."""
    return f"<*>{_plain(name[1:], value)}" if name.startswith("*") else _plain(name, value)


def _field(field: Json, owner: Json) -> str:
    value = owner if field.get("inline") else owner.get(field["name"])
    return f"{field['go']}:{_typed(field['type'], value)}"


def _scalar(name: str, value: Any) -> str:
    if name == "bool":
        return "true" if value else "false"
    if name in ("int", "int32", "int64", "uint8"):
        return str(value or 0)
    return str(value or "")


def _time(_: Any) -> str:
    """A template's times are never set."""
    return "{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"


def _int_or_string(value: Any) -> str:
    text, number = (value, 0) if isinstance(value, str) else ("", value or 0)
    return f"{{Type:(intstr.Type){int(isinstance(value, str))} IntVal:(int32){number} StrVal:(string){text}}}"


def _quantity(value: Any) -> str:
    """A quantity shows how it was parsed: as a scaled integer, or as a big decimal where that is too small."""
    text = "" if value is None else str(value)
    if text in ("", "0"):
        return _parsed(0, 0, "<nil>", text, "DecimalSI" if text else "")
    match = _QUANTITY.fullmatch(text)
    assert match is not None
    sign, whole, fraction, suffix = match[1], match[2] or "0", match[3] or "", match[4]
    binary = suffix in _BINARY
    exponent = _BINARY[suffix] if binary else _DECIMAL.get(suffix, 0)
    form = "BinarySI" if binary else "DecimalSI"
    if not binary and suffix not in _DECIMAL:
        exponent, form = int(suffix[1:]), "DecimalExponent"
    digits = whole + fraction
    number = int(digits) * (-1 if sign == "-" else 1)
    if binary:
        if fraction or 15 - len(whole) - exponent * 3 // 10 - 1 < 0:
            return _parsed(0, 0, _decimal(number << exponent, len(fraction)), "", form)
        kept = text if int(digits) & 7 else ""
        return _parsed(number << exponent, 0, "<nil>", kept, form)
    scale = exponent - len(fraction)
    if len(digits) > _DIGITS or scale < -9:
        return _parsed(0, 0, _decimal(number, -scale), "", form)
    canonical = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return _parsed(number, scale, "<nil>", text if canonical else "", form)


def _decimal(number: int, scale: int) -> str:
    words, rest = [], abs(number)
    while rest:
        words.append(str(rest & 0xFFFFFFFFFFFFFFFF))
        rest >>= 64
    big = f"{{neg:(bool){'true' if number < 0 else 'false'} abs:(big.nat)[{' '.join(words)}]}}"
    return f"{{unscaled:(big.Int){big} scale:(inf.Scale){scale}}}"


def _parsed(value: int, scale: int, decimal: str, text: str, form: str) -> str:
    return (
        f"{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} "
        f"d:(resource.infDecAmount){{Dec:(*inf.Dec){decimal}}} s:(string){text} Format:(resource.Format){form}}}"
    )


_SPECIAL: dict[str, Callable[[Any], str]] = {
    "k8s.io/apimachinery/pkg/apis/meta/v1.Time": _time,
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": _int_or_string,
    "k8s.io/apimachinery/pkg/api/resource.Quantity": _quantity,
}
