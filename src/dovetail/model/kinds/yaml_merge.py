"""A converted object put back into the YAML it came from, so that comments, order and quotes stay.

What stands where it stood is left alone; what moved is moved with its comments; the rest is written new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from dovetail.model.kinds.conversion_annotations import same

#: Fields that carry on under another name, so that their comments may.
RENAMED: Mapping[str, tuple[str, ...]] = {
    "expireAfter": ("ttlSecondsUntilExpired",),
    "consolidateAfter": ("ttlSecondsAfterEmpty",),
    "kubelet": ("kubeletConfiguration",),
    "nodeClassRef": ("providerRef", "machineTemplateRef"),
    "limits": ("resources",),
    "consolidationPolicy": ("enabled",),
    "subnetSelectorTerms": ("subnetSelector",),
    "securityGroupSelectorTerms": ("securityGroupSelector",),
    "amiSelectorTerms": ("amiSelector", "amiFamily"),
    "amiFamily": ("amiSelectorTerms",),
}

#: Blocks that move as they are, though their contents may change on the way.
MOVING = frozenset({"requirements", "taints", "startupTaints", "labels", "annotations", "limits", "kubelet"})

Home = tuple[CommentedMap, str]


def graft(tree: CommentedMap, value: Mapping[str, Any]) -> CommentedMap:
    """The tree changed to say what `value` says."""
    homes: dict[str, list[Home]] = {}
    for parent, key in _fields(tree):
        homes.setdefault(key, []).append((parent, key))
    kept = {(id(parent), key) for parent, key in _staying(tree, value)}
    loose = {name: [home for home in places if (id(home[0]), home[1]) not in kept] for name, places in homes.items()}
    originals = {
        (id(parent), key): (parent[key], parent.ca.items.get(key))
        for places in loose.values()
        for parent, key in places
    }
    return _map(tree, value, loose, originals)


def plain(node: Any) -> Any:
    """The bare value of a node."""
    if isinstance(node, Mapping):
        return {str(key): plain(member) for key, member in node.items()}
    if isinstance(node, list):
        return [plain(member) for member in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (str, int, float):
        if isinstance(node, kind):
            return kind(node)
    return str(node)


def _fields(node: Any) -> Iterator[Home]:
    if isinstance(node, CommentedMap):
        for key, member in node.items():
            if isinstance(key, str):
                yield node, key
            yield from _fields(member)
    elif isinstance(node, CommentedSeq):
        for member in node:
            yield from _fields(member)


def _staying(node: Any, value: Any) -> Iterator[Home]:
    """Fields that are there before and after, in the same place."""
    if isinstance(node, CommentedMap) and isinstance(value, Mapping):
        for key in node:
            if isinstance(key, str) and key in value:
                yield node, key
                yield from _staying(node[key], value[key])
    elif isinstance(node, CommentedSeq) and isinstance(value, list):
        for member, new_value in zip(node, value, strict=False):
            yield from _staying(member, new_value)


Originals = dict[tuple[int, str], tuple[Any, Any]]


def _build(value: Any, here: Any, loose: dict[str, list[Home]], originals: Originals) -> Any:
    if here is not None and same(plain(here), value):
        return here
    if isinstance(value, Mapping):
        return _map(here if isinstance(here, CommentedMap) else CommentedMap(), value, loose, originals)
    if isinstance(value, list):
        node_ = here if isinstance(here, CommentedSeq) else CommentedSeq()
        del node_[len(value) :]
        for index, member in enumerate(value):
            if index < len(node_):
                node_[index] = _build(member, node_[index], loose, originals)
            else:
                node_.append(_build(member, None, loose, originals))
        return node_
    return value


def _map(
    node: CommentedMap, value: Mapping[str, Any], loose: dict[str, list[Home]], originals: Originals
) -> CommentedMap:
    for key in [key for key in node if key not in value]:
        del node[key]
        node.ca.items.pop(key, None)
    for index, (key, member) in enumerate(value.items()):
        if key in node:
            node[key] = _build(member, node[key], loose, originals)
            continue
        moved, comment = _moved(key, member, loose, originals)
        node.insert(min(index, len(node)), key, _build(member, moved, loose, originals))
        if comment is not None:
            node.ca.items[key] = comment
    return node


def _moved(key: str, value: Any, loose: dict[str, list[Home]], originals: Originals) -> tuple[Any, Any]:
    """A node that stood elsewhere under this name or an older one, and its comment."""
    for name in (key, *RENAMED.get(key, ())):
        for home in list(loose.get(name, ())):
            node, comment = originals[id(home[0]), home[1]]
            fits = type(plain(node)) is type(value)
            scalar = not isinstance(node, CommentedMap | CommentedSeq)
            if (fits and (key in MOVING or same(plain(node), value))) or (scalar and name != key):
                loose[name].remove(home)
                for parent, inner in _fields(node):
                    loose[inner] = [place for place in loose.get(inner, ()) if place[0] is not parent]
                return (node if fits else None), comment
    return None, None
