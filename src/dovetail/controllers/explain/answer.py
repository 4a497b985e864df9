"""An answer, and what all of them need of the decision history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.controllers.history.decisions import Decision
from dovetail.language import message
from dovetail.model.meta import stamp
from dovetail.model.nodes import Lease
from dovetail.model.reasons import reason


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`line` is the most important fact; `details` are what `-v` adds, `deep` what `-vv` adds.

    `code` is the first cause in the vocabulary of reasons, `object` what has to be changed (kind/name), `remedy` how
    in words and `commands` as they are typed. `source` says where the answer is from: `history`, `evaluated` (planned
    now from the cluster's objects), or `objects`. `facts` is the rest for programs.
    """

    subject: str
    line: str
    code: str = ""
    object: str = ""
    remedy: str = ""
    commands: tuple[str, ...] = ()
    source: str = "objects"
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
    return message(" and {count} more reason(s)", count=len(reasons) - 1) if len(reasons) > 1 else ""


def shortened(entries: Sequence[str], most: int = 20) -> list[str]:
    """A long list, shortened with the count."""
    return [*entries[:most], *([message("… {count} more", count=len(entries) - most)] if len(entries) > most else [])]


def age(moment: datetime | None, now: datetime) -> str:
    """How long ago a moment was, as kubectl shows ages; empty where it is unknown."""
    if moment is None:
        return ""
    seconds = max(0, int((now - moment).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours = seconds // 60, seconds // 3600
    if minutes < 120:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


# Events, as the API server has them: what another autoscaler says, and what history does not have.


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event about an object, in either of the two forms of the API."""

    kind: str
    key: str
    type: str
    reason: str
    message: str
    time: str
    by: str = ""


def events_of(listing: Iterable[dict[str, Any]]) -> list[Event]:
    """Core events, oldest first."""
    events = []
    for item in listing:
        about = item.get("involvedObject") or item.get("regarding") or {}
        namespace, name = about.get("namespace") or "", about.get("name") or ""
        moments = (item.get("lastTimestamp"), (item.get("series") or {}).get("lastObservedTime"), item.get("eventTime"))
        events.append(
            Event(
                kind=about.get("kind") or "",
                key=f"{namespace}/{name}" if namespace else name,
                type=item.get("type") or "",
                reason=item.get("reason") or "",
                message=item.get("message") or item.get("note") or "",
                time=str(
                    next(filter(None, moments), "") or (item.get("metadata") or {}).get("creationTimestamp") or ""
                ),
                by=(item.get("source") or {}).get("component") or item.get("reportingComponent") or "",
            )
        )
    return sorted(events, key=lambda event: event.time)


def about_object(events: Iterable[Event], kind: str, key: str) -> list[Event]:
    """The events about an object. Those about a cluster-scoped one may lie in the default namespace."""
    return [event for event in events if event.kind == kind and event.key in (key, f"default/{key}")]


#: What tells an event from a decision in a list of both.
EVENT_MARK = "  event      "


def event_lines(events: Sequence[Event], most: int = 10) -> list[str]:
    return [f"{event.time}{EVENT_MARK}{event.reason}: {event.message}" for event in events[-most:]]


def condition_text(condition: Mapping[str, Any]) -> str:
    """A status condition of an object on one line."""
    state = f"{condition.get('type')}={condition.get('status')}"
    return f"{state} {condition.get('reason') or ''} {condition.get('message') or ''}".strip()


def dollars(price: float | None) -> str:
    return f"${price:.4f}/h" if price is not None else message("at an unknown price")


# Whether an autoscaler runs at all: without one, every pending pod waits.

#: A lease that was not renewed for so long has no holder.
SILENT = timedelta(minutes=1)


def no_autoscaler(leases: Iterable[Lease], now: datetime) -> str:
    """That no autoscaler runs, and since when; nothing if one does, or where there is no lease."""
    renewed = {lease.metadata.key: lease.spec.renew_time for lease in leases if lease.spec.renew_time is not None}
    if not renewed or now - max(renewed.values()) <= SILENT:
        return ""
    name, last = max(renewed.items(), key=lambda entry: entry[1])
    return message(
        "no autoscaler is running: its lease {name} was last renewed at {stamp}, see its log",
        name=name,
        stamp=stamp(last),
    )


def without_autoscaler(answer: Answer, silent: str) -> Answer:
    """That no autoscaler runs is the first cause, where nothing else keeps a pod from a node."""
    if answer.code or answer.source != "evaluated" or not answer.line.startswith("pending: "):
        return msgspec.structs.replace(answer, line=f"{answer.line}; {silent}")
    remedy = reason("NO_AUTOSCALER").remedy
    line = message(
        "pending: {silent}; {remedy} (NO_AUTOSCALER); once it runs: {what}",
        silent=silent,
        remedy=remedy,
        what=answer.line.removeprefix("pending: "),
    )
    return msgspec.structs.replace(answer, line=line, code="NO_AUTOSCALER", remedy=remedy)
