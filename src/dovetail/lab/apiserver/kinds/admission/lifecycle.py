"""NamespaceLifecycle: nothing is created in a namespace that is missing or going; three namespaces cannot go."""

from __future__ import annotations

from typing import Any

from dovetail.lab.apiserver.registry import Object, RequestContext, RequestRefused

PROTECTED = frozenset(("default", "kube-system", "kube-public"))


def admit(obj: Object | None, ctx: RequestContext) -> None:
    if ctx.resource.kind == "Namespace" and ctx.resource.group == "":
        if ctx.operation == "DELETE" and ctx.name in PROTECTED:
            raise RequestRefused(
                403,
                "Forbidden",
                f'namespaces "{ctx.name}" is forbidden: this namespace may not be deleted',
                {"name": ctx.name, "kind": "namespaces"},
            )
        return
    if ctx.operation != "CREATE" or not ctx.namespace:
        return
    if ctx.resource.group == "authorization.k8s.io":
        return
    namespace = ctx.cluster.get("", "namespaces", None, ctx.namespace)
    if namespace is None:
        raise RequestRefused(
            404, "NotFound", f'namespaces "{ctx.namespace}" not found', {"name": ctx.namespace, "kind": "namespaces"}
        )
    if namespace.get("status", {}).get("phase") == "Terminating" or "deletionTimestamp" in namespace["metadata"]:
        raise _terminating(obj, ctx)


def _terminating(obj: Object | None, ctx: RequestContext) -> RequestRefused:
    text = f"unable to create new content in namespace {ctx.namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {ctx.namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return forbidden(obj, ctx, text, cause)


# The one shape of "no" that admission plugins have.


def forbidden(obj: Object | None, ctx: RequestContext, text: str, cause: Object | None = None) -> RequestRefused:
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
    return RequestRefused(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {text}', details)
