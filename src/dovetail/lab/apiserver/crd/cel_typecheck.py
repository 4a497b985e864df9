"""Rules against their schema, before any object exists: unknown fields, and kinds of values that no function takes.

What the schema does not say for certain fits everywhere, so that no rule is refused that could ever hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dovetail.lab.apiserver.crd.cel import types
from dovetail.lab.apiserver.crd.cel.errors import CelSyntaxError
from dovetail.lab.apiserver.crd.cel.field_names import field_name
from dovetail.lab.apiserver.crd.cel.functions import GLOBALS, METHODS, TYPES
from dovetail.lab.apiserver.crd.cel.macros import MACROS
from dovetail.lab.apiserver.crd.cel.parser import Node, parse, place_of
from dovetail.lab.apiserver.crd.cel.types import BOOL, INT, STRING, CelType, Mismatch, fits, list_of, map_of, shown
from dovetail.lab.apiserver.crd.rule import ValidationRule
from dovetail.lab.apiserver.crd.structural import Structural

Known = Mapping[str, CelType | None]


class FieldKinds:
    """The kinds of an object's fields, where no schema describes them."""

    def __init__(self, kinds: Mapping[str, CelType | None]) -> None:
        self.kinds = dict(kinds)


_LOOPS = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map"))
_META = Structural({"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}})
_SCALARS = {"integer": INT, "number": types.DOUBLE, "boolean": BOOL, "string": STRING}
_FORMATS = {"duration": types.DURATION, "date-time": types.TIMESTAMP, "date": types.TIMESTAMP, "byte": types.BYTES}
_LITERALS = {str: STRING, bool: BOOL, int: INT, float: types.DOUBLE, bytes: types.BYTES, type(None): types.NULL}
_LIBRARIES = frozenset(("cel", "optional", "math", "sets", "strings", "format", "semver", "base64"))


def complaint_about(rule: ValidationRule, schema: Structural) -> str:
    """What is wrong with a rule that parses; "" if nothing."""
    kind = kind_of(schema)
    try:
        kind = walk(parse(rule.text), {"self": kind, "oldSelf": None if rule.optional_old else kind})
    except CelSyntaxError as error:
        return f"compilation failed: {error.located(rule.text)}"
    return "" if fits(kind, BOOL) else "cel expression must evaluate to a bool"


def no_text(expression: str, schema: Structural) -> bool:
    """Whether a message expression plainly gives something other than a text."""
    try:
        kind = walk(parse(expression), {"self": kind_of(schema), "oldSelf": None})
    except CelSyntaxError:
        return False
    return not fits(kind, STRING)


def kind_of(node: Structural | None) -> CelType | None:
    """The kind of the values a schema describes."""
    if node is None or node.int_or_string or node.nullable:
        return None
    if node.type == "string":
        return _FORMATS.get(node.raw.get("format", ""), STRING)
    if node.type == "array":
        return list_of(kind_of(node.items))
    if node.type == "object":
        if node.additional is not None and not node.properties:
            return map_of(STRING, kind_of(node.additional))
        return CelType("object", schema=node)
    return _SCALARS.get(node.type)


def _field(kind: CelType | None, name: str, place: int) -> CelType | None:
    if kind is None or kind.name == "optional_type":
        return None
    if kind.name == "map":
        return kind.inner[1]
    if isinstance(kind.schema, FieldKinds):
        if name not in kind.schema.kinds:
            raise CelSyntaxError(f"undefined field '{name}'", place)
        return kind.schema.kinds[name]
    if not isinstance(kind.schema, Structural):
        raise CelSyntaxError(f"type '{shown(kind)}' does not support field selection", place)
    node = kind.schema
    if node.root and name in ("apiVersion", "kind"):
        return STRING
    if (node.root or node.embedded) and name == "metadata":
        return kind_of(_META)
    if name in node.properties:
        return kind_of(node.properties[name])
    if node.embedded or node.preserve or node.additional is not None:
        return None
    raise CelSyntaxError(f"undefined field '{name}'", place)


def walk(node: Node, kinds: Known) -> CelType | None:
    return _WALKS[node[0]](node, kinds)


def _no_overload(name: str, applied: str, place: int) -> CelSyntaxError:
    return CelSyntaxError(f"found no matching overload for '{name}' applied to '{applied}'", place)


def _listed(given: list[CelType | None]) -> str:
    return f"({', '.join(shown(kind) for kind in given)})"


def _name(node: Node, kinds: Known) -> CelType | None:
    name = node[1]
    if name in kinds:
        return kinds[name]
    if name in TYPES or name in _LIBRARIES:
        return None
    raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", node[2])


def _const(node: Node, kinds: Known) -> CelType | None:
    return _LITERALS.get(type(node[1]))


def _select(node: Node, kinds: Known) -> CelType | None:
    return _field(walk(node[1], kinds), field_name(node[2]), node[3])


def _select_optional(node: Node, kinds: Known) -> CelType | None:
    return CelType("optional_type", (_select(node, kinds),))


def _index(node: Node, kinds: Known) -> CelType | None:
    target, index_kind = walk(node[1], kinds), walk(node[2], kinds)
    if target is None or target.name not in ("list", "map"):
        return None
    item_type = INT if target.name == "list" else target.inner[0]
    if not fits(index_kind, item_type) and not (target.name == "list" and index_kind == types.DOUBLE):
        raise _no_overload("_[_]", _listed([target, index_kind]), node[3])
    return target.inner[-1]


def _index_optional(node: Node, kinds: Known) -> CelType | None:
    return CelType("optional_type", (_index(node, kinds),))


def _list(node: Node, kinds: Known) -> CelType | None:
    return list_of(_alike([item for item in node[1] if item[0] != "optional"], kinds))


def _alike(items: list[Node], kinds: Known) -> CelType | None:
    """The kind of all of them: the first one's."""
    first: CelType | None = None
    for item in items:
        kind = walk(item, kinds)
        if first is not None and not fits(kind, first):
            raise CelSyntaxError(f"expected type '{shown(first)}' but found '{shown(kind)}'", place_of(item))
        first = first or kind
    return first


def _map(node: Node, kinds: Known) -> CelType | None:
    keys, values = [entry[0] for entry in node[1]], [entry[1] for entry in node[1]]
    return map_of(_alike(keys, kinds), _alike(values, kinds))


def _message(node: Node, kinds: Known) -> CelType | None:
    _, name, fields, place = node
    if name.partition(".")[0] not in kinds:
        raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", place)
    for _, _, value in fields:
        walk(value, kinds)
    return CelType(name)


def _not(node: Node, kinds: Known) -> CelType | None:
    kind = walk(node[1], kinds)
    if not fits(kind, BOOL):
        raise _no_overload("!_", _listed([kind]), node[2])
    return BOOL


def _negate(node: Node, kinds: Known) -> CelType | None:
    kind = walk(node[1], kinds)
    if kind not in (None, INT, types.DOUBLE):
        raise _no_overload("-_", _listed([kind]), node[2])
    return kind


def _if(node: Node, kinds: Known) -> CelType | None:
    parts = [walk(part, kinds) for part in node[1:4]]
    if not fits(parts[0], BOOL) or not fits(parts[1], parts[2]):
        raise _no_overload("_?_:_", _listed(parts), node[4])
    return parts[1] if parts[1] is not None and parts[1] != types.NULL else parts[2]


def _logic(node: Node, kinds: Known) -> CelType | None:
    for part in node[1:]:
        kind = walk(part, kinds)
        if not fits(kind, BOOL):
            raise CelSyntaxError(f"expected type 'bool' but found '{shown(kind)}'", place_of(part))
    return BOOL


def _binary(node: Node, kinds: Known) -> CelType | None:
    _, operator, place, *sides = node
    left, right = (walk(side, kinds) for side in sides)
    try:
        return types.binary(operator, left, right)
    except Mismatch:
        name = "@in" if operator == "in" else f"_{operator}_"
        raise _no_overload(name, _listed([left, right]), place) from None


def _optional(node: Node, kinds: Known) -> CelType | None:
    return walk(node[1], kinds)


def _call(node: Node, kinds: Known) -> CelType | None:
    _, name, target, arguments, place = node
    if target is not None and name in _LOOPS and len(arguments) >= 2 and arguments[0][0] == "name":
        return _loop(name, walk(target, kinds), arguments, kinds)
    if name == "has" and target is None:
        _select((*arguments[0][:3], place), kinds)
        return BOOL
    if name in ("optMap", "optFlatMap") or (target is not None and target[0] == "name" and target[1] in _LIBRARIES):
        return None
    if name == "format" and target is not None and arguments and arguments[0][0] == "list":
        for item in arguments[0][1]:  # what is put into a text may be of any kind
            walk(item, kinds)
        return STRING
    given = [walk(argument, kinds) for argument in arguments]
    if target is None:
        return _applied(types.FUNCTIONS.get(name), name, given, _listed(given), place)
    over = walk(target, kinds)
    if name == "hasValue":
        return BOOL
    if name in ("orValue", "value") and over is not None and over.name == "optional_type":
        return over.inner[0]
    if name == "matches":
        _check_pattern(arguments)
    qualified = f"{target[1]}.{name}" if target[0] == "name" else ""
    if not any(name in names for names in (types.METHODS, METHODS, MACROS)) and qualified not in GLOBALS:
        raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')", place)
    return _applied(types.METHODS.get(name), name, [over, *given], f"{shown(over)}.{_listed(given)}", place)


def _applied(
    signatures: tuple[types.Signature, ...] | None, name: str, given: list[CelType | None], applied: str, place: int
) -> CelType | None:
    if signatures is None:
        return None
    try:
        return types.called(signatures, given)
    except Mismatch:
        raise _no_overload(name, applied, place) from None


def _check_pattern(arguments: list[Node]) -> None:
    if arguments and arguments[0][0] == "const" and isinstance(arguments[0][1], str):
        try:
            re.compile(arguments[0][1])
        except re.error:
            raise CelSyntaxError("invalid matches argument", place_of(arguments[0])) from None


def _loop(name: str, over: CelType | None, arguments: list[Node], kinds: Known) -> CelType | None:
    """A comprehension: its variables have the kinds of what is gone through."""
    inner = dict(kinds)
    key, value = (None, None) if over is None or not over.inner else (over.inner[0], over.inner[-1])
    names = [argument[1] for argument in arguments[:-1] if argument[0] == "name"]
    if len(names) == 2 and name != "map":
        inner[names[0]], inner[names[1]] = INT if over is not None and over.name == "list" else key, value
    else:
        inner[names[0]] = key
        for argument in arguments[1:-1]:
            walk(argument, inner)
    body = walk(arguments[-1], inner)
    if name == "filter":
        return over
    return list_of(body) if name == "map" else BOOL


_WALKS: dict[str, Callable[[Node, Known], CelType | None]] = {
    "name": _name,
    "const": _const,
    "select": _select,
    "select?": _select_optional,
    "index": _index,
    "index?": _index_optional,
    "list": _list,
    "map": _map,
    "message": _message,
    "not": _not,
    "negate": _negate,
    "if": _if,
    "and": _logic,
    "or": _logic,
    "binary": _binary,
    "optional": _optional,
    "call": _call,
}
