"""The cluster as fitting sees it: nodes with their pods, and what pods refer to.

It can be cut whole from lists (`ClusterNodes.of`) or kept up to date object by object. A pod that names a node
is unknown waits until the node appears.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.owners import Owners
from dovetail.model.fit.podinfo import PodInfo, pod_info
from dovetail.model.fit.storage import Storage
from dovetail.model.nodes import Namespace, Node
from dovetail.model.pods import Pod


class ClusterNodes:
    """Nodes in the order they came; namespaces by name with their labels.

    `generation` grows with every change; `touched` are the nodes changed since it was last emptied.
    """

    def __init__(self, storage: Storage | None = None, owners: Owners | None = None) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.storage = storage or Storage()
        self.owners = owners or Owners()
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        self._placed: dict[str, str] = {}
        self._priorities: Counter[int] = Counter()
        self.generation = 0
        self.namespace_generation = 0
        self.touched: dict[str, None] = {}

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod] = (),
        namespaces: Iterable[Namespace] = (),
        storage: Storage | None = None,
        owners: Owners | None = None,
    ) -> ClusterNodes:
        """A snapshot of these objects; pods that have ended or have no node do not count."""
        cluster = cls(storage, owners)
        for namespace in namespaces:
            cluster.set_namespace(namespace.metadata.name, namespace.metadata.labels)
        for node in nodes:
            cluster.set_node(node)
        for pod in pods:
            if pod.spec.node_name and not pod.finished:
                cluster.place(pod_info(pod), pod.spec.node_name)
        return cluster

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace appeared, changed, or is gone (no labels)."""
        if labels is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = labels
        self.namespace_generation += 1

    def set_node(self, node: Node) -> NodeInfo:
        """A node appeared or changed."""
        name = node.metadata.name
        info = self.nodes.get(name)
        if info is None:
            info = self.nodes[name] = NodeInfo(node)
            for pod in self._homeless.pop(name, {}).values():
                info.add(pod)
        else:
            info.set_node(node)
        self._touch(name)
        return info

    def remove_node(self, name: str) -> None:
        """A node is gone; its pods are remembered until they go as well."""
        info = self.nodes.pop(name, None)
        if info is not None and info.pods:
            self._homeless[name] = dict(info.pods)
        self._touch(name)

    def place(self, info: PodInfo, name: str) -> None:
        """A pod is on a node; where it was counted before, it is counted no more."""
        self.remove(info.key)
        node = self.nodes.get(name)
        if node is None:
            self._homeless.setdefault(name, {})[info.key] = info
        else:
            node.add(info)
        self._placed[info.key] = name
        self._priorities[info.priority] += 1
        self.storage.use(info.pod, 1)
        self._touch(name)

    def count(self, info: PodInfo, name: str) -> None:
        """A pod is on a node that no pod will be checked against: others count it, and it is not kept.

        Of a hundred thousand pods most are so, and what is kept of each is what a check of a plan takes in memory.
        """
        self.nodes[name].count(info)
        self.storage.use(info.pod, 1)
        self._touch(name)

    def refresh(self, key: str, pod: Pod) -> None:
        """A placed pod changed in nothing that counts: keep its newest state."""
        node = self.nodes.get(self._placed.get(key, ""))
        existing = node.pods.get(key) if node is not None else None
        if node is None or existing is None:
            return
        node.pods[key] = fresh = msgspec.structs.replace(existing, pod=pod)
        if key in node.vocal:
            node.vocal[key] = fresh

    def remove(self, key: str) -> PodInfo | None:
        """A pod holds its place no more."""
        name = self._placed.pop(key, None)
        if name is None:
            return None
        node = self.nodes.get(name)
        info = node.remove(key) if node is not None else self._homeless.get(name, {}).pop(key, None)
        if info is not None:
            self._priorities[info.priority] -= 1
            self.storage.use(info.pod, -1)
        self._touch(name)
        return info

    def _touch(self, name: str) -> None:
        self.generation += 1
        self.touched[name] = None

    @property
    def lowest(self) -> float:
        """The lowest priority of the pods that are placed."""
        return min((priority for priority, count in self._priorities.items() if count), default=math.inf)
