"""Sets of field paths, in the very form that managedFields stores them.

A set is a tree of dicts: keys are path elements (`f:name`, `k:{"name":"c"}`, `v:"x"`), an empty dict is a member,
and `.` marks a member that has children. The root is no member; an empty root is the empty set.
Sets are never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dovetail.model.validation.field_errors import quoted

Node = dict[str, Any]
Path = tuple[str, ...]
SELF = "."
_sorted_json = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.decode


def field(name: str) -> str:
    return "f:" + name


def key(values: dict[str, Any]) -> str:
    return "k:" + _sorted_json(values).decode()


def value(item: Any) -> str:
    return "v:" + _sorted_json(item).decode()


def _member(node: Node) -> bool:
    return not node or SELF in node


def _made(children: Node, member: bool) -> Node | None:
    """A node of these children; None if there is nothing left of it."""
    if not children:
        return {} if member else None
    if member:
        return {SELF: {}, **children}
    return children


def union(node: Node, other: Node) -> Node:
    out = {**node}
    for name, theirs in other.items():
        ours = out.get(name)
        out[name] = theirs if ours is None else _union(ours, theirs)
    return out


def _union(node: Node, other: Node) -> Node:
    member = _member(node) or _member(other)
    children = union(_children(node), _children(other))
    made = _made(children, member)
    return {} if made is None else made


def _children(node: Node) -> Node:
    return {name: child for name, child in node.items() if name != SELF} if SELF in node else node


def difference(node: Node, other: Node) -> Node:
    """What is in one and not in the other."""
    out: Node = {}
    for name, ours in node.items():
        theirs = other.get(name)
        left = ours if theirs is None else _difference(ours, theirs)
        if left is not None:
            out[name] = left
    return out


def _difference(node: Node, other: Node) -> Node | None:
    member = _member(node) and not _member(other)
    return _made(difference(_children(node), _children(other)), member)


def intersection(node: Node, other: Node) -> Node:
    out: Node = {}
    for name, ours in node.items():
        theirs = other.get(name)
        if theirs is not None:
            both = _made(intersection(_children(ours), _children(theirs)), _member(ours) and _member(theirs))
            if both is not None:
                out[name] = both
    return out


def without_branches(node: Node, roots: Iterable[Path]) -> Node:
    """The set without these paths and everything below them."""
    for path in roots:
        node = _without(node, path)
    return node


def _without(node: Node, path: Path) -> Node:
    name = path[0]
    child = node.get(name)
    if child is None:
        return node
    rest = {key: item for key, item in node.items() if key != name}
    if len(path) > 1:
        left = _made(_without(_children(child), path[1:]), _member(child))
        if left is not None:
            rest[name] = left
    return rest


def has(node: Node, path: Path) -> bool:
    for name in path:
        child = node.get(name)
        if child is None:
            return False
        node = child
    return _member(node)


def at(node: Node, name: str) -> Node | None:
    """The set below a path element, None where there is none."""
    child = node.get(name)
    return None if not child else _children(child)


def single(path: Path) -> Node:
    """A set of one path."""
    out: Node = {}
    for name in reversed(path):
        out = {name: out}
    return out


def paths(node: Node, prefix: Path = ()) -> Iterator[Path]:
    """Every member, in the order in which conflicts are listed: members of a level first, then what is below."""
    names = sorted((name for name in node if name != SELF), key=_rank)
    for name in names:
        if _member(node[name]):
            yield (*prefix, name)
    for name in names:
        yield from paths(_children(node[name]), (*prefix, name))


def _rank(name: str) -> tuple[int, Any]:
    kind = "fkvi".index(name[0])
    if name[0] == "i":
        return kind, int(name[2:])
    return kind, name


def show(path: Path) -> str:
    """A path as messages print it: `.spec.containers[name="c"].image`."""
    return "".join(_shown(name) for name in path)


def _shown(name: str) -> str:
    kind, text = name[:1], name[2:]
    if kind == "f":
        return f".{text}"
    if kind == "i":
        return f"[{text}]"
    if kind == "v":
        return f"[={_literal(_decode(text))}]"
    parts = (f"{key}={_literal(item)}" for key, item in sorted(_decode(text).items()))
    return f"[{','.join(parts)}]"


def _literal(item: Any) -> str:
    if isinstance(item, str):
        return quoted(item)
    if isinstance(item, bool):
        return "true" if item else "false"
    return "null" if item is None else str(item)


def valid(node: Any) -> bool:
    """Whether a document is a set at all."""
    if not isinstance(node, dict):
        return False
    return all((name == SELF or name[:2] in ("f:", "k:", "v:", "i:")) and valid(child) for name, child in node.items())
