"""What was read from a cluster and its account, and what could not be read.

A source that was refused, or that did not answer, is kept as such with the right that is missing. It never looks like
an empty list: a check that needs it stops there (`NotAvailable`) and is reported as not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.language.recognition import recognized

Json = Mapping[str, Any]


class State(StrEnum):
    """How a source answered. `absent`: it said that there is no such object or kind."""

    READ = "read"
    ABSENT = "absent"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"


class SourceAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a source said; `right` is what reading it takes (`list pods`, `iam:GetRole`)."""

    state: State = State.READ
    data: Any = None
    right: str = ""
    message: str = ""


class NotAvailable(Exception):
    """A check needs a source that was not read."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a cluster and its account."""

    time: datetime
    cluster: str = ""
    region: str = ""
    answers: Mapping[str, SourceAnswer] = {}

    def read(self, source: str) -> Any:
        """What the source said; None if it said that there is none. Raises if it was not read."""
        answer = self.answers.get(source)
        if answer is None:
            raise NotAvailable(message("{source} was not collected", source=recognized(source)))
        if answer.state is State.REFUSED:
            raise NotAvailable(
                message("the right {right} is missing ({message})", right=answer.right, message=answer.message)
            )
        if answer.state is State.UNREACHABLE:
            raise NotAvailable(
                message("{source} could not be read: {message}", source=recognized(source), message=answer.message)
            )
        return answer.data

    def items(self, source: str) -> Sequence[Json]:
        """The objects of a list; none where the kind is not served."""
        return self.read(source) or ()

    def named(self, source: str, name: str, namespace: str = "") -> Json | None:
        for item in self.items(source):
            metadata = item["metadata"]
            if metadata["name"] == name and metadata.get("namespace", "") == namespace:
                return item
        return None


# Reading objects


def name_of(obj: Json) -> str:
    """`namespace/name`, or the name of an object of the whole cluster."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def own_pools(pools: Sequence[Json]) -> list[Json]:
    """NodePools of EC2NodeClasses; those of EKS Auto Mode are EKS's to judge."""
    return [
        pool
        for pool in pools
        if (pool["spec"]["template"]["spec"].get("nodeClassRef") or {}).get("group") != "eks.amazonaws.com"
    ]


def condition(obj: Json, kind: str) -> Json | None:
    for row in (obj.get("status") or {}).get("conditions") or ():
        if row.get("type") == kind:
            return row  # type: ignore[no-any-return]
    return None


def false_conditions(obj: Json) -> list[Json]:
    rows = (obj.get("status") or {}).get("conditions") or ()
    return [row for row in rows if row.get("status") == "False"]


def environment(deployment: Json) -> dict[str, str]:
    """The variables of a workload's containers that have a literal value."""
    containers = deployment["spec"]["template"]["spec"].get("containers") or ()
    rows = [row for container in containers for row in container.get("env") or ()]
    return {row["name"]: str(row["value"]) for row in rows if row.get("value") is not None}


def images(workload: Json) -> list[str]:
    """The images of a workload's containers."""
    return [str(box.get("image", "")) for box in workload["spec"]["template"]["spec"].get("containers") or ()]


def shortened(names: Sequence[str], shown: int = 3) -> str:
    """The first names, and how many more there are."""
    more = message(" and {count} more", count=len(names) - shown) if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None


def event_time(event: Json) -> str:
    """When it was seen last, as text that sorts."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("eventTime"), event.get("lastTimestamp"))
    return max(str(time) for time in (*times, event["metadata"].get("creationTimestamp")) if time)


# What checks say


class Status(StrEnum):
    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


class Fault(msgspec.Struct, frozen=True):
    """What a check objects to: the object, its field, value and cause in one sentence, and the exact remedy.

    A `symptom` is what other faults lead to as well: it only warns where one of them was found. A `safe` remedy is one
    command that adds what is missing, takes nothing away and costs nothing: `doctor --fix` runs it.
    """

    status: Status
    object: str
    message: str
    remedy: str
    symptom: bool = False
    safe: bool = False


class Finding(msgspec.Struct, frozen=True):
    """A line of the report."""

    id: str
    status: Status
    object: str
    message: str
    remedy: str
    safe: bool = False


def failure(subject: str, message: str, remedy: str, *, symptom: bool = False, safe: bool = False) -> Fault:
    return Fault(Status.FAILED, subject, message, remedy, symptom, safe)


def warning(subject: str, message: str, remedy: str, *, symptom: bool = False, safe: bool = False) -> Fault:
    return Fault(Status.WARNING, subject, message, remedy, symptom, safe)
