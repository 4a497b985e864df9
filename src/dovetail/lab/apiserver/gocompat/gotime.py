"""Times as Kubernetes prints and reads them: RFC 3339 in UTC, whole seconds or microseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

_FORM = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)")
_CANONICAL = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")

SECONDS = "2006-01-02T15:04:05Z07:00"
MICRO = "2006-01-02T15:04:05.000000Z07:00"


@lru_cache(maxsize=1024)
def parse(text: str, layout: str = SECONDS) -> datetime:
    """An instant; the error is the one Go's parser gives."""
    match = _FORM.fullmatch(text)
    if match is None or (layout == MICRO and len(match[7] or "") != 6):
        raise ValueError(_complaint(text, layout))
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    micros = int((match[7] or "0").ljust(6, "0")[:6])
    zone = match[8]
    offset = UTC if zone == "Z" else _zone(zone)
    try:
        return datetime(year, month, day, hour, minute, second, micros, offset).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(_out_of_range(text, month, day, hour, minute)) from error


def _zone(text: str) -> timezone:
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[4:6])))


def _out_of_range(text: str, month: int, day: int, hour: int, minute: int) -> str:
    what = "second"
    if not 1 <= month <= 12:
        what = "month"
    elif hour > 23:
        what = "hour"
    elif minute > 59:
        what = "minute"
    elif not 1 <= day <= 31 or day > 28:
        what = "day"
    return f'parsing time "{text}": {what} out of range'


_STEPS = (
    (r"\d{4}", "2006"),
    ("-", "-"),
    (r"\d\d", "01"),
    ("-", "-"),
    (r"\d\d", "02"),
    ("T", "T"),
    (r"\d\d?", "15"),
    (":", ":"),
    (r"\d\d", "04"),
    (":", ":"),
    (r"\d\d", "05"),
)


def _complaint(text: str, layout: str) -> str:
    """Go names the part of the layout at which the text stopped to fit, and the rest of the text."""
    rest = text
    for pattern, element in _STEPS:
        match = re.match(pattern, rest)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"'
        rest = rest[match.end() :]
    if layout == MICRO:
        match = re.match(r"\.\d{6}(?!\d)", rest)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"'
        rest = rest[match.end() :]
    else:
        rest = re.sub(r"^[.,]\d+", "", rest)
    if not re.match(r"Z|[+-]\d\d:\d\d", rest):
        return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "Z07:00"'
    return f'parsing time "{text}": extra text: "{re.sub("^(Z|[+-][0-9:]{5})", "", rest)}"'


def seconds(text: str) -> str:
    """Canonical form of a metav1.Time."""
    if _CANONICAL.fullmatch(text):
        return text
    return stamp(parse(text))


def micro(text: str) -> str:
    """Canonical form of a metav1.MicroTime."""
    return parse(text, MICRO).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@lru_cache(maxsize=256)
def stamp(moment: datetime) -> str:
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{day}T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}Z"
