"""What EC2 knows of its instances' health: failed status checks, and events it has planned for them.

Asked by three separate filters, as one would only find instances that have it all; and filtered again here, since a
server may ignore a filter that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from dovetail.cloud.aws.client import Calls
from dovetail.cloud.provider import Interruption

#: A check must have failed for so long.
FAILED_FOR = timedelta(seconds=120)
EVENTS = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
_CHECKS = {"InstanceStatus": "instance-status.status", "SystemStatus": "system-status.status"}


async def unhealthy(calls: Calls, now: datetime) -> tuple[Interruption, ...]:
    """Instances with failed checks (`status-check-failed`) and with planned events (`scheduled-event`)."""
    search = [{"Name": name, "Values": ["impaired"]} for name in _CHECKS.values()]
    search.append({"Name": "event.code", "Values": list(EVENTS)})
    failed: dict[str, None] = {}
    planned: dict[str, None] = {}
    for filter_ in search:
        rows = await calls.all(
            "ec2", "describe_instance_status", "InstanceStatuses", Filters=[filter_], MaxResults=1000
        )
        for row in rows:
            if any(_failed(row.get(check) or {}, now) for check in _CHECKS):
                failed[row["InstanceId"]] = None
            elif any(_is_upcoming(event) for event in row.get("Events") or ()):
                planned[row["InstanceId"]] = None
    return tuple(
        Interruption(kind=kind, provider_ids=tuple(ids), received=now)
        for kind, ids in (("status-check-failed", failed), ("scheduled-event", planned))
        if ids
    )


def _failed(status: Mapping[str, Any], now: datetime) -> bool:
    """Whether a check is known to have failed for long enough."""
    since = [detail["ImpairedSince"] for detail in status.get("Details") or () if detail.get("ImpairedSince")]
    return status.get("Status") == "impaired" and bool(since) and now - min(since) >= FAILED_FOR


def _is_upcoming(event: Mapping[str, Any]) -> bool:
    """Whether an event is still to come: one that is over says so in its description."""
    text = str(event.get("Description", ""))
    return event.get("Code") in EVENTS and not text.startswith(("[Completed]", "[Canceled]"))
