"""Rules against their schema, before any object exists: a field that the schema does not have is a mistake."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.lab.apiserver.crd.cel.errors import CelSyntaxError
from dovetail.lab.apiserver.crd.cel.parser import Node, parse
from dovetail.lab.apiserver.crd.cel.program import field_name
from dovetail.lab.apiserver.crd.structural import Structural

Types = Mapping[str, Structural | None]
_LOOPS = frozenset(("all", "exists", "exists_one", "existsOne", "filter", "map"))
_META = Structural({"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}})
_TEXT = Structural({"type": "string"})
_LITERALS = {str: _TEXT, bool: Structural({"type": "boolean"}), int: Structural({"type": "integer"})}


def complaint_about(text: str, schema: Structural) -> str:
    """What is wrong with a rule that parses: an unknown field, an answer that is no yes or no; "" if nothing."""
    try:
        kind = _walk(parse(text), {"self": schema, "oldSelf": schema})
    except CelSyntaxError as error:
        return f"compilation failed: {error.located(text)}"
    if kind is not None and kind.type not in ("", "boolean") and not kind.int_or_string:
        return "cel expression must evaluate to a bool"
    return ""


def no_text(expression: str, schema: Structural) -> bool:
    """Whether a message expression plainly gives something other than a text."""
    kind = _walk(parse(expression), {"self": schema, "oldSelf": schema})
    return kind is not None and kind.type not in ("", "string") and not kind.int_or_string


def _field(kind: Structural, name: str, place: int) -> Structural | None:
    if kind.root and name in ("apiVersion", "kind"):
        return _TEXT
    if (kind.root or kind.embedded) and name == "metadata":
        return _META
    child = kind.properties.get(name)
    if child is not None:
        return child
    if kind.additional is not None:
        return kind.additional
    if kind.type == "object" and not kind.preserve and not kind.embedded:
        raise CelSyntaxError(f"undefined field '{name}'", place)
    return None


def _walk(node: Node, types: Types) -> Structural | None:
    kind = node[0]
    if kind == "name":
        return types.get(node[1])
    if kind == "const":
        return _LITERALS.get(type(node[1]))
    if kind == "select":
        target = _walk(node[1], types)
        return _field(target, field_name(node[2]), node[3]) if target is not None else None
    if kind == "index":
        target = _walk(node[1], types)
        _walk(node[2], types)
        return (target.items or target.additional) if target is not None else None
    if kind == "call":
        return _call(node, types)
    for part in node[1:]:
        _parts(part, types)
    return None


def _parts(part: object, types: Types) -> None:
    if isinstance(part, list):
        for item in part:
            _parts(item, types)
    elif isinstance(part, tuple) and part and isinstance(part[0], str):
        _walk(part, types)
    elif isinstance(part, tuple):
        for item in part:
            _parts(item, types)


def _call(node: Node, types: Types) -> Structural | None:
    _, name, target, arguments, _ = node
    if target is not None and name in _LOOPS and len(arguments) >= 2 and arguments[0][0] == "name":
        over = _walk(target, types)
        inner = dict(types)
        variables = [argument[1] for argument in arguments[:-1] if argument[0] == "name"]
        element = over.items if over is not None else None
        if len(variables) == 2 and name != "map":
            inner[variables[0]] = None
            inner[variables[1]] = (over.items or over.additional) if over is not None else None
        else:
            inner[variables[0]] = element
        _walk(arguments[-1], inner)
        return over if name == "filter" else None
    if target is not None and target[:2] == ("name", "cel"):
        return None
    if name in ("optMap", "optFlatMap"):
        return None
    if name == "has" and target is None and arguments and arguments[0][0] == "select":
        _, inner, field, _ = arguments[0]
        kind = _walk(inner, types)
        if kind is not None:
            _field(kind, field_name(field), node[4])
        return None
    if target is not None:
        _walk(target, types)
    for argument in arguments:
        _walk(argument, types)
    return None
