"""Node templates: what the next node of each group will look like.

A good node of the group is the best template; then one remembered from earlier; then what the cloud says about the
group, with the pods that DaemonSets would add; and last a node that is not well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.autoscalers.node_groups.annotations import (
    CONDITION_TAINTS,
    DELETION_CANDIDATE,
    STARTUP_TAINT_PREFIXES,
    STATUS_TAINT_PREFIXES,
    TO_BE_DELETED,
    is_daemonset,
    is_mirror_pod,
)
from dovetail.autoscalers.node_groups.simulation import placed_info, unbound_info
from dovetail.cloud.node_groups import NodeGroup, NodeTemplate
from dovetail.model.fit import NodeInfo
from dovetail.model.fit.local import check_static
from dovetail.model.labels import HOSTNAME
from dovetail.model.meta import ObjectMeta, OwnerReference, condition
from dovetail.model.nodes import Node, Taint
from dovetail.model.pods import Pod
from dovetail.model.workloads import DaemonSet

#: A node must have been ready this long before others are built after it.
STABILIZATION_S = 60.0


class TaintConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Taints that say how far a node has come (startup) or how it is (status), not what its group is like."""

    startup: frozenset[str] = frozenset()
    startup_prefixes: tuple[str, ...] = STARTUP_TAINT_PREFIXES
    status: frozenset[str] = frozenset()
    status_prefixes: tuple[str, ...] = STATUS_TAINT_PREFIXES

    def is_startup(self, key: str) -> bool:
        return key in self.startup or key.startswith(self.startup_prefixes)

    def is_status(self, key: str) -> bool:
        return key in self.status or key.startswith(self.status_prefixes)


def group_taints(taints: Iterable[Taint], config: TaintConfig) -> tuple[Taint, ...]:
    """The taints that every node of the group has."""
    return tuple(
        taint
        for taint in taints
        if taint.key not in (TO_BE_DELETED, DELETION_CANDIDATE)
        and taint.key not in CONDITION_TAINTS
        and not config.is_startup(taint.key)
        and not config.is_status(taint.key)
    )


def is_good_template(node: Node, now: datetime) -> bool:
    """Whether the node is ready, has been so for a while, and takes pods."""
    ready = condition(node.status.conditions, "Ready")
    if ready is None or ready.status != "True" or node.spec.unschedulable:
        return False
    since = ready.last_transition_time
    return since is None or since + timedelta(seconds=STABILIZATION_S) < now


def from_node(info: NodeInfo, group: str, config: TaintConfig, forced_daemonsets: Sequence[DaemonSet] = ()) -> NodeInfo:
    """A node of the group as a template: its passing taints and its movable pods left out.

    `forced_daemonsets` have a pod on it even where the node has none of theirs.
    """
    pods = [placed.pod for placed in info.pods.values() if is_daemonset(placed.pod) or is_mirror_pod(placed.pod)]
    staying = [pod for pod in pods if not pod.terminating]
    template = _template(info.node, staying, group, config)
    running = {owner.uid for pod in staying if (owner := pod.metadata.controller) is not None}
    _add_daemonsets(template, [daemonset for daemonset in forced_daemonsets if daemonset.metadata.uid not in running])
    return template


def from_cloud(template: NodeTemplate, daemonsets: Sequence[DaemonSet], group: str, config: TaintConfig) -> NodeInfo:
    """What the cloud says of the group, with a pod of every DaemonSet that would run there."""
    info = _template(template.node, list(template.pods), group, config)
    _add_daemonsets(info, daemonsets)
    return info


def _add_daemonsets(info: NodeInfo, daemonsets: Iterable[DaemonSet]) -> None:
    for daemonset in daemonsets:
        pod = daemonset_pod(daemonset)
        candidate = unbound_info(pod)
        if check_static(candidate.shape, info.node) is None:
            info.add(candidate)


def daemonset_pod(daemonset: DaemonSet) -> Pod:
    """The pod that a DaemonSet would make on a new node. Its controller tolerates what new nodes have."""
    meta, template = daemonset.metadata, daemonset.spec.template
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name=meta.name, uid=meta.uid, controller=True)
    return Pod(
        metadata=ObjectMeta(
            name=f"{meta.name}-pod-template",
            namespace=meta.namespace,
            uid=f"daemonset-{meta.uid or meta.key}",
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        ),
        spec=template.spec,
    )


def _template(node: Node, pods: Sequence[Pod], group: str, config: TaintConfig) -> NodeInfo:
    name = f"template-node-for-{group}"
    metadata = msgspec.structs.replace(
        node.metadata, name=name, uid="", labels={**node.metadata.labels, HOSTNAME: name}
    )
    spec = msgspec.structs.replace(node.spec, taints=group_taints(node.spec.taints, config), unschedulable=False)
    info = NodeInfo(msgspec.structs.replace(node, metadata=metadata, spec=spec))
    for pod in pods:
        info.add(placed_info(pod))
    return info


class TemplateCache:
    """Templates of groups by id, from the newest good node of each. Forgets what is older than `life_s`."""

    def __init__(self, life_s: float) -> None:
        self._life = timedelta(seconds=life_s) if life_s < 3e9 else timedelta.max
        self._known: dict[str, tuple[NodeInfo, datetime]] = {}

    def remember(self, group: str, template: NodeInfo, now: datetime) -> None:
        self._known[group] = template, now

    def find(self, group: str, now: datetime) -> NodeInfo | None:
        cached = self._known.get(group)
        if cached is None:
            return None
        if now - cached[1] > self._life:
            del self._known[group]
            return None
        return cached[0]

    def keep_only(self, groups: Iterable[str]) -> None:
        """Forget groups that are gone."""
        alive = set(groups)
        for group in [name for name in self._known if name not in alive]:
            del self._known[group]


def from_nodes(
    groups: Sequence[NodeGroup],
    nodes_of: Mapping[str, Sequence[NodeInfo]],
    cache: TemplateCache,
    config: TaintConfig,
    now: datetime,
    forced_daemonsets: Sequence[DaemonSet] = (),
) -> dict[str, NodeInfo]:
    """Templates of the groups that have or had a good node; the cache learns from the former."""
    templates: dict[str, NodeInfo] = {}
    for group in groups:
        good = next((info for info in nodes_of.get(group.id, ()) if is_good_template(info.node, now)), None)
        if good is not None:
            templates[group.id] = from_node(good, group.id, config, forced_daemonsets)
            cache.remember(group.id, templates[group.id], now)
        else:
            cached = cache.find(group.id, now)
            if cached is not None:
                templates[group.id] = cached
    cache.keep_only(group.id for group in groups)
    return templates


def from_any_node(
    nodes: Sequence[NodeInfo], group: str, config: TaintConfig, forced_daemonsets: Sequence[DaemonSet] = ()
) -> NodeInfo | None:
    """A template after a node that is not well: better than none."""
    return from_node(nodes[0], group, config, forced_daemonsets) if nodes else None
