"""Cluster-wide limits: how much CPU, memory and how many GPUs all nodes together may have, and must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dovetail.autoscalers.node_groups.annotations import GPU_LABEL, NVIDIA_GPU
from dovetail.model.nodes import Node
from dovetail.model.quantity import parse

CPU, MEMORY = "cpu", "memory"
QUOTA_ID = "cluster-wide"
GIB = 1 << 30


class Range(msgspec.Struct, frozen=True):
    """Both ends belong to it."""

    least: int
    most: int


class QuotaCheck(msgspec.Struct, frozen=True):
    """How many of the nodes are allowed, and the resources that would be exceeded by all of them."""

    allowed: int
    exceeded: tuple[str, ...] = ()

    def message(self) -> str:
        return f'exceeded quota: "{QUOTA_ID}", resources: {", ".join(self.exceeded)}'


def node_amounts(node: Node) -> dict[str, int]:
    """What a node counts for: whole cores, bytes, and GPUs by their type."""
    capacity = node.status.capacity
    amounts = {
        CPU: parse(capacity[CPU]).whole if CPU in capacity else 0,
        MEMORY: parse(capacity[MEMORY]).whole if MEMORY in capacity else 0,
    }
    gpus = parse(capacity[NVIDIA_GPU]).whole if NVIDIA_GPU in capacity else 0
    if gpus:
        kind = node.metadata.labels.get(GPU_LABEL, "generic")
        amounts[kind] = amounts.get(kind, 0) + gpus
    return amounts


def totals(nodes: Iterable[tuple[Node, int]]) -> dict[str, int]:
    """What so many nodes of each kind have together."""
    summed: dict[str, int] = {}
    for node, count in nodes:
        for name, amount in node_amounts(node).items():
            summed[name] = summed.get(name, 0) + amount * count
    return summed


class Quotas:
    """What is left up to the maxima and above the minima. Counts down as nodes are planned."""

    def __init__(self, limits: Mapping[str, Range], used: Mapping[str, int]) -> None:
        self.room = {name: max(0, limit.most - used.get(name, 0)) for name, limit in limits.items()}
        self.spare = {name: max(0, used.get(name, 0) - limit.least) for name, limit in limits.items()}

    def check(self, node: Node, count: int) -> QuotaCheck:
        """How many of `count` such nodes may be added."""
        allowed = count
        exceeded: list[str] = []
        for name, amount in node_amounts(node).items():
            left = self.room.get(name)
            if amount <= 0 or left is None or left >= amount * count:
                continue
            allowed = min(allowed, left // amount)
            exceeded.append(name)
        return QuotaCheck(allowed, tuple(exceeded))

    def consume(self, node: Node, count: int) -> None:
        """Count nodes that will be added."""
        for name, amount in node_amounts(node).items():
            if name in self.room:
                self.room[name] = max(0, self.room[name] - amount * count)

    def release(self, node: Node) -> tuple[str, ...]:
        """Count a node that will be removed; or the resources of which too little would be left, and count nothing."""
        amounts = node_amounts(node)
        short = tuple(name for name, amount in amounts.items() if name in self.spare and self.spare[name] < amount)
        if not short:
            for name, amount in amounts.items():
                if name in self.spare:
                    self.spare[name] -= amount
        return short
