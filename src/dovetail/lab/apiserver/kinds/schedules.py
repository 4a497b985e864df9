"""Cron schedules and time zones of CronJobs, in the words of the server."""

from __future__ import annotations

import re
import zoneinfo

from dovetail.model.cron import CronError, parse

_ZONE_PART = re.compile(r"[A-Za-z._0-9+-]{1,14}")


def schedule_complaint(text: str) -> str | None:
    try:
        parse(text)
    except CronError as error:
        return str(error)
    return None


def zone_complaints(name: str) -> list[str]:
    if not name:
        return ["timeZone must be nil or non-empty string"]
    for part in name.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return [f"unknown time zone {name}"]
    zone_complaints = []
    if name.lower() == "local":
        zone_complaints.append("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    try:
        if name != "Local":
            zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        zone_complaints.append(f"unknown time zone {name}")
    return zone_complaints
