"""Recordings of clusters: one compact file, from which the cluster at any recorded instant can be read.

recording = read(Path("monday.dvrec"))
recording.start, recording.end
recording.objects_at(instant)               # raw Kubernetes objects
recording.events(since, until)              # RecordedEvent: time, type, object, old
recording.prices_at(instant)                # OfferingKey -> RecordedPrice
recording.price_records()                   # every price after the start: time, OfferingKey, RecordedPrice
recording.usage_at(instant)                 # ObjectKey -> Measured
"""

from __future__ import annotations

from dovetail.offline.recording.blocks import RecordingError
from dovetail.offline.recording.kept_fields import kept
from dovetail.offline.recording.reader import Recording, read
from dovetail.offline.recording.records import (
    Measured,
    ObjectKey,
    OfferingKey,
    RecordedEvent,
    RecordedPrice,
    RecordingHeader,
    key_of,
)
from dovetail.offline.recording.writer import Writer

__all__ = [
    "Measured",
    "ObjectKey",
    "OfferingKey",
    "RecordedEvent",
    "RecordedPrice",
    "Recording",
    "RecordingError",
    "RecordingHeader",
    "Writer",
    "kept",
    "key_of",
    "read",
]
