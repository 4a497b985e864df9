"""What the program watches, and a snapshot of it for one loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.autoscalers.node_groups.drain import Controllers
from dovetail.autoscalers.node_groups.node_claims import NodeClaimWatch
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot, placed_info, unbound_info
from dovetail.kube.client import Kube
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.resources import (
    CSINODES,
    DAEMONSETS,
    JOBS,
    NAMESPACES,
    NODES,
    PDBS,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
    STORAGECLASSES,
)
from dovetail.model.fit import ClusterNodes
from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.fit.storage import Storage
from dovetail.model.nodes import Namespace, Node
from dovetail.model.pods import Pod
from dovetail.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from dovetail.model.workloads import (
    DaemonSet,
    Job,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
)

#: A copy this old, in seconds, while its watch fails, is no evidence for adding or ending anything.
STALE_AFTER_S = 60.0


class ClusterWatch:
    """Keeps copies of the kinds that decisions read. `on_pod` hears of every pod that is new or changed."""

    def __init__(self, kube: Kube, on_pod: Callable[[Pod], None]) -> None:
        self._clock = kube.clock
        self._on_pod = on_pod
        self._placed: dict[str, tuple[str, PodInfo]] = {}
        self.pods: Reflector[Pod] = Reflector(kube, PODS, Pod, on_event=self._pod_changed)
        self.nodes: Reflector[Node] = Reflector(kube, NODES, Node)
        self.pdbs: Reflector[PodDisruptionBudget] = Reflector(kube, PDBS, PodDisruptionBudget)
        self.daemonsets: Reflector[DaemonSet] = Reflector(kube, DAEMONSETS, DaemonSet)
        self.replicasets: Reflector[ReplicaSet] = Reflector(kube, REPLICASETS, ReplicaSet)
        self.statefulsets: Reflector[StatefulSet] = Reflector(kube, STATEFULSETS, StatefulSet)
        self.jobs: Reflector[Job] = Reflector(kube, JOBS, Job)
        self.replication_controllers: Reflector[ReplicationController] = Reflector(
            kube, REPLICATIONCONTROLLERS, ReplicationController
        )
        self.namespaces: Reflector[Namespace] = Reflector(kube, NAMESPACES, Namespace)
        self.claims: Reflector[PersistentVolumeClaim] = Reflector(kube, PERSISTENTVOLUMECLAIMS, PersistentVolumeClaim)
        self.volumes: Reflector[PersistentVolume] = Reflector(kube, PERSISTENTVOLUMES, PersistentVolume)
        self.classes: Reflector[StorageClass] = Reflector(kube, STORAGECLASSES, StorageClass)
        self.csi_nodes: Reflector[CSINode] = Reflector(kube, CSINODES, CSINode)
        self.node_claims = NodeClaimWatch(kube)
        self._all: tuple[Reflector[Any], ...] = (
            self.pods,
            self.nodes,
            self.pdbs,
            self.daemonsets,
            self.replicasets,
            self.statefulsets,
            self.jobs,
            self.replication_controllers,
            self.namespaces,
            self.claims,
            self.volumes,
            self.classes,
            self.csi_nodes,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                group.create_task(reflector.run(), name=f"watch {reflector.resource.name}")
            group.create_task(self.node_claims.run(), name="watch nodeclaims")

    async def synced(self) -> None:
        for reflector in self._all:
            await reflector.synced.wait()

    def staleness(self) -> str:
        """Which copies are too old to act upon, and why; empty where all are fresh."""
        now = self._clock.monotonic()
        return "; ".join(
            f"{reflector.resource.name} were last read {now - reflector.heard:.0f}s ago: {reflector.failure}"
            for reflector in (self.nodes, self.pods, self.pdbs)
            if reflector.failure is not None and now - reflector.heard > STALE_AFTER_S
        )

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.object
        key = pod.metadata.uid or pod.metadata.key
        if change.new is None or not pod.spec.node_name or pod.finished:
            self._placed.pop(key, None)
        else:
            self._placed[key] = (pod.spec.node_name, placed_info(pod))
        if change.new is not None:
            self._on_pod(change.new)

    def snapshot(self, expendable_below: int) -> ClusterSnapshot:
        """The nodes with the pods that count: expendable ones do not, and nominated ones already do."""
        storage = Storage(self.claims.store, self.volumes.store, self.classes.store, self.csi_nodes.store)
        cluster = ClusterNodes(storage)
        for namespace in self.namespaces.store:
            cluster.set_namespace(namespace.metadata.name, namespace.metadata.labels)
        for node in self.nodes.store:
            cluster.set_node(node)
        for name, info in self._placed.values():
            if info.priority >= expendable_below:
                cluster.place(info, name)
        for pod in self.pods.store:
            if pod.status.nominated_node_name and not pod.spec.node_name and not pod.terminating:
                cluster.place(unbound_info(pod), pod.status.nominated_node_name)
        return ClusterSnapshot(cluster)

    def controllers(self) -> Controllers:
        """The controllers that exist."""
        replicas: dict[tuple[str, str, str], int] = {}
        for kind, reflector in (
            ("ReplicaSet", self.replicasets),
            ("ReplicationController", self.replication_controllers),
            ("StatefulSet", self.statefulsets),
        ):
            for workload in reflector.store:
                replicas[kind, workload.metadata.namespace, workload.metadata.name] = workload.spec.replicas
        for job in self.jobs.store:
            replicas["Job", job.metadata.namespace, job.metadata.name] = 0
        for daemonset in self.daemonsets.store:
            replicas["DaemonSet", daemonset.metadata.namespace, daemonset.metadata.name] = 0
        return Controllers(replicas)

    def pods_on(self, node: str) -> list[Pod]:
        """The pods of a node as they are now."""
        return [info.pod for name, info in self._placed.values() if name == node]
