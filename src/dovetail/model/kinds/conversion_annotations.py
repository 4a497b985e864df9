"""What one generation says and another cannot: kept as differences in an annotation.

A difference names a place, what the simple conversion would put there, and what really stood there. It is
applied only where the simple value still stands, so that an edit made in between is never undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dovetail.model.kinds.schema import Json

DOMAIN = "compatibility.dovetail.sh"
_ABSENT = object()


def annotation(version: str) -> str:
    """The annotation that remembers how an object looked in a version."""
    return f"{DOMAIN}/{version}"


def differences(original: Mapping[str, Any], simple: Mapping[str, Any]) -> list[Json]:
    """Where the original differs from what a conversion there and back makes of it."""
    return list(_differences(original, simple, ()))


def _differences(original: Any, simple: Any, path: tuple[str, ...]) -> Iterator[Json]:
    if isinstance(original, Mapping) and isinstance(simple, Mapping) and ((original and simple) or not path):
        for key in sorted({*original, *simple}, key=str):
            yield from _differences(original.get(key, _ABSENT), simple.get(key, _ABSENT), (*path, key))
    elif not same(original, simple):
        found: Json = {"at": list(path)}
        if simple is not _ABSENT:
            found["was"] = simple
        if original is not _ABSENT:
            found["is"] = original
        yield found


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is not true and not 1.0."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def recall(simple: Json, remembered: Sequence[Any]) -> Json:
    """The simple form with every difference put back whose place is as it was."""
    result = copied(simple)
    for each in remembered:
        if isinstance(each, dict) and isinstance(each.get("at"), list) and each["at"]:
            _put_back(result, each)
    return result


def _put_back(result: Json, difference: Json) -> None:
    *way, last = difference["at"]
    place: Any = result
    for key in way:
        place = place.get(key, _ABSENT) if isinstance(place, dict) else _ABSENT
        if not isinstance(place, dict):
            return
    if not same(place.get(last, _ABSENT), difference.get("was", _ABSENT)):
        return
    if "is" in difference:
        place[last] = copy(difference["is"])
    else:
        place.pop(last, None)


def copied(obj: Mapping[str, Any]) -> Json:
    """A copy of an object that shares nothing mutable with it."""
    return {key: copy(member) for key, member in obj.items()}


def copy(value: Any) -> Any:
    """A copy that shares nothing mutable."""
    if isinstance(value, Mapping):
        return {key: copy(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [copy(member) for member in value]
    return value


def tidy(obj: Mapping[str, Any]) -> Json:
    """A copy whose annotations, if it has any, can be added to and taken from without a trace."""
    found = copied(obj)
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        metadata = found["metadata"] = {}
    if not isinstance(metadata.get("annotations"), dict) or not metadata["annotations"]:
        metadata.pop("annotations", None)
    return found


def take(obj: Json, key: str) -> str | None:
    """Remove an annotation and say what it was; `annotations` goes when it is empty because of it."""
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict) or key not in annotations:
        return None
    value = annotations.pop(key)
    if not annotations:
        del metadata["annotations"]
    return value if isinstance(value, str) else None


def put(obj: Json, key: str, value: str) -> None:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        metadata = obj["metadata"] = {}
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict):
        annotations = metadata["annotations"] = {}
    annotations[key] = value


def read(text: str | None) -> Sequence[Any]:
    """What an annotation remembers; a damaged one remembers nothing."""
    if text is None:
        return ()
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return found if isinstance(found, list) else ()


def write(found: Sequence[Json]) -> str:
    return json.dumps(found, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
