"""Resizing in place: the node must be there, run Linux, and be big enough at all."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.kinds.admission.quota_usage import pod_charges
from dovetail.lab.apiserver.registry import Object, RequestContext, RequestRefused
from dovetail.model.validation.field_errors import quoted
from dovetail.model.validation.resources import amount


def review(pod: Object, old: Object, ctx: RequestContext) -> None:
    name = pod["spec"].get("nodeName")
    if not name or pod["spec"] == old["spec"]:
        return
    node = ctx.cluster.get("", "nodes", None, name)
    if node is None:
        raise forbidden(pod, ctx, f"node {quoted(name)} not found")
    system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        text = f"pod resize is only supported on linux nodes, node {quoted(name)} is {quoted(system)}"
        raise _with_cause(forbidden(pod, ctx, text), "UnsupportedPlatform")
    problems = _too_big(pod, node.get("status", {}).get("allocatable") or {})
    if problems:
        text = f"node didn't have enough allocatable resources: {'; '.join(problems)}"
        raise _with_cause(forbidden(pod, ctx, text), "NodeCapacity")


def _too_big(pod: Object, allocatable: dict[str, str]) -> list[str]:
    """Resources of which the pod would take more than the node has, sidecars and init containers included."""
    charged = pod_charges(pod["spec"])
    problems = []
    for name, unit in (("cpu", "milli"), ("memory", "whole")):
        taken, held = charged.get(f"requests.{name}", amount("0")), amount(allocatable.get(name, "0"))
        if taken > held:
            problems.append(f"{name}, requested: {getattr(taken, unit)}, allocatable: {getattr(held, unit)}")
    return problems


def _with_cause(refusal: RequestRefused, reason: str) -> RequestRefused:
    details = {**(refusal.details or {}), "causes": [{"reason": reason}]}
    return RequestRefused(refusal.code, refusal.reason, refusal.message, details)
