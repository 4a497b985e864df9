"""Inter-pod affinity score of nodes: preferred affinity both ways, and the required affinity of running pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.model.fit import ClusterNodes, NodeInfo, PodInfo
from dovetail.model.fit.terms import AffinityIndex, AffinityTerm

_MAX = 100
_HARD_WEIGHT = 1

_TopologyScores = dict[str, dict[str, int]]


def affinity_scores(pod: PodInfo, cluster: ClusterNodes, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Highest where preferred affinity, the pod's own and that of running pods, is met; None if there is none."""
    topology_scores: _TopologyScores = {}
    has_preferences = bool(pod.shape.preferred_affinity or pod.shape.preferred_anti_affinity)
    for info in cluster.nodes.values():
        if not info.labels:
            continue
        if has_preferences:
            _own(pod, cluster, info, topology_scores)
        for other in info.vocal.values():
            _others(pod, cluster, other, info, topology_scores)
    if not topology_scores:
        return None
    raw = [
        sum(values.get(info.labels[key], 0) for key, values in topology_scores.items() if key in info.labels)
        for info in nodes
    ]
    low, high = min(raw), max(raw)
    if high == low:
        return [0] * len(nodes)
    return [int(_MAX * ((score - low) / (high - low))) for score in raw]


def _own(pod: PodInfo, cluster: ClusterNodes, info: NodeInfo, topology_scores: _TopologyScores) -> None:
    index = AffinityIndex(cluster.namespaces)
    for terms, sign in ((pod.shape.preferred_affinity, 1), (pod.shape.preferred_anti_affinity, -1)):
        for weighted in terms:
            count = sum(
                number
                for kind, number in info.kinds.items()
                if index.selects(weighted.term, kind.namespace, kind.labels)
            )
            if count:
                _add(topology_scores, weighted.term, info.labels, sign * weighted.weight * count)


def _others(
    pod: PodInfo, cluster: ClusterNodes, other: PodInfo, info: NodeInfo, topology_scores: _TopologyScores
) -> None:
    shape = pod.shape
    about = cluster.namespaces.get(shape.namespace, {})
    for term in other.shape.affinity:
        if term.selects(shape.namespace, shape.labels, about):
            _add(topology_scores, term, info.labels, _HARD_WEIGHT)
    for terms, sign in ((other.shape.preferred_affinity, 1), (other.shape.preferred_anti_affinity, -1)):
        for weighted in terms:
            if weighted.term.selects(shape.namespace, shape.labels, about):
                _add(topology_scores, weighted.term, info.labels, sign * weighted.weight)


def _add(topology_scores: _TopologyScores, term: AffinityTerm, labels: Mapping[str, str], weight: int) -> None:
    value = labels.get(term.topology_key)
    if value is not None:
        values = topology_scores.setdefault(term.topology_key, {})
        values[value] = values.get(value, 0) + weight
