"""How well a node spreads a pod among its likes: the soft constraints, its own or the cluster's defaults."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.model.fit import ClusterNodes, NodeInfo, PodInfo
from dovetail.model.fit.owners import default_spread
from dovetail.model.fit.spread import counts_on, includes
from dovetail.model.fit.terms import Spread
from dovetail.model.labels import HOSTNAME

_MAX = 100


def soft_constraints(pod: PodInfo, cluster: ClusterNodes) -> tuple[Spread, ...]:
    """The pod's own soft constraints; pods without any constraint have the defaults of their owners."""
    if pod.shape.own_spread:
        return pod.shape.soft_spread
    selector = cluster.owners.selector(pod.pod)
    return default_spread(selector) if selector is not None else ()


def spread_scores(pod: PodInfo, cluster: ClusterNodes, nodes: Sequence[NodeInfo]) -> list[int] | None:
    """Fewest likes in the node's domains."""
    constraints = soft_constraints(pod, cluster)
    if not constraints:
        return None
    strict = pod.shape.own_spread
    keys = [constraint.topology_key for constraint in constraints]
    ignored = [strict and not all(key in info.labels for key in keys) for info in nodes]
    counts = _domains(constraints, nodes, ignored)
    taking_part = sum(1 for is_ignored in ignored if not is_ignored)
    weights = [
        math.log((taking_part if constraint.topology_key == HOSTNAME else len(domains)) + 2)
        for constraint, domains in zip(constraints, counts, strict=True)
    ]
    _count(pod, cluster, constraints, counts, strict)
    raw = [
        0 if skip else _raw(pod, info, constraints, counts, weights) for info, skip in zip(nodes, ignored, strict=True)
    ]
    return _normalised(raw, ignored)


def _domains(constraints: Sequence[Spread], nodes: Sequence[NodeInfo], ignored: Sequence[bool]) -> list[dict[str, int]]:
    counts: list[dict[str, int]] = [{} for _ in constraints]
    for info, skip in zip(nodes, ignored, strict=True):
        if skip:
            continue
        for constraint, domains in zip(constraints, counts, strict=True):
            if constraint.topology_key != HOSTNAME:
                domains[info.labels.get(constraint.topology_key, "")] = 0
    return counts


def _count(
    pod: PodInfo, cluster: ClusterNodes, constraints: Sequence[Spread], counts: list[dict[str, int]], strict: bool
) -> None:
    for info in cluster.nodes.values():
        if strict and not all(constraint.topology_key in info.labels for constraint in constraints):
            continue
        for constraint, domains in zip(constraints, counts, strict=True):
            value = info.labels.get(constraint.topology_key, "")
            if value in domains and includes(constraint, pod.shape, info):
                domains[value] += counts_on(constraint, pod.shape, info)


def _raw(
    pod: PodInfo,
    info: NodeInfo,
    constraints: Sequence[Spread],
    counts: Sequence[dict[str, int]],
    weights: Sequence[float],
) -> int:
    score = 0.0
    for constraint, domains, weight in zip(constraints, counts, weights, strict=True):
        value = info.labels.get(constraint.topology_key)
        if value is None:
            continue
        here = counts_on(constraint, pod.shape, info) if constraint.topology_key == HOSTNAME else domains.get(value, 0)
        score += here * weight + float(constraint.max_skew - 1)
    return math.floor(score + 0.5)


def _normalised(raw: Sequence[int], ignored: Sequence[bool]) -> list[int]:
    counted = [score for score, skip in zip(raw, ignored, strict=True) if not skip]
    low, high = min(counted, default=0), max(counted, default=0)
    return [
        0 if skip else (_MAX * (high + low - score) // high if high else _MAX)
        for score, skip in zip(raw, ignored, strict=True)
    ]
