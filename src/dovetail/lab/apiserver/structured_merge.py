"""What a change touches: comparing, collecting, merging and removing along the type tree.

Structs and granular maps are walked by field, lists of type map by key and lists of type set by value; everything
atomic is a leaf. These are the rules of server-side apply.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dovetail.lab.apiserver import fieldpath
from dovetail.lab.apiserver.fieldpath import Node
from dovetail.lab.apiserver.registry import Schema

ABSENT: Any = object()
ANY = Schema(kind="any")
_LEAF: Node = {}


class FieldChanges(msgspec.Struct):
    """The paths that came, changed or went."""

    added: Node
    modified: Node
    removed: Node

    def touched(self) -> Node:
        return fieldpath.union(self.added, self.modified)

    def without(self, roots: tuple[fieldpath.Path, ...]) -> FieldChanges:
        if not roots:
            return self
        return FieldChanges(
            fieldpath.without_branches(self.added, roots),
            fieldpath.without_branches(self.modified, roots),
            fieldpath.without_branches(self.removed, roots),
        )


def associative(schema: Schema) -> bool:
    return schema.list_type in ("map", "set")


def granular(schema: Schema, value: Any) -> bool:
    """Whether a value of this type is walked into."""
    if isinstance(value, dict):
        if schema.kind == "any":
            return not schema.definition  # a raw extension is a leaf, an unknown field of a custom resource is not
        return schema.kind in ("object", "map") and schema.map_type != "atomic"
    return isinstance(value, list) and schema.kind == "array" and associative(schema)


def child(schema: Schema, name: str) -> Schema:
    field = schema.fields.get(name)
    if field is not None:
        return field.schema
    if schema.kind == "map" and schema.items is not None:
        return schema.items
    return ANY


def element(schema: Schema, item: Any) -> str:
    """The path element of a list item. A key that is missing and has a default stands for its default."""
    if schema.list_type == "set":
        return fieldpath.value(item)
    keys: dict[str, Any] = {}
    for name in schema.list_keys:
        if isinstance(item, dict) and item.get(name) is not None:
            keys[name] = item[name]
        else:
            default = key_default(schema, name)
            if default is not None:
                keys[name] = default
    return fieldpath.key(keys)


def key_default(schema: Schema, name: str) -> Any:
    """The default of a list key: protocols are TCP; custom resources say it in their schema."""
    items = schema.items
    field = items.fields.get(name) if items is not None else None
    custom = getattr(field.schema.custom, "default", None) if field is not None else None
    if custom is not None:
        return custom
    if field is None or items is None or items.custom is not None:
        return None
    if name == "protocol":
        return "TCP"
    return _ZEROS.get(field.schema.kind) if not field.omitempty and not field.pointer else None


_ZEROS: dict[str, Any] = {"string": "", "integer": 0}


def all_leaves(schema: Schema, value: Any) -> Node:
    """Everything of a value that is there on one side only, the containers themselves included."""
    if not value or not granular(schema, value):
        return _LEAF
    if isinstance(value, dict):
        out: Node = {fieldpath.SELF: {}}
        for name, item in value.items():
            out["f:" + name] = all_leaves(child(schema, name), item)
        return out
    out = {fieldpath.SELF: {}}
    items = schema.items or ANY
    for item in value:
        name = element(schema, item)
        out[name] = _LEAF if name in out else all_leaves(items, item)
    return out


def compare(schema: Schema, old: dict[str, Any], new: dict[str, Any]) -> FieldChanges:
    """What it takes to get from old to new."""
    change = FieldChanges({}, {}, {})
    _compare_map(schema, old, new, change)
    return change


def _compare(schema: Schema, old: Any, new: Any) -> FieldChanges | None:
    """The change below a path that both have; None if there is none, LEAF_CHANGED if the path itself changed."""
    if old == new and type(old) is type(new):
        return None
    if not (old or new):
        return _CHANGED
    walk_old, walk_new = granular(schema, old), granular(schema, new)
    if isinstance(old, dict) and isinstance(new, dict) and walk_new:
        change = FieldChanges({}, {}, {})
        _compare_map(schema, old, new, change)
        return change
    if (walk_old or old is None) and (walk_new or new is None):
        change = FieldChanges({}, {}, {})
        if isinstance(old, dict) or isinstance(new, dict):
            _compare_map(schema, old or {}, new or {}, change)
        else:
            _compare_list(schema, old or [], new or [], change)
        return change
    return _CHANGED


_CHANGED = FieldChanges({}, {}, {})


def _put(change: FieldChanges, name: str, below: FieldChanges | None) -> None:
    if below is None:
        return
    if below is _CHANGED:
        change.modified[name] = _LEAF
        return
    if below.added:
        change.added[name] = below.added
    if below.modified:
        change.modified[name] = below.modified
    if below.removed:
        change.removed[name] = below.removed


def _compare_map(schema: Schema, old: dict[str, Any], new: dict[str, Any], change: FieldChanges) -> None:
    for name, item in new.items():
        if name not in old:
            change.added["f:" + name] = all_leaves(child(schema, name), item)
        else:
            before = old[name]
            if before is not item and before != item:
                _put(change, "f:" + name, _compare(child(schema, name), before, item))
    for name, item in old.items():
        if name not in new:
            change.removed["f:" + name] = all_leaves(child(schema, name), item)


def _indexed(schema: Schema, values: list[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for item in values:
        out.setdefault(element(schema, item), []).append(item)
    return out


def _compare_list(schema: Schema, old: list[Any], new: list[Any], change: FieldChanges) -> None:
    items = schema.items or ANY
    before, after = _indexed(schema, old), _indexed(schema, new)
    for name in {**before, **after}:
        left, right = before.get(name, []), after.get(name, [])
        if len(left) <= 1 and len(right) <= 1:
            if not left:
                change.added[name] = all_leaves(items, right[0])
            elif not right:
                change.removed[name] = all_leaves(items, left[0])
            else:
                _put(change, name, _compare(items, left[0], right[0]))
        elif len(left) >= 2 and len(right) >= 2:
            if left != right:
                change.modified[name] = _LEAF
        elif len(left) >= 2:
            if right:
                change.added[name] = all_leaves(items, right[0])
            change.removed[name] = _LEAF
        else:
            if left:
                change.removed[name] = all_leaves(items, left[0])
            change.added[name] = _LEAF


def applied(schema: Schema, value: dict[str, Any]) -> Node:
    """The fields an applied configuration speaks of."""
    out: Node = {}
    for name, item in value.items():
        node = _applied(child(schema, name), item)
        struct_field = name in schema.fields
        if node is None:
            if item is None or item == {} or not struct_field:
                out["f:" + name] = _LEAF
        elif not struct_field and node:
            out["f:" + name] = {fieldpath.SELF: {}, **node}
        else:
            out["f:" + name] = node
    return out


def _applied(schema: Schema, value: Any) -> Node | None:
    """The node of a value; a leaf is empty, None means that nothing is said."""
    if not granular(schema, value):
        if value is None and schema.kind in ("object", "map", "array", "any") and schema.list_type != "atomic":
            return None
        return _LEAF
    if isinstance(value, dict):
        return applied(schema, value) or None
    out: Node = {}
    items = schema.items or ANY
    for item in value:
        node = _applied(items, item)
        out[element(schema, item)] = {fieldpath.SELF: {}, **node} if node else _LEAF
    return out or None


def merge(schema: Schema, live: Any, config: Any) -> Any:
    """The live value with the configuration laid over it."""
    if live is ABSENT:
        return config
    if config is ABSENT:
        return live
    if isinstance(config, dict) and granular(schema, config) and (live is None or isinstance(live, dict)):
        if not config and not live:
            return config
        out = dict(live or {})
        for name, item in config.items():
            out[name] = merge(child(schema, name), out.get(name, ABSENT), item)
        return out
    if isinstance(config, list) and granular(schema, config) and (live is None or isinstance(live, list)):
        return merge_list(schema, live or [], config) if (config or live) else config
    return config


def merge_list(schema: Schema, live: list[Any], config: list[Any]) -> list[Any]:
    """Items of both, in an order that keeps the configuration's and disturbs the live one's as little as possible."""
    items = schema.items or ANY
    left = [element(schema, item) for item in live]
    right = [element(schema, item) for item in config]
    ours: dict[str, Any] = {}
    for name, item in zip(left, live, strict=True):
        ours[name] = ABSENT if name in ours else item
    theirs = dict(zip(right, config, strict=True))
    shared = [name for name in right if name in ours]
    out: list[Any] = []
    merged: set[str] = set()
    mine = given = 0
    while mine < len(left) or given < len(right):
        if mine < len(left) and given < len(right):
            name = left[mine]
            if name == right[given]:
                merged.add(name)
                out.append(merge(items, ours[name], theirs[name]))
                mine += 1
                given += 1
                shared = shared[1:]
                continue
            if name in theirs and shared and shared[0] != name:
                mine += 1
                continue
        if mine < len(left):
            name = left[mine]
            if name not in theirs:
                out.append(live[mine])
                mine += 1
                continue
            if name in merged:
                mine += 1
        if given < len(right):
            name = right[given]
            merged.add(name)
            out.append(merge(items, ours.get(name, ABSENT), theirs[name]))
            given += 1
            if shared and shared[0] == name:
                shared = shared[1:]
    return out


def remove(schema: Schema, value: Any, gone: Node) -> Any:
    """The value without these paths; a container left empty goes too (ABSENT)."""
    if not granular(schema, value):
        return ABSENT if isinstance(value, (dict, list)) else value
    if not value:
        return ABSENT
    out: Any
    if isinstance(value, dict):
        out = {}
        for name, item in value.items():
            left = _remove_one(child(schema, name), item, gone.get("f:" + name))
            if left is not ABSENT:
                out[name] = left
    else:
        items = schema.items or ANY
        out = []
        for item in value:
            left = _remove_one(items, item, gone.get(element(schema, item)))
            if left is not ABSENT:
                out.append(left)
    return out if out else ABSENT


def _remove_one(schema: Schema, item: Any, node: Node | None) -> Any:
    if node is None:
        return item
    if not node or fieldpath.SELF in node:
        return ABSENT
    left = remove(schema, item, node)
    return None if left is ABSENT else left


def with_named_fields(schema: Schema, node: Node) -> Node:
    """The set with every struct field on the way a member: so that whole structs can be removed."""
    out: Node = {}
    for name, below in node.items():
        if name == fieldpath.SELF:
            continue
        if name[0] == "f":
            kind = child(schema, name[2:])
            inner = with_named_fields(kind, below)
            declared = schema.kind == "object" and name[2:] in schema.fields
            member = declared or not below or fieldpath.SELF in below
        else:
            inner = with_named_fields(schema.items or ANY, below)
            member = not below or fieldpath.SELF in below
        out[name] = ({fieldpath.SELF: {}, **inner} if member else inner) if inner else {}
    return out
