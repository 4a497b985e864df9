"""An answer, and what all of them need of the decision history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.model.meta import stamp
from dovetail.model.nodes import Lease


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`line` is the most important fact; `details` are what `-v` adds, `deep` what `-vv` adds.

    `facts` is the same for programs.
    """

    subject: str
    line: str
    details: tuple[str, ...] = ()
    deep: tuple[str, ...] = ()
    facts: dict[str, Any] = {}


class Unknown(LookupError):
    """There is no such object."""


def since(decisions: Sequence[Decision], now: datetime, window: timedelta) -> list[Decision]:
    oldest = stamp(now - window)
    return [decision for decision in decisions if decision.time >= oldest]


def safe_mode(decisions: Sequence[Decision]) -> str:
    """Why voluntary disruption has stopped, if it has; else nothing."""
    last = next((decision for decision in reversed(decisions) if decision.kind == "safe-mode"), None)
    return last.summary if last is not None and last.reason else ""


def lines(decisions: Iterable[Decision]) -> tuple[str, ...]:
    """Decisions, a line each."""
    return tuple(f"{decision.time}  {decision.id}  {decision.kind:9}  {decision.summary}" for decision in decisions)


def others(reasons: Sequence[object]) -> str:
    """What is added to the first of several reasons."""
    return f" and {len(reasons) - 1} more reason(s)" if len(reasons) > 1 else ""


def dollars(price: float | None) -> str:
    return f"${price:.4f}/h" if price is not None else "at an unknown price"


# Whether an autoscaler runs at all: without one, every pending pod waits.

#: A lease that was not renewed for so long has no holder.
SILENT = timedelta(minutes=1)


def no_autoscaler(leases: Iterable[Lease], now: datetime) -> str:
    """That no autoscaler runs, and since when; nothing if one does, or where there is no lease."""
    renewed = {lease.metadata.key: lease.spec.renew_time for lease in leases if lease.spec.renew_time is not None}
    if not renewed or now - max(renewed.values()) <= SILENT:
        return ""
    name, last = max(renewed.items(), key=lambda entry: entry[1])
    return f"no autoscaler is running: its lease {name} was last renewed at {stamp(last)}, see its log"
