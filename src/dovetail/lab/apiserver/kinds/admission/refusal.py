"""The one shape of "no" that admission plugins have."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Context, Object, Refusal


def forbidden(obj: Object | None, ctx: Context, text: str, cause: Object | None = None) -> Refusal:
    """403: the resource by its plural, the object's name, the plugin's reason."""
    resource = ctx.resource
    meta = (obj or {}).get("metadata", {})
    name = ctx.name or meta.get("name") or meta.get("generateName") or "Unknown"
    details: dict[str, Any] = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    if cause is not None:
        details["causes"] = [cause]
    return Refusal(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {text}', details)
