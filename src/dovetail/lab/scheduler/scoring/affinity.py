"""How much company a node offers: preferred affinity both ways, and the required affinity of those there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dovetail.model.fit import Cluster, NodeInfo, PodInfo
from dovetail.model.fit.terms import AffinityIndex, AffinityTerm

_MAX = 100
_HARD_WEIGHT = 1

_Places = dict[str, dict[str, int]]


def affinity_scores(pod: PodInfo, cluster: Cluster, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Nearest to whom it wants, and to who wants it; None if nobody wants anything."""
    places: _Places = {}
    asks = bool(pod.shape.preferred_affinity or pod.shape.preferred_anti_affinity)
    for info in cluster.nodes.values():
        if not info.labels:
            continue
        if asks:
            _own(pod, cluster, info, places)
        for other in info.vocal.values():
            _others(pod, cluster, other, info, places)
    if not places:
        return None
    raw = [
        sum(values.get(info.labels[key], 0) for key, values in places.items() if key in info.labels) for info in nodes
    ]
    low, high = min(raw), max(raw)
    if high == low:
        return [0] * len(nodes)
    return [int(_MAX * ((score - low) / (high - low))) for score in raw]


def _own(pod: PodInfo, cluster: Cluster, info: NodeInfo, places: _Places) -> None:
    index = AffinityIndex(cluster.namespaces)
    for terms, sign in ((pod.shape.preferred_affinity, 1), (pod.shape.preferred_anti_affinity, -1)):
        for each in terms:
            count = sum(
                number for kind, number in info.kinds.items() if index.selects(each.term, kind.namespace, kind.labels)
            )
            if count:
                _add(places, each.term, info.labels, sign * each.weight * count)


def _others(pod: PodInfo, cluster: Cluster, other: PodInfo, info: NodeInfo, places: _Places) -> None:
    shape = pod.shape
    about = cluster.namespaces.get(shape.namespace, {})
    for term in other.shape.affinity:
        if term.selects(shape.namespace, shape.labels, about):
            _add(places, term, info.labels, _HARD_WEIGHT)
    for terms, sign in ((other.shape.preferred_affinity, 1), (other.shape.preferred_anti_affinity, -1)):
        for each in terms:
            if each.term.selects(shape.namespace, shape.labels, about):
                _add(places, each.term, info.labels, sign * each.weight)


def _add(places: _Places, term: AffinityTerm, labels: Mapping[str, str], weight: int) -> None:
    value = labels.get(term.topology_key)
    if value is not None:
        values = places.setdefault(term.topology_key, {})
        values[value] = values.get(value, 0) + weight
