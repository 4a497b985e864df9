"""Our kinds checked without a server: what the API server would refuse, in its words.

A kind's struct is compiled once into a tree of checks, so that a claim is checked in microseconds. The rules
that compare fields run only where the object has the right shape, as on the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from dovetail.model.kinds.conversion_annotations import copy
from dovetail.model.kinds.crds import struct_of
from dovetail.model.kinds.schema import QUANTITY, Field, members
from dovetail.model.meta import ObjectMeta

Path = tuple[str | int, ...]

_PLAIN = Field()
_REMEMBERED = 4096
#: Problems that keep the server from looking at the rules.
BLOCKING = frozenset({"type", "required", "enum", "length", "items"})


class SchemaProblem(msgspec.Struct, frozen=True):
    """`kind` is unknown, type, required, enum, length, items, pattern, range or rule."""

    path: Path
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{render(self.path)}: {self.text}"


def render(path: Path) -> str:
    """`spec.requirements[0].key`."""
    shown = ""
    for part in path:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else part
    return shown


class SchemaNode(msgspec.Struct):
    """What may stand in one place."""

    type: str  # object, map, array, string, integer, number, boolean, quantity, any
    field: Field
    fields: dict[str, SchemaNode] = {}
    required: tuple[str, ...] = ()
    each: SchemaNode | None = None
    pattern: re.Pattern[str] | None = None
    good: set[str] = msgspec.field(default_factory=set)  # words that passed before
    sound: set[str] = msgspec.field(default_factory=set)  # words that the rules let pass before
    limited: bool = True  # whether more than the type is asked
    leaf: bool = True
    defaults: tuple[str, ...] = ()
    ruled: tuple[str, ...] = ()  # fields with rules in them or below
    rules_within: bool = False


def go_pattern(text: str) -> re.Pattern[str]:
    """A Go regular expression in Python: its $ is the very end, its classes are ASCII."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", text), re.ASCII)


def _node(kind: Any, field: Field) -> SchemaNode:
    if field.quantity:
        return SchemaNode("quantity", field, pattern=go_pattern(QUANTITY))
    if field.open or kind is ObjectMeta:
        return SchemaNode("any", field)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        inner = members(kind)
        fields = {name: _node(*described) for name, described in inner.items()}
        required = tuple(sorted(name for name, (_, described) in inner.items() if described.required))
        return SchemaNode("object", field, fields=fields, required=required)
    origin = get_origin(kind)
    if origin is tuple:
        return SchemaNode("array", field, each=_node(get_args(kind)[0], field.each or Field()))
    if origin is not None:
        return SchemaNode("map", field, each=_node(get_args(kind)[1], field.each or Field()))
    pattern = go_pattern(field.pattern) if field.pattern else None
    return SchemaNode({int: "integer", bool: "boolean", float: "number"}.get(kind, "string"), field, pattern=pattern)


@cache
def tree(struct: type[msgspec.Struct]) -> SchemaNode:
    """The compiled checks of a kind."""
    root = _node(struct, Field())
    for name in ("apiVersion", "kind"):
        root.fields[name] = SchemaNode("string", Field())
    _prepare(root)
    return root


def _prepare(node: SchemaNode) -> bool:
    """Note where there is nothing to check, so that checking need not go there."""
    node.limited = node.type != "string" or (
        node.field != _PLAIN
        and any(
            limit is not None for limit in (node.pattern, node.field.enum, node.field.min_length, node.field.max_length)
        )
    )
    node.leaf = node.type not in ("object", "map", "array")
    node.defaults = tuple(name for name, child in node.fields.items() if child.field.default is not None)
    node.ruled = tuple(name for name, child in node.fields.items() if _prepare(child))
    inner = node.each is not None and _prepare(node.each)
    node.rules_within = bool(node.ruled) or inner or bool(node.field.rules)
    return node.rules_within


def describe(obj: Mapping[str, Any]) -> SchemaNode | None:
    """The checks for an object, if it is of one of our kinds."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    struct = struct_of(version, kind) if isinstance(version, str) and isinstance(kind, str) else None
    return None if struct is None else tree(struct)


def check(
    obj: Mapping[str, Any], old: Mapping[str, Any] | None = None, *, thorough: bool = False
) -> list[SchemaProblem]:
    """What is wrong with an object of our kinds; nothing for others. Defaults count as written.

    The server looks at rules only where everything has the right shape; `thorough` looks wherever it can.
    """
    root = describe(obj)
    if root is None:
        return []
    whole = filled(obj, root)
    problems: list[SchemaProblem] = []
    _shape(whole, root, (), problems)
    blocked = [problem.path for problem in problems if problem.kind in BLOCKING]
    if not blocked:
        problems.extend(_rules(whole, None if old is None else filled(old, root), root, ()))
    elif thorough:
        problems.extend(_sound_rules(whole, root, (), blocked))
    return problems


def _sound_rules(value: Any, node: SchemaNode, path: Path, blocked: list[Path]) -> Iterator[SchemaProblem]:
    """The rules of those parts that have the right shape."""
    if not any(blocked_path[: len(path)] == path for blocked_path in blocked):
        yield from _rules(value, None, node, path)
    elif isinstance(value, dict):
        for key, member in value.items():
            child = node.fields.get(key) if node.type == "object" else node.each
            if child is not None:
                yield from _sound_rules(member, child, (*path, key), blocked)
    elif isinstance(value, list) and node.each is not None:
        for index, member in enumerate(value):
            yield from _sound_rules(member, node.each, (*path, index), blocked)


def filled(value: Any, node: SchemaNode) -> Any:
    """What the API server would store: nulls dropped, defaults filled in. What needs neither is not copied."""
    kind = node.type
    if kind == "object" and isinstance(value, dict):
        fields, defaulted = node.fields, {}
        for key, member in value.items():
            child = fields.get(key)
            if child is None:
                defaulted[key] = member
            elif member is not None:
                defaulted[key] = member if child.leaf else filled(member, child)
        for key in node.defaults:
            if key not in defaulted:
                defaulted[key] = filled(copy(fields[key].field.default), fields[key])
        return defaulted
    if kind == "map" and isinstance(value, dict) and node.each is not None:
        return {key: filled(member, node.each) for key, member in value.items() if member is not None}
    if kind == "array" and isinstance(value, list) and node.each is not None and not node.each.leaf:
        return [filled(member, node.each) for member in value]
    return value


def _shape(value: Any, node: SchemaNode, path: Path, problems_: list[SchemaProblem]) -> None:
    kind = node.type
    if kind == "string":
        if not isinstance(value, str):
            problems_.extend(_misplaced(value, "string", path))
        elif node.limited and value not in node.good:
            problems = list(_string(value, node, path))
            problems_.extend(problems)
            if not problems and len(node.good) < _REMEMBERED:
                node.good.add(value)
    elif kind == "array":
        if isinstance(value, list):
            _array(value, node, path, problems_)
        else:
            problems_.extend(_misplaced(value, "array", path))
    elif kind == "object":
        if isinstance(value, dict):
            _object(value, node, path, problems_)
        else:
            problems_.append(_mistyped(value, "object", path))
    elif kind == "map":
        if isinstance(value, dict):
            _map(value, node, path, problems_)
        else:
            problems_.append(_mistyped(value, "object", path))
    elif kind != "any":
        problems_.extend(_scalar(value, node, path))


def _object(value: Mapping[str, Any], node: SchemaNode, path: Path, problems: list[SchemaProblem]) -> None:
    for name in node.required:
        if name not in value:
            problems.append(SchemaProblem((*path, name), "required", "Required value"))
    if node.field.max_properties is not None and len(value) > node.field.max_properties:
        problems.append(_too_many(len(value), node.field.max_properties, path))
    fields = node.fields
    for key, member in value.items():
        child = fields.get(key)
        if child is None:
            problems.append(SchemaProblem((*path, key), "unknown", f'unknown field "{render((*path, key))}"'))
        else:
            _shape(member, child, (*path, key), problems)


def _map(value: Mapping[str, Any], node: SchemaNode, path: Path, problems: list[SchemaProblem]) -> None:
    most = node.field.max_properties
    if most is not None and len(value) > most:
        problems.append(_too_many(len(value), most, path))
    if node.each is not None:
        for key, member in value.items():
            _shape(member, node.each, (*path, key), problems)


def _too_many(count: int, most: int, path: Path) -> SchemaProblem:
    return SchemaProblem(path, "items", f"Too many: {count}: must have at most {most} items")


def _array(value: list[Any], node: SchemaNode, path: Path, problems: list[SchemaProblem]) -> None:
    field = node.field
    if field.max_items is not None and len(value) > field.max_items:
        problems.append(_too_many(len(value), field.max_items, path))
    if field.min_items is not None and len(value) < field.min_items:
        text = f"{render(path)} in body should have at least {field.min_items} items"
        problems.append(SchemaProblem(path, "range", f"Invalid value: {len(value)}: {text}"))
    if field.list_type == "set":
        for index, member in enumerate(value):
            if member in value[:index]:
                problems.append(SchemaProblem((*path, index), "range", f"Duplicate value: {_json(member)}"))
    item_schema = node.each
    if item_schema is not None and (item_schema.limited or not all(type(member) is str for member in value)):
        for index, member in enumerate(value):
            _shape(member, item_schema, (*path, index), problems)


def _string(value: str, node: SchemaNode, path: Path) -> Iterator[SchemaProblem]:
    field = node.field
    if field.max_length is not None and len(value) > field.max_length:
        yield SchemaProblem(path, "length", f"Too long: may not be more than {field.max_length} bytes")
    if field.min_length is not None and len(value) < field.min_length:
        text = f"{render(path)} in body should be at least {field.min_length} chars long"
        yield SchemaProblem(path, "range", f"Invalid value: {_json(value)}: {text}")
    elif node.pattern is not None and not node.pattern.search(value):
        text = f"{render(path)} in body should match '{field.pattern}'"
        yield SchemaProblem(path, "pattern", f"Invalid value: {_json(value)}: {text}")
    if field.enum is not None and value not in field.enum:
        supported = ", ".join(f'"{choice}"' for choice in field.enum)
        yield SchemaProblem(path, "enum", f"Unsupported value: {_json(value)}: supported values: {supported}")


def _scalar(value: Any, node: SchemaNode, path: Path) -> Iterator[SchemaProblem]:
    kind = node.type
    if kind == "quantity":
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            if isinstance(value, str) and node.pattern is not None and not node.pattern.search(value):
                text = f"{render(path)} in body should match '{QUANTITY}'"
                yield SchemaProblem(path, "pattern", f"Invalid value: {_json(value)}: {text}")
        else:
            yield from _misplaced(value, "integer,string", path)
    elif kind == "boolean":
        if not isinstance(value, bool):
            yield from _misplaced(value, "boolean", path)
    elif kind == "integer" and (isinstance(value, bool) or not isinstance(value, int)):
        exact = node.field.format if isinstance(value, float) and node.field.format else "integer"
        yield from _misplaced(value, exact, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _range(value, node.field, path)
    else:
        yield from _misplaced(value, "number", path)


def _range(value: float, field: Field, path: Path) -> Iterator[SchemaProblem]:
    if field.minimum is not None and value < field.minimum:
        text = f"{render(path)} in body should be greater than or equal to {field.minimum}"
        yield SchemaProblem(path, "range", f"Invalid value: {value}: {text}")
    if field.maximum is not None and value > field.maximum:
        text = f"{render(path)} in body should be less than or equal to {field.maximum}"
        yield SchemaProblem(path, "range", f"Invalid value: {value}: {text}")


def _misplaced(value: Any, expected_type: str, path: Path) -> Iterator[SchemaProblem]:
    """An object where a list or a word should be: the server calls its fields unknown, strictly."""
    if isinstance(value, dict):
        for key in value:
            yield SchemaProblem((*path, key), "unknown", f'unknown field "{render((*path, key))}"')
    yield _mistyped(value, expected_type, path)


def _mistyped(value: Any, expected_type: str, path: Path) -> SchemaProblem:
    name = "float64" if expected_type in ("int32", "int64") else _GO_NAMES.get(type(value), "object")
    text = f'{render(path)} in body must be of type {expected_type}: "{name}"'
    return SchemaProblem(path, "type", f'Invalid value: "{name}": {text}')


_GO_NAMES: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _rules(value: Any, old: Any, node: SchemaNode, path: Path) -> Iterator[SchemaProblem]:
    if type(value) is str and old is None:
        if value not in node.sound:
            problems = list(_broken(value, old, node, path))
            yield from problems
            if not problems and len(node.sound) < _REMEMBERED:
                node.sound.add(value)
        return
    if node.field.rules:
        yield from _broken(value, old, node, path)
    if isinstance(value, dict):
        for key in node.ruled:
            if key in value:
                before = old.get(key) if isinstance(old, dict) else None
                yield from _rules(value[key], before, node.fields[key], (*path, key))
        if node.type == "map" and node.each is not None and node.each.rules_within:
            for key, member in value.items():
                yield from _rules(member, None, node.each, (*path, key))
    elif isinstance(value, list) and node.each is not None and node.each.rules_within:
        for index, member in enumerate(value):
            yield from _rules(member, None, node.each, (*path, index))


def _broken(value: Any, old: Any, node: SchemaNode, path: Path) -> Iterator[SchemaProblem]:
    """The rules of one place that do not hold."""
    for rule in node.field.rules:
        try:
            if rule.holds is not None:
                held = rule.holds(value)
            else:
                held = old is None or rule.moves is None or rule.moves(value, old)
        except (KeyError, ValueError) as error:
            yield SchemaProblem(path, "rule", _error(value, error, rule.message))
            continue
        if not held:
            shown = f"{_json(value)}: " if isinstance(value, str | int) else ""
            yield SchemaProblem(path, "rule", f"Invalid value: {shown}{rule.message}")


def _error(value: Any, error: Exception, message: str) -> str:
    text = f"no such key: {error.args[0]}" if isinstance(error, KeyError) else str(error)
    name = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else "string"
    return f'Invalid value: "{name}": {text} evaluating rule: {message}'
