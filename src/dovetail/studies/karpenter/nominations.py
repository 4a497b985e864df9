"""Nominated nodes: for a while after a pod was planned onto a node, Karpenter does not disrupt that node."""

from __future__ import annotations

from collections.abc import Iterable

#: Twice the longest batch.
NOMINATION_S = 20.0


class NodeNominations:
    """Nodes and when their nomination ends, on the loop's clock."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def nominate(self, nodes: Iterable[str], now: float) -> None:
        self._until.update(dict.fromkeys(nodes, now + NOMINATION_S))

    def holds(self, node: str, now: float) -> bool:
        return self._until.get(node, now) > now
