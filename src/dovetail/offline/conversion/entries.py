"""What a file of another tool says: objects that came, changed or went, and prices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from dovetail.language import message
from dovetail.offline.recording import ObjectKey, OfferingKey

Json = dict[str, Any]


class PutObject(NamedTuple):
    """An object in a new version."""

    time: datetime
    source: Json


class DeleteEntry(NamedTuple):
    time: datetime
    key: ObjectKey


class SetPrice(NamedTuple):
    time: datetime
    key: OfferingKey
    dollars: float
    origin: str


Entry = PutObject | DeleteEntry | SetPrice


class NotThisFormat(ValueError):
    """What is wrong with the content, and where."""


def parse_time(text: object) -> datetime:
    """An instant as RFC 3339; without an offset it is in UTC."""
    if not isinstance(text, str):
        raise NotThisFormat(message("{text!r} is no time", text=text))
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as problem:
        raise NotThisFormat(message("{text!r} is no time", text=text)) from problem
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def from_seconds(seconds: object) -> datetime:
    """An instant as seconds since 1970."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 253_402_300_800:
        raise NotThisFormat(message("{seconds!r} is no time in seconds since 1970", seconds=seconds))
    return datetime.fromtimestamp(seconds, UTC)
