"""Which event could make which pod schedulable: a pod that failed is retried only when that makes sense."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dovetail.lab.scheduler.queue import Entry
from dovetail.model.fit import NodeInfo, PodInfo
from dovetail.model.fit.local import check_resources, check_static, tolerates_node
from dovetail.model.fit.podinfo import Shape
from dovetail.model.fit.rejection import Rejection
from dovetail.model.fit.terms import AffinityTerm
from dovetail.model.fit.volumes import same_disk
from dovetail.model.nodes import Node

#: Rejected because a claim does not exist: deleting a pod creates no claim.
_NO_CLAIM = "VolumeRestrictions: no claim"
_VOLUMES = frozenset({"VolumeRestrictions", _NO_CLAIM, "NodeVolumeLimits", "VolumeBinding", "VolumeZone"})
#: Plugins registered for Node add, not for taints: they see changed taints all the same, as in kube-scheduler.
_OF_NODES = frozenset(
    {
        "InterPodAffinity",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeBinding",
        "VolumeRestrictions",
        _NO_CLAIM,
        "VolumeZone",
    }
)
_OF_PLACED_PODS = frozenset({"PodTopologySpread", "InterPodAffinity"})


class Hint(msgspec.Struct, frozen=True):
    """The pods an event could help: rejected by one of `plugins` (None: by any), and `helps` is true.

    The empty name stands for pods that no plugin turned away: there was no node at all. `alike`: pods of one shape
    that the same plugins turned away are all helped, or none of them.
    """

    plugins: frozenset[str] | None
    helps: Callable[[Entry], bool] = lambda _: True
    alike: bool = True


def rejector(everywhere: Rejection) -> str:
    """The plugin that rejected a pod before any node was checked."""
    return _NO_CLAIM if everywhere.plugin == "VolumeRestrictions" else everywhere.plugin


def node_appeared(node: Node) -> Hint:
    """A node came, or changed in a way that placing pods can notice: it helps pods that would fit on it when empty."""
    empty = NodeInfo(node)
    feasible_shapes: dict[Shape, bool] = {}

    def helps(entry: Entry) -> bool:
        if entry.plugins & _OF_PLACED_PODS or (entry.plugins and entry.plugins <= _VOLUMES):
            return True
        shape = entry.info.shape
        feasible = feasible_shapes.get(shape)
        if feasible is None:
            feasible = check_static(shape, node) is None and check_resources(shape, empty) is None
            feasible_shapes[shape] = feasible
        return feasible

    return Hint(None, helps)


def gate_moved(old: Node | None, new: Node) -> Hint | None:
    """A node was cordoned, uncordoned, tainted or untainted: pods are retried, if only for another message."""
    if old is None or (old.spec.taints == new.spec.taints and old.spec.unschedulable == new.spec.unschedulable):
        return None
    opened = old.spec.unschedulable and not new.spec.unschedulable
    node_plugins = _OF_NODES | {"NodeUnschedulable"} if opened else _OF_NODES

    def helps(entry: Entry) -> bool:
        shape = entry.info.shape
        return bool(entry.plugins & node_plugins) or (tolerates_node(shape, new) and not tolerates_node(shape, old))

    return Hint(node_plugins | {"TaintToleration"}, helps)


def pod_placed(info: PodInfo) -> Hint:
    """A pod was bound: it can only help pods with affinity or spread constraints."""
    other = info.shape

    def helps(entry: Entry) -> bool:
        shape = entry.info.shape
        if "PodTopologySpread" in entry.plugins and _spread_by(shape, other):
            return True
        return "InterPodAffinity" in entry.plugins and _all_mean(shape.affinity, other)

    return Hint(_OF_PLACED_PODS, helps)


def pod_gone(info: PodInfo) -> Hint:
    """A pod was removed: it frees resources, ports and volumes, and changes affinity and spread."""
    other = info.shape

    def helps(entry: Entry) -> bool:
        shape = entry.info.shape
        return any(_FREED[plugin](shape, other) for plugin in (entry.plugins or ("",)) if plugin in _FREED)

    return Hint(frozenset(_FREED), helps)


def _spread_by(shape: Shape, other: Shape) -> bool:
    return shape.namespace == other.namespace and any(spread.selects(other.labels) for spread in shape.spread)


def _all_mean(terms: Sequence[AffinityTerm], other: Shape) -> bool:
    return bool(terms) and all(term.selects(other.namespace, other.labels, {}) for term in terms)


def _shared(shape: Shape, other: Shape) -> bool:
    """Whether both use one claim or one disk."""
    if shape.namespace != other.namespace:
        return False
    claims = {volume.persistent_volume_claim for volume in shape.volumes if volume.persistent_volume_claim is not None}
    claim_names = {claim.claim_name for claim in claims}
    return any(
        (its.persistent_volume_claim is not None and its.persistent_volume_claim.claim_name in claim_names)
        or any(same_disk(volume, its) for volume in shape.volumes)
        for its in other.volumes
    )


def _attached(_: Shape, other: Shape) -> bool:
    return any(
        volume.persistent_volume_claim or volume.ephemeral or volume.aws_elastic_block_store for volume in other.volumes
    )


#: Whether a removed pod could have been the obstacle, by the plugin that rejected the pending pod.
_FREED: dict[str, Callable[[Shape, Shape], bool]] = {
    "": lambda _, __: True,
    "NodeResourcesFit": lambda _, __: True,
    "NodePorts": lambda shape, other: any(port.scheduled_apart(two) for port in shape.ports for two in other.ports),
    "PodTopologySpread": _spread_by,
    "InterPodAffinity": lambda shape, other: (
        _all_mean(shape.anti_affinity, other) or _all_mean(other.anti_affinity, shape)
    ),
    "VolumeRestrictions": _shared,
    "NodeVolumeLimits": _attached,
}
#: A pod takes less than it did.
POD_SHRUNK = Hint(frozenset({"NodeResourcesFit"}))


def claim_changed(namespace: str, name: str) -> Hint:
    """A claim came or changed: it helps pods that wait for this claim."""

    def helps(entry: Entry) -> bool:
        pod = entry.info.pod
        named = [
            volume.persistent_volume_claim.claim_name
            if volume.persistent_volume_claim is not None
            else f"{pod.metadata.name}-{volume.name}"
            for volume in pod.spec.volumes
            if volume.persistent_volume_claim is not None or volume.ephemeral is not None
        ]
        return pod.metadata.namespace == namespace and name in named

    return Hint(_VOLUMES, helps, alike=False)


#: A volume, a class or a driver changed.
STORAGE_CHANGED = Hint(_VOLUMES - {"VolumeRestrictions", _NO_CLAIM})
#: Fewer domains may make a spread possible.
NODE_GONE = Hint(frozenset({"PodTopologySpread"}))
#: A namespace has other labels, and selectors of namespaces select others.
NAMESPACE_CHANGED = Hint(frozenset({"InterPodAffinity"}))


def is_newsworthy(old: Node | None, new: Node) -> bool:
    """Whether a node changed in anything that placing pods looks at."""
    if old is None:
        return True
    same_status = old.status.allocatable == new.status.allocatable
    return not (same_status and old.spec == new.spec and old.metadata.labels == new.metadata.labels)
