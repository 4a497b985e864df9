"""Topology: a pod on a node wears the node's zone and region; matchLabelKeys become part of selectors."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Object, RequestContext

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def node_labels(node: str, ctx: RequestContext) -> dict[str, str]:
    stored = ctx.cluster.get("", "nodes", None, node)
    labels = stored["metadata"].get("labels", {}) if stored else {}
    return {key: labels[key] for key in LABELS if key in labels}


def label_pod(pod: Object, ctx: RequestContext) -> None:
    node = pod["spec"].get("nodeName")
    if node:
        labels = node_labels(node, ctx)
        if labels:
            pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | labels


def merge_label_keys(pod: Object) -> None:
    """Write the pod's own label values into the selectors that ask for them by key."""
    labels = pod["metadata"].get("labels", {})
    affinity = pod["spec"].get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        own = affinity.get(kind) or {}
        for weighted in own.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            _merge(weighted.get("podAffinityTerm", {}), labels)
        for term in own.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            _merge(term, labels)
    for constraint in pod["spec"].get("topologySpreadConstraints") or ():
        _merge(constraint, labels)


def _merge(term: dict[str, Any], labels: dict[str, str]) -> None:
    selector = term.get("labelSelector")
    if selector is None:
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field, ()):
            if key in labels:
                expressions = selector.setdefault("matchExpressions", [])
                expressions.append({"key": key, "operator": operator, "values": [labels[key]]})
