"""Default classes, of storage and of ingress: marked by an annotation, taken by whoever names none."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.lab.apiserver.registry import Context


def newest_default(ctx: Context, group: str, plural: str, annotations: Sequence[str]) -> str:
    """The newest of the default classes, by name where they are equally new; "" without one."""
    marked = [
        found["metadata"]
        for found in ctx.cluster.list(group, plural)
        if any((found["metadata"].get("annotations") or {}).get(key) == "true" for key in annotations)
    ]
    newest = max((meta.get("creationTimestamp") or "" for meta in marked), default="")
    return min((meta["name"] for meta in marked if (meta.get("creationTimestamp") or "") == newest), default="")
