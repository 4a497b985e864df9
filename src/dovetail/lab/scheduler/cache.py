"""The scheduler's cache: watches turned into a `ClusterNodes`, and every change into a hint for the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.cluster.pod_cache import PodTransform
from dovetail.kube.client import Kube
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import (
    CSINODES,
    NAMESPACES,
    NODES,
    PDBS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    SERVICES,
    STATEFULSETS,
    STORAGECLASSES,
    VOLUMEATTACHMENTS,
)
from dovetail.lab.scheduler import queueing_hints
from dovetail.lab.scheduler.queue import SchedulingQueue
from dovetail.model.fit import ClusterNodes, PodInfo, pod_info
from dovetail.model.nodes import Namespace, Node
from dovetail.model.pods import Pod
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment
from dovetail.model.workloads import (
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

NAME = "default-scheduler"


class Cache:
    """Keeps cluster and queue up to date. `assumed` are pods that were placed and whose binding is not seen yet.

    `retry_unhelpful` retries pods that a change cannot help, as kube-scheduler does: only their events differ.
    """

    def __init__(self, kube: Kube, queue: SchedulingQueue, *, retry_unhelpful: bool = True) -> None:
        self.cluster = ClusterNodes()
        self.queue = queue
        self._retry_unhelpful = retry_unhelpful
        self.assumed: set[str] = set()
        self.nominated: dict[str, dict[str, PodInfo]] = {}
        self.budgets: dict[str, PodDisruptionBudget] = {}
        self._pod_transform = PodTransform()
        self.pods: Reflector[Pod] = Reflector(kube, PODS, Pod, on_event=self._pod, keep=self._compacted)
        storage = self.cluster.storage
        self._reflectors: list[Reflector[Any]] = [
            Reflector(kube, NAMESPACES, Namespace, on_event=self._namespace),
            Reflector(kube, NODES, Node, on_event=self._node),
            Reflector(kube, PERSISTENTVOLUMECLAIMS, PersistentVolumeClaim, on_event=self._claim),
            Reflector(kube, PERSISTENTVOLUMES, PersistentVolume, on_event=self._stored(storage.volumes)),
            Reflector(kube, STORAGECLASSES, StorageClass, on_event=self._stored(storage.classes)),
            Reflector(kube, CSINODES, CSINode, on_event=self._stored(storage.csi_nodes)),
            Reflector(kube, VOLUMEATTACHMENTS, VolumeAttachment, on_event=self._stored(storage.attachments)),
            Reflector(kube, SERVICES, Service, on_event=self._service),
            Reflector(kube, REPLICASETS, ReplicaSet, on_event=self._controller("ReplicaSet")),
            Reflector(kube, STATEFULSETS, StatefulSet, on_event=self._controller("StatefulSet")),
            Reflector(kube, REPLICATIONCONTROLLERS, ReplicationController, on_event=self._replication_controller),
            Reflector(kube, PDBS, PodDisruptionBudget, on_event=self._budget),
            self.pods,
        ]

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Start watching; returns when everything that exists is known."""
        for reflector in self._reflectors:
            tasks.create_task(reflector.run(), name=f"scheduler watches {reflector.resource.name}")
            await reflector.synced.wait()

    # Pods

    def _compacted(self, new: Pod, old: Pod | None) -> Pod:
        """A pod that has its place is kept small: there are many, and little of them counts for placing others."""
        return self._pod_transform.keep(new, old) if new.spec.node_name else new

    def _pod(self, change: CacheChange[Pod]) -> None:
        pod = change.object
        key = pod.metadata.uid or pod.metadata.key
        if change.new is None or pod.finished:
            self._gone(key, pod)
        elif pod.spec.node_name:
            self._placed(key, change.old, pod)
        elif pod.spec.scheduler_name == NAME:
            self._pending(key, pod)

    def _gone(self, key: str, pod: Pod) -> None:
        self.queue.drop(key)
        self.set_nomination(key, None, "")
        self.assumed.discard(key)
        info = self.cluster.remove(key)
        if info is not None or pod.status.nominated_node_name:
            self._wake(queueing_hints.pod_gone(info or pod_info(pod)))

    def _placed(self, key: str, old: Pod | None, pod: Pod) -> None:
        name = pod.spec.node_name
        self.queue.drop(key)
        self.set_nomination(key, None, "")
        assumed = key in self.assumed
        self.assumed.discard(key)
        node_info = self.cluster.nodes.get(name)
        held = node_info.pods.get(key) if node_info is not None else None
        if held is not None and old is not None and _same_to_us(old, pod):
            self.cluster.refresh(key, pod)
            return
        info = pod_info(pod)
        if held is not None and (held.shape, held.kind, held.held) == (info.shape, info.kind, info.held):
            self.cluster.refresh(key, pod)
            if assumed:
                self._wake(queueing_hints.pod_placed(info))
            return
        before = self.cluster.remove(key)
        self.cluster.place(info, name)
        if before is None or before.shape.labels != info.shape.labels:
            self._wake(queueing_hints.pod_placed(info))
        if before is not None and _smaller(before, info):
            self._wake(queueing_hints.POD_SHRUNK)

    def _pending(self, key: str, pod: Pod) -> None:
        if key in self.assumed or pod.metadata.deletion_timestamp is not None:
            if pod.metadata.deletion_timestamp is not None:
                self.queue.drop(key)
            return
        info = pod_info(pod)
        self.set_nomination(key, info, pod.status.nominated_node_name)
        self.queue.put(info)

    def _wake(self, hint: queueing_hints.Hint) -> None:
        self.queue.wake(hint.plugins, hint.helps, hint.alike)

    def set_nomination(self, key: str, info: PodInfo | None, node: str) -> None:
        """Record the node a pending pod is nominated for; an empty name withdraws the nomination."""
        for name in [name for name, pods in self.nominated.items() if key in pods and name != node]:
            del self.nominated[name][key]
            if not self.nominated[name]:
                del self.nominated[name]
        if node and info is not None:
            self.nominated.setdefault(node, {})[key] = info

    # Everything else

    def _node(self, change: CacheChange[Node]) -> None:
        node = change.object
        if change.new is None:
            self.cluster.remove_node(node.metadata.name)
            self._wake(queueing_hints.NODE_GONE)
        elif queueing_hints.is_newsworthy(change.old, node) or node.status.images != _images(change.old):
            self.cluster.set_node(node)
            moved = queueing_hints.gate_moved(change.old, node) if self._retry_unhelpful else None
            if moved is not None:
                self._wake(moved)
            self._wake(queueing_hints.node_appeared(node))

    def _namespace(self, change: CacheChange[Namespace]) -> None:
        meta = change.object.metadata
        old = change.old.metadata.labels if change.old is not None else None
        new = meta.labels if change.new is not None else None
        if old != new:
            self.cluster.set_namespace(meta.name, new)
            self._wake(queueing_hints.NAMESPACE_CHANGED)

    def _claim(self, change: CacheChange[PersistentVolumeClaim]) -> None:
        self._store(self.cluster.storage.claims, change)
        meta = change.object.metadata
        self._wake(queueing_hints.claim_changed(meta.namespace, meta.name))

    def _stored(self, into: dict[str, Any]) -> Callable[[CacheChange[Any]], None]:
        def take(change: CacheChange[Any]) -> None:
            self._store(into, change)
            self._wake(queueing_hints.STORAGE_CHANGED)

        return take

    def _store(self, into: dict[str, Any], change: CacheChange[Any]) -> None:
        if change.new is None:
            into.pop(change.key, None)
        else:
            into[change.key] = change.new
        self.cluster.storage.generation += 1

    def _service(self, change: CacheChange[Service]) -> None:
        meta = change.object.metadata
        if change.new is None:
            self.cluster.owners.remove_service(meta.namespace, meta.name)
        elif change.old is None or change.old.spec.selector != change.new.spec.selector:
            self.cluster.owners.set_service(change.new)

    def _controller(self, kind: str) -> Callable[[CacheChange[Any]], None]:
        def take(change: CacheChange[Any]) -> None:
            meta = change.object.metadata
            if change.new is None:
                self.cluster.owners.remove_controller(kind, meta.namespace, meta.name)
            elif change.old is None or change.old.spec.selector != change.new.spec.selector:
                self.cluster.owners.set_controller(kind, meta.namespace, meta.name, change.new.spec.selector)

        return take

    def _replication_controller(self, change: CacheChange[ReplicationController]) -> None:
        meta = change.object.metadata
        if change.new is None:
            self.cluster.owners.remove_controller("ReplicationController", meta.namespace, meta.name)
        else:
            self.cluster.owners.set_replication_controller(change.new)

    def _budget(self, change: CacheChange[PodDisruptionBudget]) -> None:
        if change.new is None:
            self.budgets.pop(change.key, None)
        else:
            self.budgets[change.key] = change.new


def _images(node: Node | None) -> object:
    return node.status.images if node is not None else None


def _smaller(before: PodInfo, now: PodInfo) -> bool:
    """Whether a pod holds less of anything than it did."""
    return now.held != before.held and any(now.held.get(name, 0) < amount for name, amount in before.held.items())


def _same_to_us(old: Pod, new: Pod) -> bool:
    """Whether nothing changed that counts for placing others."""
    if old.metadata.deletion_timestamp != new.metadata.deletion_timestamp or old.metadata.labels != new.metadata.labels:
        return False
    if old.spec != new.spec or old.status.resources != new.status.resources:
        return False
    mine, its = old.status, new.status
    return [container_status.resources for container_status in mine.container_statuses] == [
        container_status.resources for container_status in its.container_statuses
    ]
