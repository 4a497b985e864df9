"""Topology spread: no domain may be further ahead of the emptiest one than the skew allows."""

from __future__ import annotations

from dovetail.model.fit.cluster import Cluster
from dovetail.model.fit.local import tolerates_node
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo, Shape, node_matches
from dovetail.model.fit.rejection import SPREAD, SPREAD_LABEL, Rejection
from dovetail.model.fit.terms import Spread


def counts_on(constraint: Spread, shape: Shape, info: NodeInfo) -> int:
    """The pods of a node that a constraint counts: same namespace, selected, not going."""
    if constraint.counts_nothing:
        return 0
    return sum(
        count
        for kind, count in info.kinds.items()
        if not kind.terminating and kind.namespace == shape.namespace and constraint.selects(kind.labels)
    )


def includes(constraint: Spread, shape: Shape, info: NodeInfo) -> bool:
    """Whether a node takes part in a constraint, by its policies on affinity and taints."""
    if constraint.honor_affinity and not node_matches(shape, info.node):
        return False
    return not constraint.honor_taints or tolerates_node(shape, info.node)


class SpreadState:
    """How many selected pods each domain has, for every hard constraint of a pod."""

    def __init__(self, pod: PodInfo, cluster: Cluster) -> None:
        self.shape = pod.shape
        self.constraints = pod.shape.spread
        self.counts: list[dict[str, int]] = [{} for _ in self.constraints]
        if not self.constraints:
            return
        for info in cluster.nodes.values():
            if not self._has_keys(info):
                continue
            for constraint, counts in zip(self.constraints, self.counts, strict=True):
                if includes(constraint, self.shape, info):
                    value = info.labels[constraint.topology_key]
                    counts[value] = counts.get(value, 0) + counts_on(constraint, self.shape, info)

    def _has_keys(self, info: NodeInfo) -> bool:
        return all(each.topology_key in info.labels for each in self.constraints)

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

    def move(self, pod: PodInfo, info: NodeInfo, change: int) -> None:
        """Count a pod that comes to a node, or goes from it."""
        if pod.kind.terminating or pod.shape.namespace != self.shape.namespace or not self._has_keys(info):
            return
        for constraint, counts in zip(self.constraints, self.counts, strict=True):
            if not constraint.selects(pod.shape.labels) or not includes(constraint, self.shape, info):
                continue
            value = info.labels[constraint.topology_key]
            counts[value] = counts.get(value, 0) + change

    def copy(self) -> SpreadState:
        twin = SpreadState.__new__(SpreadState)
        twin.shape, twin.constraints = self.shape, self.constraints
        twin.counts = [dict(counts) for counts in self.counts]
        return twin


#: What the emptiest domain counts as when no node takes part at all.
_NONE_SEEN = (1 << 31) - 1
