"""Strategic merge patch: a merge patch that knows which lists merge by which key.

Directives: `$patch` (replace, delete, merge), `$setElementOrder/x`, `$deleteFromPrimitiveList/x`, `$retainKeys`.
New list elements go to the front unless an order is given.
"""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.patches.jsonpatch import equal
from dovetail.lab.apiserver.registry import Field, Schema

Json = dict[str, Any]
_ORDER = "$setElementOrder/"
_DELETE = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"
_PATCH = "$patch"


class StrategicFailure(ValueError):
    """The patch cannot be applied; the text is what the server says with its 500."""


def strategic(target: Json, patch: Json, schema: Schema | None) -> Json:
    directive = patch.get(_PATCH)
    if _PATCH in patch:
        if directive == "replace":
            return {name: item for name, item in patch.items() if name != _PATCH}
        if directive == "delete":
            return {}
        if directive != "merge":
            raise StrategicFailure(f"unknown patch type: {directive} in map: {go_map(patch)}")
    out = dict(target)
    _retain_keys(out, patch)
    for name in sorted(patch):
        item = patch[name]
        if name in (_PATCH, _RETAIN) or name.startswith((_ORDER, _DELETE)):
            continue
        field = schema.fields.get(name) if schema is not None and schema.kind == "object" else None
        if item is None:
            out.pop(name, None)
            continue
        out[name] = _value(out.get(name, _MISSING), item, field, schema, patch, name)
        if out[name] is _MISSING:
            del out[name]
    for name in patch:
        if name.startswith(_DELETE):
            _delete_primitives(out, name.removeprefix(_DELETE), patch[name])
    for name in patch:
        if name.startswith(_ORDER) and schema is not None and name.removeprefix(_ORDER) not in schema.fields:
            field_name = name.removeprefix(_ORDER)
            raise StrategicFailure(
                f'unable to find api field in struct {schema.struct} for the json field "{field_name}"'
            )
        if name.startswith(_ORDER) and name.removeprefix(_ORDER) not in patch:
            _reorder(out, patch, name.removeprefix(_ORDER), schema)
    return out


_MISSING: Any = object()


def go_map(value: Json) -> str:
    return "map[" + " ".join(f"{name}:{_go(item)}" for name, item in sorted(value.items())) + "]"


def _go(value: Any) -> str:
    if isinstance(value, dict):
        return go_map(value)
    if isinstance(value, list):
        return "[" + " ".join(_go(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _retain_keys(out: Json, patch: Json) -> None:
    keep = patch.get(_RETAIN)
    if isinstance(keep, list):
        for name in [name for name in out if name not in keep]:
            del out[name]


def _child(schema: Schema | None, field: Field | None) -> Schema | None:
    if field is not None:
        return field.schema
    return schema.items if schema is not None and schema.kind == "map" else None


def _value(old: Any, new: Any, field: Field | None, schema: Schema | None, patch: Json, name: str) -> Any:
    child = _child(schema, field)
    if isinstance(new, dict):
        if field is not None and "replace" in field.patch_strategy and "merge" not in field.patch_strategy:
            return _clean(new)
        if not isinstance(old, dict):
            if _PATCH in new and new[_PATCH] not in ("merge", "replace", "delete"):
                raise StrategicFailure(f"unknown patch type: {new[_PATCH]} in map: {go_map(new)}")
            return _MISSING if _PATCH in new else strategic({}, new, child)
        merged = strategic(old, new, child)
        return _MISSING if new.get(_PATCH) == "delete" else merged
    if isinstance(new, list):
        if field is None or "merge" not in field.patch_strategy:
            return new
        previous = old if isinstance(old, list) else []
        order = patch.get(_ORDER + name)
        if isinstance(order, list):
            _check_order(order, new, field.merge_key)
        merged_list = merge_list(previous, new, field, child)
        return order_list(merged_list, order if isinstance(order, list) else new, previous, field)
    return new


def _check_order(order: list[Any], patch: list[Any], key: str) -> None:
    """What a list patch changes must be named in its order, and stand there as it stands in the patch."""
    kept = [item for item in patch if not (isinstance(item, dict) and item.get(_PATCH) == "delete")]
    if key and any(not isinstance(item, dict) for item in order):
        wrong = next(item for item in order if not isinstance(item, dict))
        raise StrategicFailure(
            f"expected a map[string]interface {{}}, but received a {_KINDS.get(type(wrong), 'slice')}"
        )
    names = [item.get(key) if key else item for item in order]
    rest = iter(names)
    if all((item.get(key) if isinstance(item, dict) else item) in rest for item in kept):
        return
    raise StrategicFailure(
        f"The order in patch list:\n{_go(kept)}\n doesn't match $setElementOrder list:\n{_go(order)}\n"
    )


_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64"}


def _clean(value: Any) -> Any:
    """A patch as a value: without its directives."""
    if isinstance(value, dict):
        if value.get(_PATCH) == "delete":
            return {}
        return {
            name: _clean(item)
            for name, item in value.items()
            if item is not None and name not in (_PATCH, _RETAIN) and not name.startswith((_ORDER, _DELETE))
        }
    if isinstance(value, list):
        return [_clean(item) for item in value if not (isinstance(item, dict) and item.get(_PATCH) == "delete")]
    return value


def merge_list(old: list[Any], patch: list[Any], field: Field, child: Schema | None) -> list[Any]:
    items = child.items if child is not None else None
    if not field.merge_key or (items is not None and items.kind != "object"):
        return _merge_primitives(old, patch)
    key = field.merge_key
    if any(not isinstance(item, dict) for item in patch):
        if not old:
            return patch
        raise StrategicFailure(f"list element types are not identical: [{_go(old)} {_go(patch)}]")
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if _PATCH not in item]
    out = list(old)
    fresh: list[Any] = []
    for item in patch:
        if key not in item:
            raise StrategicFailure(f"map: {go_map(item)} does not contain declared merge key: {key}")
        at = next((i for i, have in enumerate(out) if isinstance(have, dict) and have.get(key) == item[key]), None)
        directive = item.get(_PATCH)
        if directive == "delete":
            out = [have for have in out if not (isinstance(have, dict) and have.get(key) == item[key])]
        elif directive not in (None, "merge"):
            raise StrategicFailure(f"unknown patch type: {directive} in map: {go_map(item)}")
        elif at is None:
            again = next((i for i, have in enumerate(fresh) if have.get(key) == item[key]), None)
            if again is None:
                fresh.append(strategic({}, item, items))
            else:
                fresh[again] = strategic(fresh[again], item, items)
        else:
            out[at] = strategic(out[at], item, items)
    return fresh + out


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


def order_list(merged: list[Any], order: list[Any], previous: list[Any], field: Field) -> list[Any]:
    """Elements named in the order stand as ordered; the server's own keep their place relative to their neighbours."""
    key = field.merge_key

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    wanted = [identity(item) for item in order]
    listed = [item for item in merged if identity(item) in wanted]
    others = [item for item in merged if identity(item) not in wanted]
    listed.sort(key=lambda item: wanted.index(identity(item)))
    before = [identity(item) for item in previous]
    return _interleave(listed, others, before, identity)


def _interleave(listed: list[Any], others: list[Any], before: list[Any], identity: Any) -> list[Any]:
    out: list[Any] = []
    position = {name: index for index, name in reversed(list(enumerate(before))) if _hashable(name)}

    def place(item: Any) -> int | None:
        name = identity(item)
        return position.get(name) if _hashable(name) else None

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


def _reorder(out: Json, patch: Json, name: str, schema: Schema | None) -> None:
    have = out.get(name)
    field = schema.fields.get(name) if schema is not None else None
    order = patch[_ORDER + name]
    if isinstance(have, list) and field is not None and isinstance(order, list):
        out[name] = order_list(have, order, have, field)
