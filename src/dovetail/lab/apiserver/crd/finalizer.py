"""A definition's status, and its end: instances first, then the definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.lab.apiserver.kinds.serverwrites import write_status
from dovetail.lab.apiserver.registry import Object, RequestContext

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def stamp(ctx: RequestContext) -> str:
    return ctx.now.strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: str, reason: str, message: str, ctx: RequestContext) -> Object:
    return {"type": kind, "status": status, "lastTransitionTime": stamp(ctx), "reason": reason, "message": message}


def with_condition(status: Mapping[str, Any], fresh: Object) -> Object:
    entries = [dict(entry) for entry in status.get("conditions") or ()]
    for index, entry in enumerate(entries):
        if entry["type"] == fresh["type"]:
            if entry["status"] == fresh["status"]:
                fresh["lastTransitionTime"] = entry["lastTransitionTime"]
            entries[index] = fresh
            break
    else:
        entries.append(fresh)
    return {**status, "conditions": entries}


def update(obj: Object, status: Object, ctx: RequestContext) -> Object:
    return write_status(GROUP, PLURAL, obj, status, ctx)


def finish(name: str, ctx: RequestContext) -> None:
    """Delete the instances; with the last one the definition goes."""
    obj = ctx.cluster.get(GROUP, PLURAL, None, name)
    if obj is None or FINALIZER not in (obj["metadata"].get("finalizers") or ()):
        return
    group, plural = obj["spec"]["group"], obj["spec"]["names"]["plural"]
    for instance in list(ctx.cluster.list(group, plural)):
        if "deletionTimestamp" not in instance["metadata"]:
            meta = instance["metadata"]
            ctx.cluster.delete(group, plural, meta.get("namespace"), meta["name"], {})
    if any(True for _ in ctx.cluster.list(group, plural)):
        text = "CustomResource deletion is in progress"
        progress = condition("Terminating", "True", "InstanceDeletionInProgress", text, ctx)
        update(obj, with_condition(obj["status"], progress), ctx)
        return
    left = [entry for entry in obj["metadata"]["finalizers"] if entry != FINALIZER]
    meta = {key: value for key, value in obj["metadata"].items() if key != "finalizers"}
    if left:
        meta["finalizers"] = left
    ctx.registry.replace_custom(group, plural, ())
    ctx.cluster.update(GROUP, PLURAL, {**obj, "metadata": meta})
    if not left:
        ctx.cluster.delete(GROUP, PLURAL, None, name, {})
