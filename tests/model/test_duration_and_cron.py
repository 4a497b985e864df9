"""Durations read as Go reads them; schedules open and close on time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import cron
from dovetail.model.duration import DurationError, format_duration, nanoseconds, parse, parse_or_never


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("720h", 2592000), ("1.5s", 1.5), ("-2m", -120), ("0", 0), ("250ms", 0.25), (".5h", 1800)],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert parse(text).total_seconds() == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'time: invalid duration ""'),
        ("5", 'time: missing unit in duration "5"'),
        ("5d", 'time: unknown unit "d" in duration "5d"'),
        ("h", 'time: invalid duration "h"'),
        ("2562047h47m16.854775808s", 'time: invalid duration "2562047h47m16.854775808s"'),
    ],
)
def test_bad_durations_are_refused_in_gos_words(text: str, words: str) -> None:
    with pytest.raises(DurationError) as caught:
        parse(text)
    assert str(caught.value) == words


def test_a_duration_is_counted_in_billionths_as_far_as_64_bits_go() -> None:
    assert nanoseconds("2562047h47m16.854775807s") == (1 << 63) - 1
    assert nanoseconds("-2562047h47m16.854775808s") == -(1 << 63)


@given(st.timedeltas(timedelta(days=-10000), timedelta(days=10000)))
def test_durations_survive_printing(duration: timedelta) -> None:
    assert nanoseconds(format_duration(duration)) == duration // timedelta(microseconds=1) * 1000


def test_never_is_no_duration() -> None:
    assert parse_or_never("Never") is None
    assert parse_or_never("30s") == timedelta(seconds=30)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("spec", "after", "fire"),
    [
        ("0 9 * * mon-fri", "2026-01-02T10:00", "2026-01-05T09:00"),
        ("*/15 * * * *", "2026-01-01T00:15", "2026-01-01T00:30"),
        ("@daily", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("@yearly", "2026-06-01T00:00", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("0 0 13 * fri", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("TZ=Asia/Seoul 0 9 * * *", "2026-01-01T00:00", "2026-01-02T00:00"),
        ("0 8-18/4 1 jan,jul *", "2026-01-01T12:00", "2026-01-01T16:00"),
        # every second day is a choice of days, every day is none: only then must the weekday hold as well
        ("0 0 */2 * mon", "2026-01-06T12:00", "2026-01-07T00:00"),
        ("0 0 */1 * mon", "2026-01-06T12:00", "2026-01-12T00:00"),
        # the hour that is skipped in spring has no fire
        ("TZ=America/New_York 30 2 * * *", "2026-03-08T05:00", "2026-03-09T06:30"),
    ],
)
def test_the_next_fire_is_strictly_later(spec: str, after: str, fire: str) -> None:
    assert cron.parse(spec).next(at(after)) == at(fire)


def test_a_window_is_open_from_its_fire_for_its_duration() -> None:
    schedule, hour = cron.parse("0 9 * * *"), timedelta(hours=1)
    assert not schedule.active(at("2026-01-01T08:59"), hour)
    assert schedule.active(at("2026-01-01T09:00"), hour)
    assert schedule.active(at("2026-01-01T09:59"), hour)
    assert not schedule.active(at("2026-01-01T10:00"), hour)


@pytest.mark.parametrize(
    "spec", ["", "* * * *", "60 * * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *", "@often", "TZ=No/Where * * * * *"]
)
def test_bad_schedules_are_refused(spec: str) -> None:
    with pytest.raises(cron.CronError):
        cron.parse(spec)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)), st.sampled_from(["7 * * * *", "0 3 * * sun", "@monthly"])
)
def test_no_fire_lies_between_now_and_the_next(now: datetime, spec: str) -> None:
    schedule = cron.parse(spec)
    fire = schedule.next(now.replace(tzinfo=UTC))
    assert fire is not None
    assert schedule.next(fire - timedelta(seconds=1)) == fire
