"""Pod affinity and anti-affinity, the pod's own and that of pods already placed."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.fit.cluster import ClusterNodes
from dovetail.model.fit.nodeinfo import NodeInfo
from dovetail.model.fit.podinfo import PodInfo, SelectorFacts
from dovetail.model.fit.rejection import AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY, Rejection
from dovetail.model.fit.terms import AffinityIndex

Place = tuple[str, str]


class AffinityState:
    """How many pods that matter are at each place (topology key and value)."""

    def __init__(self, pod: PodInfo, cluster: ClusterNodes) -> None:
        self.pod = pod
        self.index = AffinityIndex(cluster.namespaces)
        self.namespace_labels: Mapping[str, str] = cluster.namespaces.get(pod.shape.namespace, {})
        self.wanted: dict[Place, int] = {}
        self.shunned: dict[Place, int] = {}
        self.forbidden: dict[Place, int] = {}
        asks = bool(pod.shape.affinity or pod.shape.anti_affinity)
        meant: dict[SelectorFacts, bool] = {}
        for info in cluster.nodes.values():
            if info.vocal:
                for other in info.vocal.values():
                    self._count_forbidden(other, info, 1)
            if asks:
                self._count_meant(info, meant)

    def _count_meant(self, info: NodeInfo, meant: dict[SelectorFacts, bool]) -> None:
        for kind, count in info.kinds.items():
            if kind not in meant:
                meant[kind] = self._means(kind)
            if meant[kind]:
                self._count_own(kind, info, count)

    @property
    def idle(self) -> bool:
        """Nothing to check anywhere."""
        return not self.forbidden and not self.pod.shape.affinity and not self.pod.shape.anti_affinity

    def _count_own(self, kind: SelectorFacts, info: NodeInfo, count: int) -> None:
        shape = self.pod.shape
        if shape.affinity and self._all_select(kind):
            for term in shape.affinity:
                _count(self.wanted, term.topology_key, info, count)
        for term in shape.anti_affinity:
            if self.index.selects(term, kind.namespace, kind.labels):
                _count(self.shunned, term.topology_key, info, count)

    def _count_forbidden(self, other: PodInfo, info: NodeInfo, count: int) -> None:
        shape = self.pod.shape
        for term in other.shape.anti_affinity:
            if term.selects(shape.namespace, shape.labels, self.namespace_labels):
                _count(self.forbidden, term.topology_key, info, count)

    def _all_select(self, kind: SelectorFacts) -> bool:
        return all(self.index.selects(term, kind.namespace, kind.labels) for term in self.pod.shape.affinity)

    def check(self, info: NodeInfo) -> Rejection | None:
        labels = info.labels
        shape = self.pod.shape
        if not self._near(labels):
            return AFFINITY
        for term in shape.anti_affinity:
            value = labels.get(term.topology_key)
            if value is not None and self.shunned.get((term.topology_key, value), 0) > 0:
                return ANTI_AFFINITY
        if self.forbidden and any(place in self.forbidden for place in labels.items()):
            return EXISTING_ANTI_AFFINITY
        return None

    def _near(self, labels: Mapping[str, str]) -> bool:
        """Beside a pod it wants, or the first of its kind where no such pod exists yet."""
        terms = self.pod.shape.affinity
        satisfied = True
        for term in terms:
            value = labels.get(term.topology_key)
            if value is None:
                return False
            satisfied = satisfied and self.wanted.get((term.topology_key, value), 0) > 0
        if satisfied:
            return True
        return not self.wanted and self._all_select(self.pod.kind)

    def is_affected_by(self, pod: PodInfo) -> bool:
        """Whether a pod like this one counts, wherever it is."""
        shape = self.pod.shape
        return self._means(pod.kind) or any(
            term.selects(shape.namespace, shape.labels, self.namespace_labels) for term in pod.shape.anti_affinity
        )

    def _means(self, kind: SelectorFacts) -> bool:
        """Whether the pod's own terms speak of such pods."""
        shape = self.pod.shape
        return bool(shape.affinity and self._all_select(kind)) or any(
            self.index.selects(term, kind.namespace, kind.labels) for term in shape.anti_affinity
        )

    def move(self, pod: PodInfo, info: NodeInfo, change: int) -> None:
        """Count a pod that comes to a node, or goes from it."""
        self._count_forbidden(pod, info, change)
        self._count_own(pod.kind, info, change)

    def copy(self) -> AffinityState:
        twin = AffinityState.__new__(AffinityState)
        twin.pod, twin.index, twin.namespace_labels = self.pod, self.index, self.namespace_labels
        twin.wanted, twin.shunned = dict(self.wanted), dict(self.shunned)
        twin.forbidden = dict(self.forbidden)
        return twin


def _count(places: dict[Place, int], key: str, info: NodeInfo, count: int) -> None:
    value = info.labels.get(key)
    if value is None:
        return
    total = places.get((key, value), 0) + count
    if total:
        places[key, value] = total
    else:
        places.pop((key, value), None)
