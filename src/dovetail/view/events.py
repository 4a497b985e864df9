"""The last events of every object, bounded: ten thousand events of one pod must not push out those of the others."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from dovetail.kube.reflector import CacheChange
from dovetail.model.nodes import Event

MAX_EVENTS_PER_OBJECT = 30
MAX_OBJECTS_WITH_EVENTS = 20_000
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Subject(msgspec.Struct, frozen=True):
    kind: str
    namespace: str
    name: str


def subject_of(event: Event) -> Subject:
    involved = event.involved_object
    return Subject(involved.kind, involved.namespace, involved.name)


def time_of(event: Event) -> datetime:
    """When it last happened."""
    series = event.series.last_observed_time if event.series is not None else None
    return series or event.last_timestamp or event.event_time or event.metadata.creation_timestamp or _LONG_AGO


def count_of(event: Event) -> int:
    return max(event.count, event.series.count if event.series is not None else 0, 1)


def kept(new: Event, old: Event | None) -> Event:
    """What is stored of an event: none of its metadata but its identity, for most of its size is that."""
    meta = new.metadata
    slim = msgspec.structs.replace(meta, labels={}, annotations={}, owner_references=(), finalizers=())
    return msgspec.structs.replace(new, metadata=slim)


class Events:
    """Events by the object they are about, newest last. `changed` collects the subjects since it was last read."""

    def __init__(self) -> None:
        self._of: OrderedDict[Subject, deque[Event]] = OrderedDict()
        self.changed: dict[Subject, None] = {}

    def take(self, change: CacheChange[Event]) -> None:
        """Deleted events are kept: the server forgets them after an hour, and the reader may still ask."""
        if change.new is None:
            return
        subject = subject_of(change.new)
        events = self._of.setdefault(subject, deque(maxlen=MAX_EVENTS_PER_OBJECT))
        if change.old is not None:
            uid = change.new.metadata.uid
            stale = next((held for held in events if held.metadata.uid == uid), None)
            if stale is not None:
                events.remove(stale)
        events.append(change.new)
        self._of.move_to_end(subject)
        self.changed[subject] = None
        if len(self._of) > MAX_OBJECTS_WITH_EVENTS:
            self._of.popitem(last=False)

    def about(self, kind: str, namespace: str, name: str) -> Sequence[Event]:
        """Newest first. Cluster-scoped objects have their events in any namespace."""
        events_ = list(self._of.get(Subject(kind, namespace, name), ()))
        if not namespace:
            events_ += self._of.get(Subject(kind, "default", name), ())
        return sorted(events_, key=time_of, reverse=True)

    def last_message(self, namespace: str, name: str, reason: str) -> str:
        """What was last said about a pod for a reason; empty if nothing was."""
        events = self._of.get(Subject("Pod", namespace, name), ())
        return next((event.message for event in reversed(events) if event.reason == reason), "")
