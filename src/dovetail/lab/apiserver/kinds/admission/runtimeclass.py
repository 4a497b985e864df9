"""RuntimeClass: a pod of a runtime class carries its overhead, and goes where that runtime is."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.registry import Object, RequestContext


def admit_pod(pod: Object, ctx: RequestContext) -> None:
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    chosen = ctx.cluster.get("node.k8s.io", "runtimeclasses", None, name) if name else None
    if name and chosen is None:
        raise forbidden(pod, ctx, f'pod rejected: RuntimeClass "{name}" not found')
    _overhead(pod, chosen, ctx)
    if chosen is not None:
        _scheduling(pod, chosen.get("scheduling") or {}, ctx)


def _overhead(pod: Object, chosen: Object | None, ctx: RequestContext) -> None:
    spec = pod["spec"]
    fixed = ((chosen or {}).get("overhead") or {}).get("podFixed")
    if fixed:
        if spec.get("overhead") and spec["overhead"] != fixed:
            raise forbidden(pod, ctx, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = dict(fixed)
    elif spec.get("overhead"):
        text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(pod, ctx, text)


def _scheduling(pod: Object, rules: Object, ctx: RequestContext) -> None:
    spec = pod["spec"]
    if rules.get("nodeSelector"):
        node_selector = spec.get("nodeSelector") or {}
        for key, value in rules["nodeSelector"].items():
            if node_selector.get(key, value) != value:
                ours = f"runtimeClass.scheduling.nodeSelector[{key}] = {value}"
                raise forbidden(pod, ctx, f"conflict: {ours}; pod.spec.nodeSelector[{key}] = {node_selector[key]}")
        spec["nodeSelector"] = {**node_selector, **rules["nodeSelector"]}
    if rules.get("tolerations"):
        present = spec.get("tolerations") or []
        spec["tolerations"] = [
            *present,
            *(toleration for toleration in rules["tolerations"] if toleration not in present),
        ]
