"""Which happening could help which pod: after it failed, a pod is tried again only when that makes sense."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.lab.scheduler.queue import Entry
from dovetail.model.fit import NodeInfo, PodInfo
from dovetail.model.fit.local import check_resources, check_static
from dovetail.model.nodes import Node

Hint = Callable[[Entry], bool]

_STATIC = frozenset({"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity"})
_VOLUMES = frozenset({"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"})
_OF_PLACED_PODS = frozenset({"PodTopologySpread", "InterPodAffinity"})
_OF_GONE_PODS = _OF_PLACED_PODS | {"NodeResourcesFit", "NodePorts", "VolumeRestrictions", "NodeVolumeLimits"}


def node_appeared(node: Node) -> Hint:
    """A node came, or changed in a way that placing pods can notice: it helps who could be on it when empty."""
    empty = NodeInfo(node)

    def helps(entry: Entry) -> bool:
        shape = entry.info.shape
        if entry.plugins and entry.plugins <= _VOLUMES:
            return True
        if entry.plugins & _OF_PLACED_PODS:
            return True
        return check_static(shape, node) is None and check_resources(shape, empty) is None

    return helps


def pod_placed(info: PodInfo) -> Hint:
    """A pod found its place: only who looks for company cares."""

    def helps(entry: Entry) -> bool:
        if not entry.plugins & _OF_PLACED_PODS:
            return False
        shape = entry.info.shape
        if any(each.selects(info.shape.labels) for each in shape.spread):
            return True
        return any(term.selector is not None and term.selector.matches(info.shape.labels) for term in shape.affinity)

    return helps


def pod_gone(_: PodInfo) -> Hint:
    """A pod left a node: there is more room, or less company."""
    return lambda entry: not entry.plugins or bool(entry.plugins & _OF_GONE_PODS)


def storage_changed(entry: Entry) -> bool:
    """A claim, a volume, a class or a driver changed."""
    return bool(entry.plugins & _VOLUMES)


def anything(_: Entry) -> bool:
    return True


def node_gone(entry: Entry) -> bool:
    """Fewer domains may make a spread possible."""
    return "PodTopologySpread" in entry.plugins


def worth_telling(old: Node | None, new: Node) -> bool:
    """Whether a node changed in anything that placing pods looks at."""
    if old is None:
        return True
    same_status = old.status.allocatable == new.status.allocatable
    return not (same_status and old.spec == new.spec and old.metadata.labels == new.metadata.labels)
