"""Writes that the server itself makes, under its own name."""

from __future__ import annotations

from dovetail.lab.apiserver import managedfields
from dovetail.lab.apiserver.registry import Object, RequestContext

MANAGER = "kube-apiserver"


def write_status(group: str, plural: str, obj: Object, status: Object, ctx: RequestContext) -> Object:
    """Store an object with a new status, as if written through its status subresource."""
    fresh = {**obj, "metadata": dict(obj["metadata"]), "status": status}
    resource = ctx.registry.stored(group, plural)
    if resource is None:
        raise LookupError(f"no resource {plural}.{group}")
    managedfields.track_update(resource, obj, fresh, MANAGER, "status", ctx.now)
    return ctx.cluster.update(group, plural, fresh)
