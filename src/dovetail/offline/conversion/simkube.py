"""simkube traces: MessagePack or JSON with `events`, each with `ts` in seconds, `applied_objs` and `deleted_objs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dovetail.language import message
from dovetail.offline.conversion.entries import DeleteEntry, Entry, NotThisFormat, PutObject, from_seconds
from dovetail.offline.recording import key_of

Json = dict[str, Any]


def entries(data: bytes) -> Iterator[Entry]:
    """The objects of a trace, in its order."""
    for number, event in enumerate(_events(_document(data))):
        when, applied, deleted = _parts(event, number)
        time = from_seconds(when)
        for source in applied or ():
            yield PutObject(time, _checked(source, number))
        for source in deleted or ():
            yield DeleteEntry(time, key_of(_checked(source, number)))


def _document(data: bytes) -> Any:
    try:
        if data.lstrip()[:1] in (b"{", b"["):
            return msgspec.json.decode(data)
        return msgspec.msgpack.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as problem:
        raise NotThisFormat(message("neither JSON nor MessagePack: {problem}", problem=problem)) from problem


def _events(document: Any) -> list[Any]:
    """The events of a trace whose fields have names, or of one whose fields have an order only."""
    if isinstance(document, dict) and isinstance(document.get("events"), list):
        events: list[Any] = document["events"]
        return events
    if isinstance(document, list):
        for part in document:
            if isinstance(part, list) and part and all(_is_event(item) for item in part):
                return part
    raise NotThisFormat(message("there is no list of events"))


def _is_event(item: Any) -> bool:
    if isinstance(item, dict):
        return "ts" in item and "applied_objs" in item
    return isinstance(item, list) and len(item) == 3 and isinstance(item[0], int) and isinstance(item[1], list)


def _parts(event: Any, number: int) -> tuple[Any, Any, Any]:
    if not _is_event(event):
        raise NotThisFormat(message("{place}: ts, applied_objs and deleted_objs are needed", place=f"events[{number}]"))
    if isinstance(event, dict):
        return event["ts"], event["applied_objs"], event.get("deleted_objs")
    return event[0], event[1], event[2]


def _checked(source: Any, number: int) -> Json:
    metadata = source.get("metadata") if isinstance(source, dict) else None
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise NotThisFormat(message("{place}: an object has no name", place=f"events[{number}]"))
    if not isinstance(source.get("apiVersion"), str) or not isinstance(source.get("kind"), str):
        raise NotThisFormat(
            message("{place}: {name} has no apiVersion or kind", place=f"events[{number}]", name=metadata["name"])
        )
    converted: Json = source
    return converted
