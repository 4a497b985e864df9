"""Instants as Kubernetes writes them: RFC 3339 in UTC, to the second; MicroTime to the microsecond."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)
def stamp(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="seconds")[:19] + "Z"


@lru_cache(maxsize=256)
def micro(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds")[:26] + "Z"


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)
