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
        difference: Json = {"at": list(path)}
        if simple is not _ABSENT:
            difference["was"] = simple
        if original is not _ABSENT:
            difference["is"] = original
        yield difference


def same(left: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is not true and not 1.0."""
    if isinstance(left, Mapping) and isinstance(other, Mapping):
        return left.keys() == other.keys() and all(same(value, other[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(other, list | tuple):
        return len(left) == len(other) and all(map(same, left, other))
    return type(left) is type(other) and bool(left == other)


def recall(simple: Json, remembered: Sequence[Any]) -> Json:
    """The simple form with every difference put back whose place is as it was."""
    result = copied(simple)
    for difference in remembered:
        if isinstance(difference, dict) and isinstance(difference.get("at"), list) and difference["at"]:
            _put_back(result, difference)
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


def with_own_annotations(obj: Mapping[str, Any]) -> Json:
    """A copy whose annotations, if it has any, can be added to and taken from without a trace."""
    differences = copied(obj)
    metadata = differences.get("metadata")
    if not isinstance(metadata, dict):
        metadata = differences["metadata"] = {}
    if not isinstance(metadata.get("annotations"), dict) or not metadata["annotations"]:
        metadata.pop("annotations", None)
    return differences


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
        document = json.loads(text)
    except ValueError:
        return ()
    return document if isinstance(document, list) else ()


def write(differences: Sequence[Json]) -> str:
    return json.dumps(differences, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
