"""Pending pods by the zone that they are confined to: a zone that is short shows here before its pods wait long.

The zones are those of the node selector and the required node affinity; volumes and spreads do not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dovetail.cluster.state import ClusterState
from dovetail.controllers.metrics.exposition import gauge, labelled
from dovetail.model import wellknown
from dovetail.model.pods import NodeSelectorTerm, Pod

FLEXIBLE, NONE = "flexible", "none"


def effective_zones(cluster_state: ClusterState) -> Iterator[str]:
    count = Counter(effective_zone(pod) for pod in cluster_state.unbound())
    rows = [
        (labelled({"controller": "provisioner", "zone": zone}), float(pods)) for zone, pods in sorted(count.items())
    ]
    name = "karpenter_scheduler_pending_pods_by_effective_zone_count"
    yield from gauge(name, "Pending pods by the zone they are confined to.", rows)


def effective_zone(pod: Pod) -> str:
    """The one zone a pod can be in, `flexible` if there are several, `none` if its requirements contradict."""
    selected = pod.spec.node_selector.get(wellknown.ZONE)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    confined: set[str] | None = None if selected is None else {selected}
    if terms:
        allowed = [_zones(term, confined) for term in terms]
        if any(zones is None for zones in allowed):
            return FLEXIBLE
        confined = {zone for zones in allowed if zones is not None for zone in zones}
    if confined is None:
        return FLEXIBLE
    if len(confined) == 1:
        return next(iter(confined))
    return FLEXIBLE if confined else NONE


def _zones(term: NodeSelectorTerm, confined: set[str] | None) -> set[str] | None:
    """The zones a term leaves of those a pod is confined to; None for any zone."""
    left = confined
    for requirement in term.match_expressions:
        if requirement.key != wellknown.ZONE:
            continue
        values = set(requirement.values)
        if requirement.operator == "In":
            left = values if left is None else left & values
        elif requirement.operator == "NotIn" and left is not None:
            left = left - values
        elif requirement.operator == "DoesNotExist":
            left = set()
    return left
