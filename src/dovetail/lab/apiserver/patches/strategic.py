"""Strategic merge patch: a merge patch that knows which lists merge by which key.

Directives: `$patch` (replace, delete), `$setElementOrder/x`, `$deleteFromPrimitiveList/x`, `$retainKeys`.
New list elements go to the front unless an order is given. What was followed is taken out of the patch, so that a
message about the outcome can show what is left of it.
"""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.gocompat.goprint import plain
from dovetail.lab.apiserver.patches.jsonpatch import equal
from dovetail.lab.apiserver.registry import GoField, Schema

Json = dict[str, Any]
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"
_PATCH = "$patch"


class StrategicFailure(ValueError):
    """The patch cannot be applied; the text is what the server says with its 500."""


class BadFormat(ValueError):
    """The patch contradicts itself: 400."""


def strategic(target: Json, patch: Json, schema: Schema | None) -> Json:
    if _PATCH in patch:
        return _directed(patch)
    out = dict(target)
    _retain_keys(out, patch)
    _ordered_lists(out, patch, schema)
    for name in sorted(patch):
        item = patch[name]
        if name.startswith(_DELETE):
            _delete_primitives(out, name.removeprefix(_DELETE), item)
        elif item is None:
            out.pop(name, None)
        elif name in out and type(out[name]) is type(item):
            out[name] = _merged(out[name], item, schema, name)
        else:
            _take(out, name, item)
    return out


def _directed(patch: Json) -> Json:
    """A map that says what is to happen to all of it."""
    directive = patch[_PATCH]
    if directive == "replace":
        del patch[_PATCH]
        return patch
    if directive == "delete":
        return {}
    raise StrategicFailure(f"unknown patch type: {plain(directive)} in map: {plain(patch)}")


def _retain_keys(out: Json, patch: Json) -> None:
    if _RETAIN not in patch:
        return
    keep = patch.pop(_RETAIN)
    free = (name.startswith((_ORDER, _DELETE)) or item is None for name, item in patch.items())
    if not isinstance(keep, list) or any(
        name not in keep and not allowed for name, allowed in zip(patch, free, strict=True)
    ):
        raise BadFormat("invalid patch format of retainKeys")
    for name in [name for name in out if name not in keep]:
        del out[name]


def _take(out: Json, name: str, item: Any) -> None:
    """A value that nothing was there to merge with."""
    kept = _without_directives(item)
    if kept is _NOTHING:
        out.pop(name, None)
    else:
        out[name] = kept


_NOTHING: Any = object()


def _without_directives(value: Any) -> Any:
    """Nulls fall away in place, and so does what carries a directive."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _NOTHING
        for name in list(value):
            kept = _NOTHING if value[name] is None else _without_directives(value[name])
            if kept is _NOTHING:
                del value[name]
            else:
                value[name] = kept
        return value
    if isinstance(value, list):
        return [kept for kept in map(_without_directives, value) if kept is not _NOTHING]
    return value


def _field(schema: Schema | None, name: str) -> tuple[GoField | None, Schema | None]:
    """The field of that name, and the schema of what it holds."""
    if schema is None:
        return None, None
    field = schema.fields.get(name) if schema.kind == "object" else None
    if field is not None:
        return field, field.schema
    return None, schema.items if schema.kind == "map" else None


def _merged(old: Any, new: Any, schema: Schema | None, name: str) -> Any:
    """Two values of one type."""
    field, child = _field(schema, name)
    if isinstance(new, dict):
        whole = field is not None and "replace" in field.patch_strategy and "merge" not in field.patch_strategy
        return new if whole else strategic(old, new, child)
    if isinstance(new, list) and field is not None and "merge" in field.patch_strategy:
        return order_list(merge_list(old, new, field, child), new, old, field)
    return new


def _ordered_lists(out: Json, patch: Json, schema: Schema | None) -> None:
    """Lists whose order the patch gives, with what it changes in them."""
    for directive in [name for name in patch if name.startswith(_ORDER)]:
        name, order = directive.removeprefix(_ORDER), patch.pop(directive)
        field, child = _field(schema, name)
        if schema is not None and field is None:
            raise StrategicFailure(f'unable to find api field in struct {schema.struct} for the json field "{name}"')
        have, new = out.get(name), patch.get(name)
        if field is None or not isinstance(order, list) or not isinstance(have, list | None):
            continue
        if isinstance(new, list):
            _check_order(order, new, field.merge_key)
            del patch[name]
            have = _without_directives(new) if have is None else merge_list(have, new, field, child)
        if have is not None:
            out[name] = order_list(have, order, out.get(name) or [], field)


def _check_order(order: list[Any], patch: list[Any], key: str) -> None:
    """What a list patch changes must be named in its order, and stand there as it stands in the patch."""
    kept = [item for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    if key and any(not isinstance(item, dict) for item in order):
        wrong = next(item for item in order if not isinstance(item, dict))
        raise StrategicFailure(
            f"expected a map[string]interface {{}}, but received a {_KINDS.get(type(wrong), 'slice')}"
        )
    rest = iter([_keyed(item, key)[key] if key else item for item in order])
    if all((_keyed(item, key)[key] if key and isinstance(item, dict) else item) in rest for item in kept):
        return
    raise StrategicFailure(
        f"The order in patch list:\n{plain(patch)}\n doesn't match $setElementOrder list:\n{plain(order)}\n"
    )


_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64"}


def merge_list(old: list[Any], patch: list[Any], field: GoField, child: Schema | None) -> list[Any]:
    items = child.items if child is not None else None
    if not field.merge_key or (items is not None and items.kind != "object"):
        return _merge_primitives(old, patch)
    key = field.merge_key
    if any(not isinstance(item, dict) for item in patch):
        if not old:
            return patch
        raise StrategicFailure(f"list element types are not identical: [{plain(old)} {plain(patch)}]")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_keyed(item, key) for item in patch if _PATCH not in item]
    out = list(old)
    fresh: list[Any] = []
    for item in patch:
        _keyed(item, key)
        index = next((i for i, have in enumerate(out) if isinstance(have, dict) and have.get(key) == item[key]), None)
        directive = item.get(_PATCH)
        if directive == "delete":
            out = [have for have in out if not (isinstance(have, dict) and have.get(key) == item[key])]
        elif directive == "merge":
            raise StrategicFailure("merging lists cannot yet be specified in the patch")
        elif directive is not None:
            raise StrategicFailure(f"unknown patch type: {plain(directive)} in map: {plain(item)}")
        elif index is None:
            again = next((i for i, have in enumerate(fresh) if have.get(key) == item[key]), None)
            if again is None:
                fresh.append(item)
            else:
                fresh[again] = strategic(fresh[again], item, items)
        else:
            out[index] = strategic(out[index], item, items)
    return fresh + out


def _keyed(item: Json, key: str) -> Json:
    if key not in item:
        raise StrategicFailure(f"map: {plain(item)} does not contain declared merge key: {key}")
    return item


def _merge_primitives(old: list[Any], patch: list[Any]) -> list[Any]:
    fresh: list[Any] = []
    for item in patch:
        if not any(equal(item, have) for have in old) and not any(equal(item, have) for have in fresh):
            fresh.append(item)
    return fresh + old


def _delete_primitives(out: Json, name: str, gone: Any) -> None:
    have = out.get(name)
    if isinstance(have, list) and isinstance(gone, list):
        left = [item for item in have if not any(equal(item, other) for other in gone)]
        out[name] = left


def order_list(merged: list[Any], order: list[Any], previous: list[Any], field: GoField) -> list[Any]:
    """Elements named in the order stand as ordered; the server's own keep their place relative to their neighbours."""
    key = field.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    positions = [identity(item) for item in order]
    listed = [item for item in merged if identity(item) in positions]
    others = [item for item in merged if identity(item) not in positions]
    listed.sort(key=lambda item: positions.index(identity(item)))
    before = [identity(item) for item in previous]
    return _interleave(listed, others, before, identity)


def _interleave(listed: list[Any], others: list[Any], before: list[Any], identity: Any) -> list[Any]:
    out: list[Any] = []
    position = {name: index for index, name in reversed(list(enumerate(before))) if _hashable(name)}

    def place(item: Any) -> int | None:
        name = identity(item)
        return position.get(name) if _hashable(name) else None

    others = sorted(others, key=lambda item: -1 if (index := place(item)) is None else index)
    left, right = 0, 0
    while left < len(listed) and right < len(others):
        here = place(listed[left])
        there = place(others[right])
        if here is None or there is None or here < there:
            out.append(listed[left])
            left += 1
        else:
            out.append(others[right])
            right += 1
    return out + listed[left:] + others[right:]


def _hashable(value: Any) -> bool:
    return not isinstance(value, (dict, list))
