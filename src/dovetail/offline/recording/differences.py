"""What changed between two versions of an object, as little as it takes to say, and the newer one from the older.

A difference is None for nothing, or a list: [set, removed, changed] of a mapping, [index, difference, …] of a list
of the same length, or [value] for anything else. Versions share what they have in common and are never changed.
"""

from __future__ import annotations

from typing import Any

from dovetail.language import message

Json = Any
#: How deep a difference may go: deeper than any object of Kubernetes.
MAX_DEPTH = 64

_REPLACE, _MAPPING, _LIST = 0, 1, 2


class BadDifference(ValueError):
    """It does not fit the version it is applied to."""


def difference(old: Json, new: Json) -> list[Json] | None:
    """None if the two are equal."""
    if type(old) is type(new):
        if isinstance(new, dict):
            return _mapping(old, new)
        if isinstance(new, list) and len(old) == len(new):
            return _list(old, new)
        if old == new:
            return None
    return [_REPLACE, new]


def _mapping(old: dict[str, Json], new: dict[str, Json]) -> list[Json] | None:
    if old is new:
        return None
    added: dict[str, Json] = {}
    changed: dict[str, Json] = {}
    for key, value in new.items():
        if key not in old:
            added[key] = value
        elif (inner := difference(old[key], value)) is not None:
            if inner[0] == _REPLACE:
                added[key] = value
            else:
                changed[key] = inner
    removed = [key for key in old if key not in new]
    if not added and not changed and not removed:
        return None
    parts: list[Json] = [_MAPPING, added, changed, removed]
    while not parts[-1]:
        parts.pop()
    return parts


def _list(old: list[Json], new: list[Json]) -> list[Json] | None:
    parts: list[Json] = [_LIST]
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        inner = difference(before, after)
        if inner is not None:
            parts += [index, inner]
    return parts if len(parts) > 1 else None


def apply(old: Json, change: Json, depth: int = 0) -> Json:
    """The newer version."""
    if not isinstance(change, list) or not change or depth > MAX_DEPTH:
        raise BadDifference(message("a difference is a list of known form"))
    kind = change[0]
    if kind == _REPLACE and len(change) == 2:
        return change[1]
    if kind == _MAPPING and len(change) in (2, 3, 4) and isinstance(old, dict):
        return _apply_mapping(old, *change[1:], depth=depth)
    if kind == _LIST and len(change) % 2 == 1 and isinstance(old, list):
        return _apply_list(old, change, depth)
    raise BadDifference(message("a difference does not fit the value it is for"))


def _apply_mapping(
    old: dict[str, Json], added: Json, changed: Json = None, removed: Json = None, *, depth: int
) -> dict[str, Json]:
    if not isinstance(added, dict) or not isinstance(changed or {}, dict) or not isinstance(removed or [], list):
        raise BadDifference(message("a difference of a mapping has a mapping, a mapping and a list"))
    new = dict(old)
    for key in removed or ():
        if not isinstance(key, str) or key not in new:
            raise BadDifference(message("{key!r} is removed and was not there", key=key))
        del new[key]
    for key, inner in (changed or {}).items():
        if key not in new:
            raise BadDifference(message("{key!r} changes and was not there", key=key))
        new[key] = apply(new[key], inner, depth + 1)
    new.update(added)
    return new


def _apply_list(old: list[Json], change: list[Json], depth: int) -> list[Json]:
    new = list(old)
    for index, inner in zip(change[1::2], change[2::2], strict=True):
        if not isinstance(index, int) or not 0 <= index < len(new):
            raise BadDifference(message("item {index!r} changes and was not there", index=index))
        new[index] = apply(new[index], inner, depth + 1)
    return new
