"""Durations as Go writes them: `1h30m`, `720h`, `Never`."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache

from dovetail.language import source

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_LARGEST = 1 << 63

NEVER = "Never"

#: What Go says of a text that is no duration: the API server's words stay English, a command shows them in Korean.
DURATION_TEXTS = (
    source('time: invalid duration "{text}"'),
    source('time: missing unit in duration "{text}"'),
    source('time: unknown unit "{unit}" in duration "{text}"'),
)


class DurationError(ValueError):
    """The text is not a duration."""


@lru_cache(maxsize=4096)
def nanoseconds(text: str) -> int:
    """A duration in billionths of a second."""
    bad = DurationError(f'time: invalid duration "{text}"')
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return 0
    if not rest:
        raise bad
    end, total = 0, 0
    while end < len(rest):
        part = _PART.match(rest, end)
        if part is None or not (part[1] or part[2]):
            raise _unit_error(text, rest[end:]) or bad
        total += int(part[1] or "0") * _UNITS[part[3]]
        if part[2]:
            total += int(part[2]) * _UNITS[part[3]] // int(10 ** len(part[2]))
        end = part.end()
    if total > _LARGEST - (sign != "-"):
        raise bad
    return -total if sign == "-" else total


def _unit_error(text: str, rest: str) -> DurationError | None:
    number = re.match(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", rest)
    if number is None:
        return None
    unit = re.match(r"[^0-9.]*", rest[number.end() :])
    if unit is None or not unit[0]:
        return DurationError(f'time: missing unit in duration "{text}"')
    return DurationError(f'time: unknown unit "{unit[0]}" in duration "{text}"')


def parse(text: str) -> timedelta:
    """A duration. Raises DurationError."""
    return timedelta(microseconds=nanoseconds(text) / 1000)


def parse_or_never(text: str | None) -> timedelta | None:
    """A duration, or None for `Never` and for nothing."""
    return None if text is None or text == NEVER else parse(text)


def countable(text: str | None) -> timedelta | None:
    """A duration, or None for `Never`, for nothing, and for a time too long to count."""
    try:
        return parse_or_never(text)
    except DurationError:
        return None


def format_duration(duration: timedelta) -> str:
    """As Go prints it: `1h30m0s`, `1.5s`, `250ms`."""
    microseconds = duration // timedelta(microseconds=1)
    sign, microseconds = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    if microseconds == 0:
        return "0s"
    if microseconds < 1000:
        return f"{sign}{microseconds}µs"
    if microseconds < 10**6:
        return f"{sign}{_decimal(microseconds, 1000)}ms"
    minutes, rest = divmod(microseconds, 60 * 10**6)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 10**6)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = str(unit + rest)[1:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)
