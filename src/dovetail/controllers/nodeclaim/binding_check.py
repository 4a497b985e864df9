"""Whether a planned binding still holds: the scheduler's own rules, checked right before a pod is bound.

A plan is seconds old when its node joins. Meanwhile pods were created and deleted, and a binding past the scheduler
must not break an affinity, a spread or a volume limit. Most pods have none of these; then nothing is counted.
The view of the cluster that the rules need is made when it is first needed, kept up to date by the watches, and
dropped when it has not been used for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dovetail.clock import Clock
from dovetail.cluster.state import ClusterState
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NAMESPACES, NODES, PODS
from dovetail.model import wellknown
from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.fit import Fit
from dovetail.model.fit.podinfo import pod_info, shape_of
from dovetail.model.fit.storage import Storage
from dovetail.model.nodes import Namespace, Node
from dovetail.model.pods import Pod
from dovetail.model.taints import UNSCHEDULABLE

#: The view is dropped when no binding has been checked for so many seconds.
VIEW_KEPT_FOR_S = 120.0


class BindingCheck:
    """Checks the pods of one node at a time; what it admits counts for the next."""

    def __init__(self, cluster_state: ClusterState, clock: Clock) -> None:
        self._cluster_state = cluster_state
        self._clock = clock
        self._cluster: ClusterNodes | None = None
        self._asked = 0.0
        #: Bound pods with required anti-affinity: while there are any, every binding is checked.
        self._repelling = {pod.metadata.uid for pod in cluster_state.pods.store.all() if _repels(pod)}
        cluster_state.listen(PODS, self._pod_changed)
        cluster_state.listen(NODES, self._node_changed)
        cluster_state.listen(NAMESPACES, self._namespace_changed)

    def rejections(self, pods: Sequence[Pod], node: Node) -> dict[str, str]:
        """Why pods may not be bound to a node now, by UID. The others count as bound from now on."""
        if not self._repelling and not any(map(_asks_about_others, pods)):
            return {}
        cluster = self._view()
        if any(shape_of(pod).volumes for pod in pods):
            cluster.storage = self._storage(cluster)
        info = cluster.nodes.get(node.metadata.name)
        if info is None:
            return dict.fromkeys((pod.metadata.uid for pod in pods), "the node is gone")
        rejected: dict[str, str] = {}
        fits: dict[int, Fit] = {}
        for pod in pods:
            pod_to_bind = pod_info(pod)
            fit = None if pod_to_bind.shape.volumes else fits.get(id(pod_to_bind.shape))
            if fit is None:
                fit = fits[id(pod_to_bind.shape)] = Fit(pod_to_bind, cluster)
            rejection = fit.rejection or fit.check(info)
            if rejection is not None:
                rejected[pod.metadata.uid] = f"{rejection.plugin}: {', '.join(rejection.reasons)}"
                continue
            cluster.place(pod_to_bind, node.metadata.name)
            for other in fits.values():
                other.move(pod_to_bind, info, 1)
        return rejected

    def withdraw(self, pod: Pod) -> None:
        """A pod that was admitted was not bound after all."""
        if self._cluster is not None:
            self._cluster.remove(pod_info(pod).key)

    def _view(self) -> ClusterNodes:
        self._asked = self._clock.monotonic()
        if self._cluster is None:
            cluster_state = self._cluster_state
            nodes = map(_open, cluster_state.nodes.store.all())
            self._cluster = ClusterNodes.of(
                nodes, cluster_state.pods.store.all(), cluster_state.namespaces.store.all(), self._storage()
            )
        return self._cluster

    def _storage(self, cluster: ClusterNodes | None = None) -> Storage:
        cluster_state = self._cluster_state
        storage = Storage(
            cluster_state.volume_claims.store.all(),
            cluster_state.volumes.store.all(),
            cluster_state.storage_classes.store.all(),
            cluster_state.csi_nodes.store.all(),
            cluster_state.attachments.store.all(),
        )
        if cluster is not None:
            storage.used = cluster.storage.used
        return storage

    def _kept(self) -> ClusterNodes | None:
        if self._cluster is not None and self._clock.monotonic() - self._asked > VIEW_KEPT_FOR_S:
            self._cluster = None
        return self._cluster

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is not None and _repels(pod):
            self._repelling.add(pod.metadata.uid)
        else:
            self._repelling.discard(change.object.metadata.uid)
        cluster = self._kept()
        if cluster is None:
            return
        if pod is None or pod.finished:
            cluster.remove(pod_info(change.object).key)
        elif pod.spec.node_name:
            cluster.place(pod_info(pod), pod.spec.node_name)

    def _node_changed(self, change: CacheChange[Node]) -> None:
        cluster = self._kept()
        if cluster is not None and change.new is not None:
            cluster.set_node(_open(change.new))
        elif cluster is not None:
            cluster.remove_node(change.key)

    def _namespace_changed(self, change: CacheChange[Namespace]) -> None:
        cluster = self._kept()
        if cluster is not None:
            cluster.set_namespace(change.key, change.new.metadata.labels if change.new is not None else None)


def _asks_about_others(pod: Pod) -> bool:
    """Whether a pod's placement depends on other pods or on volumes."""
    shape = shape_of(pod)
    return bool(shape.affinity or shape.anti_affinity or shape.spread or shape.volumes)


def _repels(pod: Pod) -> bool:
    """Whether a pod is bound and has required anti-affinity."""
    affinity: Any = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    return bool(anti is not None and anti.required) and bool(pod.spec.node_name) and not pod.finished


def _open(node: Node) -> Node:
    """A node as it will be once it is filled: without our taint and its cordon."""
    if not any(taint.key == wellknown.PLACING for taint in node.spec.taints):
        return node
    taints = tuple(taint for taint in node.spec.taints if taint.key not in (wellknown.PLACING, UNSCHEDULABLE))
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=taints, unschedulable=False))
