"""One pod against the cluster: every filter of kube-scheduler's default profile, in its order."""

from __future__ import annotations

from dovetail.model.fit.affinity import AffinityState
from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.local import check_ports, check_resources, check_static
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo
from dovetail.model.fit.rejection import NODE_AFFINITY_CONFLICT, Rejection
from dovetail.model.fit.spread import SpreadState
from dovetail.model.fit.volumes import VolumeState
from dovetail.model.pods import NodeSelectorTerm


class Fit:
    """What one pod asks of every node. `rejection` is set when no node could do, whatever it is.

    What it asks about other pods is counted, unless the caller passes the counts.
    """

    def __init__(
        self,
        pod: PodInfo,
        cluster: ClusterNodes,
        spread: SpreadState | None = None,
        affinity: AffinityState | None = None,
    ) -> None:
        self.pod = pod
        self.node_name = pod.pod.spec.node_name
        self.only, conflict = _named_nodes(pod.shape.node_terms)
        self.volumes = VolumeState(pod, cluster) if pod.shape.volumes else None
        self.spread = spread or SpreadState(pod, cluster) if pod.shape.spread else None
        counted = affinity or AffinityState(pod, cluster)
        self.affinity = None if counted.idle else counted
        self.rejection = conflict or (self.volumes.rejection if self.volumes else None)

    @property
    def plain(self) -> bool:
        """Whether all that counts is the node itself and what runs on it."""
        return self.volumes is None and self.spread is None and self.affinity is None and not self.node_name

    def check(self, info: NodeInfo) -> Rejection | None:
        """None if the pod fits the node as it is, else the first rejection."""
        shape = self.pod.shape
        reason = (
            check_static(shape, info.node, self.node_name)
            or (check_ports(shape, info) if shape.ports else None)
            or check_resources(shape, info)
        )
        if reason is None and self.volumes is not None:
            reason = self.volumes.check(info)
        if reason is None and self.spread is not None:
            reason = self.spread.check(info)
        if reason is None and self.affinity is not None:
            reason = self.affinity.check(info)
        return reason

    def move(self, pod: PodInfo, info: NodeInfo, change: int) -> None:
        """Count a pod that comes to a node (+1) or goes from it (-1); the caller changes the node itself."""
        if self.spread is not None:
            self.spread.move(pod, info, change)
        if self.affinity is not None:
            self.affinity.move(pod, info, change)
        if self.volumes is not None:
            self.volumes.move(pod, change)

    def copy(self) -> Fit:
        """The same question, to try moves on."""
        twin = Fit.__new__(Fit)
        twin.pod, twin.node_name, twin.only, twin.rejection = self.pod, self.node_name, self.only, self.rejection
        twin.volumes = self.volumes.copy() if self.volumes else None
        twin.spread = self.spread.copy() if self.spread else None
        twin.affinity = self.affinity.copy() if self.affinity else None
        return twin


def _named_nodes(terms: tuple[NodeSelectorTerm, ...] | None) -> tuple[frozenset[str] | None, Rejection | None]:
    """The nodes that the terms name outright, if every term does; a DaemonSet's pod looks at one node only."""
    if not terms:
        return None, None
    names: set[str] = set()
    for term in terms:
        named: set[str] | None = None
        for match_field in term.match_fields:
            if match_field.key == "metadata.name" and match_field.operator == "In":
                named = set(match_field.values) if named is None else named & set(match_field.values)
        if named is None:
            return None, None
        names |= named
    return (frozenset(names), None) if names else (None, NODE_AFFINITY_CONFLICT)
