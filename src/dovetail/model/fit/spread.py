"""Topology spread: no domain may be further ahead of the emptiest one than the skew allows."""

from __future__ import annotations

from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.local import tolerates_node
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo, SelectorFacts, Shape, node_matches
from dovetail.model.fit.rejection import SPREAD, SPREAD_LABEL, Rejection
from dovetail.model.fit.terms import Spread


def counts_on(
    constraint: Spread, shape: Shape, info: NodeInfo, known_kinds: dict[SelectorFacts, bool] | None = None
) -> int:
    """The pods of a node that a constraint counts: same namespace, selected, not going. `known_kinds` caches them."""
    if constraint.counts_nothing:
        return 0
    known_kinds = {} if known_kinds is None else known_kinds
    total = 0
    for kind, count in info.kinds.items():
        if kind not in known_kinds:
            same = not kind.terminating and kind.namespace == shape.namespace
            known_kinds[kind] = same and constraint.selects(kind.labels)
        total += count if known_kinds[kind] else 0
    return total


def includes(constraint: Spread, shape: Shape, info: NodeInfo) -> bool:
    """Whether a node takes part in a constraint, by its policies on affinity and taints."""
    if constraint.honor_affinity and not node_matches(shape, info.node):
        return False
    return not constraint.honor_taints or tolerates_node(shape, info.node)


class SpreadState:
    """How many selected pods each domain has, for every hard constraint of a pod."""

    def __init__(self, pod: PodInfo, cluster: ClusterNodes) -> None:
        self.shape = pod.shape
        self.constraints = pod.shape.spread
        self.counts: list[dict[str, int]] = [{} for _ in self.constraints]
        if not self.constraints:
            return
        known_kinds: list[dict[SelectorFacts, bool]] = [{} for _ in self.constraints]
        for info in cluster.nodes.values():
            if not self._has_keys(info):
                continue
            for constraint, counts, kinds in zip(self.constraints, self.counts, known_kinds, strict=True):
                if includes(constraint, self.shape, info):
                    value = info.labels[constraint.topology_key]
                    counts[value] = counts.get(value, 0) + counts_on(constraint, self.shape, info, kinds)

    def _has_keys(self, info: NodeInfo) -> bool:
        return all(constraint.topology_key in info.labels for constraint in self.constraints)

    def check(self, info: NodeInfo) -> Rejection | None:
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            value = info.labels.get(constraint.topology_key)
            if value is None:
                return SPREAD_LABEL
            fewest = min(counts.values(), default=_NONE_SEEN)
            if len(counts) < constraint.min_domains:
                fewest = 0
            mine = 1 if constraint.selects(self.shape.labels) else 0
            if counts.get(value, 0) + mine - fewest > constraint.max_skew:
                return SPREAD
        return None

    def is_affected_by(self, pod: PodInfo) -> bool:
        """Whether a pod like this one counts, wherever it is."""
        kind = pod.kind
        if kind.terminating or kind.namespace != self.shape.namespace:
            return False
        return any(constraint.selects(kind.labels) for constraint in self.constraints)

    def move(self, pod: PodInfo, info: NodeInfo, change: int) -> None:
        """Count a pod that comes to a node, or goes from it."""
        if not self.is_affected_by(pod) or not self._has_keys(info):
            return
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            if not constraint.selects(pod.shape.labels) or not includes(constraint, self.shape, info):
                continue
            value = info.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + change

    def asked_by(self, pod: PodInfo) -> SpreadState:
        """The same counts for another pod, of its namespace, that asks the same of the same nodes."""
        twin = SpreadState.__new__(SpreadState)
        twin.shape, twin.constraints, twin.counts = pod.shape, self.constraints, self.counts
        return twin

    def copy(self) -> SpreadState:
        twin = SpreadState.__new__(SpreadState)
        twin.shape, twin.constraints = self.shape, self.constraints
        twin.counts = [dict(counts) for counts in self.counts]
        return twin


#: What the emptiest domain counts as when no node takes part at all.
_NONE_SEEN = (1 << 31) - 1
