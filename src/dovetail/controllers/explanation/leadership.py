"""Whether anybody acts at all: an autoscaler that is away explains every pod that waits."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.model.meta import stamp
from dovetail.model.nodes import Lease

#: A lease that nobody has renewed for so long is nobody's.
SILENT = timedelta(minutes=1)


def silence(leases: Iterable[Lease], now: datetime) -> str:
    """That nobody acts and since when; nothing if somebody does, or where nobody says."""
    known = {each.metadata.key: each.spec.renew_time for each in leases if each.spec.renew_time is not None}
    if not known or now - max(known.values()) <= SILENT:
        return ""
    name, last = max(known.items(), key=lambda one: one[1])
    return f"nobody acts: the autoscaler's lease {name} was last renewed at {stamp(last)}, see its log"
