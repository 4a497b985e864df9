"""Formats of texts in schemas: what the server's validator takes for a date, an address, a colour."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from dovetail.model import duration, formats


def known(form: str) -> bool:
    return form in _FORMATS


def accepts(form: str, text: str) -> bool:
    """Whether a text is of a known format."""
    try:
        return _FORMATS[form](text) is not False
    except (ValueError, binascii.Error):
        return False


def _date_time(text: str) -> bool:
    if not re.match(r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})?$", text):
        return False
    datetime.fromisoformat(re.sub(r"\.\d+", "", text).upper().replace("Z", "+00:00"))
    return True


_LONG_DURATION = re.compile(r"(?i)\d+\s*(ns|nano|us|µs|micro|ms|milli|s|sec|m|min|h|hr|hour|d|day|w|wk|week)")


def _duration(text: str) -> bool:
    """Go's durations, and `1 day` or `2 weeks`."""
    if _LONG_DURATION.search(text):
        return True
    duration.parse(text)
    return True


def _cidr(text: str) -> bool:
    ipaddress.ip_interface(text)
    return "/" in text


def _isbn(text: str) -> bool:
    digits = re.sub(r"[\s-]", "", text)
    if re.fullmatch(r"\d{9}[\dX]", digits):
        return sum((10 - place) * (10 if digit == "X" else int(digit)) for place, digit in enumerate(digits)) % 11 == 0
    if re.fullmatch(r"\d{13}", digits):
        return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10 == 0
    return False


def _matching(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _uuid(third: str, fourth: str = "[0-9a-f]") -> Callable[[str], bool]:
    return _matching(rf"(?i)[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}[0-9a-f]{{3}}-?{fourth}[0-9a-f]{{3}}-?[0-9a-f]{{12}}")


_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|\d?\d)"
_FORMATS: dict[str, Callable[[str], Any]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": date.fromisoformat,
    "duration": _duration,
    "byte": lambda text: base64.b64decode(text, validate=True),
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "cidr": _cidr,
    "mac": _matching(r"(?i)([0-9a-f]{2}([:-][0-9a-f]{2}){5,7}|[0-9a-f]{4}(\.[0-9a-f]{4}){2,3})"),
    "uri": lambda text: bool(urlsplit(text).scheme or text.startswith("/")),
    "email": _matching(r"[^@\s]+@[^@\s]+"),
    "hostname": _matching(r"[A-Za-z0-9]([A-Za-z0-9-.]*[A-Za-z0-9])?"),
    "uuid": _uuid("[0-9a-f]"),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": _isbn,
    "ssn": _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matching(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matching(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "bsonobjectid": _matching(r"(?i)[0-9a-f]{24}"),
    "k8s-short-name": lambda text: not formats.label(text),
    "k8s-long-name": lambda text: not formats.subdomain(text),
}
