"""A node with what runs on it."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.fit.podinfo import PodInfo, SelectorFacts
from dovetail.model.host_ports import HostPort
from dovetail.model.nodes import Node
from dovetail.model.quantity import resources


class NodeInfo:
    """Mutable by its cluster only; `generation` grows with every change, so that caches can tell."""

    __slots__ = (
        "allocatable",
        "generation",
        "images",
        "kinds",
        "name",
        "node",
        "pods",
        "ports",
        "requested",
        "scored_cpu",
        "scored_memory",
        "static_generation",
        "vocal",
    )

    def __init__(self, node: Node) -> None:
        self.generation = 0
        self.static_generation = 0
        self.pods: dict[str, PodInfo] = {}
        self.requested: dict[str, int] = {}
        self.scored_cpu = 0
        self.scored_memory = 0
        self.ports: set[HostPort] = set()
        self.kinds: dict[SelectorFacts, int] = {}
        self.vocal: dict[str, PodInfo] = {}
        self.set_node(node)

    def set_node(self, node: Node) -> None:
        """Take over a new version of the node."""
        self.node = node
        self.name = node.metadata.name
        self.allocatable: Mapping[str, int] = resources(node.status.allocatable)
        self.images: dict[str, int] = {
            name: image.size_bytes for image in reversed(node.status.images) for name in image.names
        }  # of an image listed twice, the first
        self.generation += 1
        self.static_generation += 1

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    def add(self, info: PodInfo) -> None:
        """A pod was placed here."""
        self.pods[info.key] = info
        for name, amount in info.held.items():
            self.requested[name] = self.requested.get(name, 0) + amount
        self.scored_cpu += info.scored.get("cpu", 0)
        self.scored_memory += info.scored.get("memory", 0)
        self.ports.update(info.shape.ports)
        self.count(info)

    def count(self, info: PodInfo) -> None:
        """Count a pod for the affinities and spreads of others, but not its resources."""
        self.kinds[info.kind] = self.kinds.get(info.kind, 0) + 1
        if info.shape.has_affinity:
            self.vocal[info.key] = info
        self.generation += 1

    def remove(self, key: str) -> PodInfo | None:
        """A pod left; the pod as it was counted, or None."""
        info = self.pods.pop(key, None)
        if info is None:
            return None
        for name, amount in info.held.items():
            self.requested[name] -= amount
        self.scored_cpu -= info.scored.get("cpu", 0)
        self.scored_memory -= info.scored.get("memory", 0)
        self.ports.difference_update(info.shape.ports)
        left = self.kinds[info.kind] - 1
        if left:
            self.kinds[info.kind] = left
        else:
            del self.kinds[info.kind]
        self.vocal.pop(key, None)
        self.generation += 1
        return info

    def copy(self) -> NodeInfo:
        """The same node with the same pods, to try things on."""
        twin = NodeInfo.__new__(NodeInfo)
        twin.node, twin.name, twin.allocatable, twin.images = self.node, self.name, self.allocatable, self.images
        twin.generation, twin.static_generation = self.generation, self.static_generation
        twin.pods, twin.requested = dict(self.pods), dict(self.requested)
        twin.scored_cpu, twin.scored_memory = self.scored_cpu, self.scored_memory
        twin.ports, twin.kinds, twin.vocal = set(self.ports), dict(self.kinds), dict(self.vocal)
        return twin
