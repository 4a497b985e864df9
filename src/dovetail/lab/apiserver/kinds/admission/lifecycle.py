"""NamespaceLifecycle: nothing is created in a namespace that is missing or going; three namespaces cannot go."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission.refusal import forbidden
from dovetail.lab.apiserver.registry import Context, Object, Refusal

PROTECTED = frozenset(("default", "kube-system", "kube-public"))


def admit(obj: Object | None, ctx: Context) -> None:
    if ctx.resource.kind == "Namespace" and ctx.resource.group == "":
        if ctx.operation == "DELETE" and ctx.name in PROTECTED:
            raise Refusal(
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
        raise Refusal(
            404, "NotFound", f'namespaces "{ctx.namespace}" not found', {"name": ctx.namespace, "kind": "namespaces"}
        )
    if namespace.get("status", {}).get("phase") == "Terminating" or "deletionTimestamp" in namespace["metadata"]:
        raise _terminating(obj, ctx)


def _terminating(obj: Object | None, ctx: Context) -> Refusal:
    text = f"unable to create new content in namespace {ctx.namespace} because it is being terminated"
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {ctx.namespace} is being terminated",
        "field": "metadata.namespace",
    }
    return forbidden(obj, ctx, text, cause)
