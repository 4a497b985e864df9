"""Cron schedules: when a window opens, and whether it is open.

Five fields or a macro, in UTC unless `TZ=` or `CRON_TZ=` names a zone. Day of month and day of week are
alternatives when both are given. A window is open when the first fire strictly after (now - duration) is
not later than now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from dovetail.language import source

_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_HORIZON = 5 * 366


class CronError(ValueError):
    """The schedule cannot be read: in English, which conditions and the API have, by a template of the catalogue."""


class Schedule(msgspec.Struct, frozen=True):
    """A parsed schedule."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool
    zone: str = "UTC"

    def next(self, after: datetime) -> datetime | None:
        """The first fire strictly after an instant, or None if there is none within five years."""
        zone = _zone(self.zone)
        start = after.astimezone(zone).replace(second=0, microsecond=0)
        day = start.date()
        for _ in range(_HORIZON):
            if self._on(day.day, day.month, (day.weekday() + 1) % 7):
                fire = self._within(datetime(day.year, day.month, day.day, tzinfo=zone), after)
                if fire is not None:
                    return fire
            day += timedelta(days=1)
        return None

    def active(self, now: datetime, duration: timedelta) -> bool:
        """Whether a window of that length is open. One whose day never comes (31 February) is, as in Karpenter."""
        fire = self.next(now - duration)
        return fire is None or fire <= now

    def _on(self, day: int, month: int, weekday: int) -> bool:
        if month not in self.months:
            return False
        in_month, in_week = day in self.days, weekday in self.weekdays
        return (in_month and in_week) if self.any_day or self.any_weekday else (in_month or in_week)

    def _within(self, midnight: datetime, after: datetime) -> datetime | None:
        for hour in sorted(self.hours):
            for minute in sorted(self.minutes):
                local = midnight.replace(hour=hour, minute=minute)
                fire = local.astimezone(UTC)
                exists = fire.astimezone(local.tzinfo).hour == hour
                if exists and fire > after:
                    return fire
        return None


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("UTC", ""):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise CronError(f"provided bad location {name}: unknown time zone {name}") from error


@lru_cache(maxsize=1024)
def parse(text: str) -> Schedule:
    """Read a schedule. Raises CronError."""
    if not text:
        raise CronError(source("empty spec string"))
    zone, spec = "UTC", text
    if text.startswith(("TZ=", "CRON_TZ=")):
        head, _, spec = text.partition(" ")
        zone, spec = head.partition("=")[2], spec.strip()
        _zone(zone)
    if spec.startswith("@"):
        if spec not in _MACROS:
            raise CronError(source("unrecognized descriptor: {spec}").format(spec=spec))
        spec = _MACROS[spec]
    fields = spec.split()
    if len(fields) != 5:
        raise CronError(
            source("expected exactly 5 fields, found {count}: [{fields}]").format(
                count=len(fields), fields=" ".join(fields)
            )
        )
    minutes, _ = _field(fields[0], 0, 59, {})
    hours, _ = _field(fields[1], 0, 23, {})
    days, any_day = _field(fields[2], 1, 31, {})
    months, _ = _field(fields[3], 1, 12, _MONTHS)
    weekdays, any_weekday = _field(fields[4], 0, 6, _DAYS)
    return Schedule(minutes, hours, days, months, weekdays, any_day, any_weekday, zone)


def _field(text: str, low: int, high: int, names: Mapping[str, int]) -> tuple[frozenset[int], bool]:
    values: set[int] = set()
    star = False
    for part in text.split(","):
        if part:
            some, every = _range(part, low, high, names)
            values.update(some)
            star = star or every
    return frozenset(values), star


def _range(text: str, low: int, high: int, names: Mapping[str, int]) -> tuple[range, bool]:
    span, slash, step_text = text.partition("/")
    if step_text.count("/"):
        raise CronError(source("too many slashes: {text}").format(text=text))
    first, dash, last = span.partition("-")
    if last.count("-"):
        raise CronError(source("too many hyphens: {text}").format(text=text))
    star = first in ("*", "?")
    start, end = (low, high) if star else _ends(first, last if dash else None, names)
    step = 1
    if slash:
        step = _number(step_text, {})
        if not star and not dash:
            end = high
        if step > 1:
            star = False
    if start < low:
        raise CronError(
            source("beginning of range ({start}) below minimum ({low}): {text}").format(start=start, low=low, text=text)
        )
    if end > high:
        raise CronError(
            source("end of range ({end}) above maximum ({high}): {text}").format(end=end, high=high, text=text)
        )
    if start > end:
        raise CronError(
            source("beginning of range ({start}) beyond end of range ({end}): {text}").format(
                start=start, end=end, text=text
            )
        )
    if step == 0:
        raise CronError(source("step of range should be a positive number: {text}").format(text=text))
    return range(start, end + 1, step), star


def _ends(first: str, last: str | None, names: Mapping[str, int]) -> tuple[int, int]:
    start = _number(first, names)
    return start, start if last is None else _number(last, names)


def _number(text: str, names: Mapping[str, int]) -> int:
    named = names.get(text.lower())
    if named is not None:
        return named
    if text.startswith("-") and text[1:].isdigit():
        raise CronError(source("negative number ({number}) not allowed: {text}").format(number=int(text), text=text))
    if not (text.isascii() and text.isdigit()):
        raise CronError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
