"""What goes into a request: bodies, patch media types, query parameters and delete options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from dovetail.kube.resources import Resource

Body = Mapping[str, Any] | msgspec.Struct | Sequence[Any] | bytes
Query = tuple[tuple[str, str], ...]
PatchKind = Literal["merge", "json", "strategic", "apply"]

PATCH_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


def query_of(**parameters: str | int | None) -> Query:
    return tuple((name, str(value)) for name, value in parameters.items() if value is not None)


def named(resource: Resource, body: Body) -> Body:
    """The body with its apiVersion and kind, which the resource knows."""
    if isinstance(body, Mapping) and "kind" not in body:
        return {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    return body


def namespace_of(body: Body) -> str | None:
    if isinstance(body, Mapping):
        namespace = (body.get("metadata") or {}).get("namespace")
    elif isinstance(body, msgspec.Struct):
        namespace = getattr(getattr(body, "metadata", None), "namespace", None)
    else:
        namespace = None
    return namespace or None


def delete_options(
    uid: str | None, resource_version: str | None, grace: int | None, propagation: str | None
) -> dict[str, Any] | None:
    preconditions = {
        name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
    }
    options: dict[str, Any] = {}
    if preconditions:
        options["preconditions"] = preconditions
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if propagation is not None:
        options["propagationPolicy"] = propagation
    return {"apiVersion": "v1", "kind": "DeleteOptions", **options} if options else None
