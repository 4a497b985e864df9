"""What protects a pod from being moved: its own annotation, for ever or for a while."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from dovetail.cluster import keys
from dovetail.model import duration
from dovetail.model.pods import Pod


class Kind(StrEnum):
    NONE = "none"
    FOREVER = "forever"
    UNTIL = "until"
    INVALID = "invalid"


class Protection(msgspec.Struct, frozen=True):
    """`until` is None while the pod has not started: its time has not begun to run."""

    kind: Kind
    until: datetime | None = None
    text: str = ""

    def holds(self, now: datetime) -> bool:
        if self.kind is Kind.FOREVER:
            return True
        return self.kind is Kind.UNTIL and (self.until is None or now < self.until)


NONE = Protection(Kind.NONE)


def of(pod: Pod) -> Protection:
    """The pod's do-not-disrupt annotation: `true`, or how long after its start it must be left alone."""
    text = pod.metadata.annotations.get(keys.DO_NOT_DISRUPT)
    if text is None or text == "false":
        return NONE
    if text == "true":
        return Protection(Kind.FOREVER, text=text)
    try:
        length = duration.parse(text)
    except ValueError:
        return Protection(Kind.INVALID, text=text)
    if length <= timedelta(0):
        return Protection(Kind.INVALID, text=text)
    started = pod.status.start_time
    return Protection(Kind.UNTIL, started + length if started else None, text)
