"""The scale subresource: a workload as a number of replicas."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Object, ResourceType
from dovetail.model.validation.selectors import canonical

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def view(obj: Object, resource: ResourceType) -> Object:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    selector = spec.get("selector")
    text = (
        ",".join(f"{key}={value}" for key, value in sorted((selector or {}).items()))
        if resource.kind == "ReplicationController"
        else canonical(selector)
    )
    shown: Object = {"replicas": status.get("replicas", 0)}
    if text:
        shown["selector"] = text
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: obj["metadata"][key] for key in _META if key in obj["metadata"]},
        "spec": _replicas(spec.get("replicas", 0)),
        "status": shown,
    }


def _replicas(number: int) -> dict[str, Any]:
    return {"replicas": number} if number else {}


def merge(obj: Object, body: Object, resource: ResourceType) -> Object:
    """The workload with the replicas of a Scale."""
    spec = {**obj["spec"], "replicas": (body.get("spec") or {}).get("replicas", 0)}
    return {**obj, "spec": spec}
