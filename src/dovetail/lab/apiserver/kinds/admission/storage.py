"""Storage admission: a default class for claims, protection from early deletion, and which claims may be resized."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.lab.apiserver.kinds.admission.lifecycle import forbidden
from dovetail.lab.apiserver.registry import Object, RequestContext
from dovetail.model.validation.resources import amount

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_LEGACY = "volume.beta.kubernetes.io/storage-class"


def default_class(claim: Object, ctx: RequestContext) -> None:
    if "storageClassName" in claim["spec"] or _LEGACY in (claim["metadata"].get("annotations") or {}):
        return
    name = newest_default(ctx, "storage.k8s.io", "storageclasses", _DEFAULT)
    if name:
        claim["spec"]["storageClassName"] = name


def protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def review_resize(claim: Object, old: Object, ctx: RequestContext) -> None:
    new = claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
    before = old["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
    if not amount(new) > amount(before) or (old.get("status") or {}).get("phase") != "Bound":
        return
    name = claim["spec"].get("storageClassName", "")
    storage_class = ctx.cluster.get("storage.k8s.io", "storageclasses", None, name) if name else None
    if storage_class is None or not storage_class.get("allowVolumeExpansion"):
        text = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
            "must support resize"
        )
        raise forbidden(claim, ctx, text)


# Default classes, of storage and of ingress: marked by an annotation, used by objects that name none.


def newest_default(ctx: RequestContext, group: str, plural: str, annotations: Sequence[str]) -> str:
    """The newest of the default classes, by name where they are equally new; "" without one."""
    marked = [
        storage_class["metadata"]
        for storage_class in ctx.cluster.list(group, plural)
        if any((storage_class["metadata"].get("annotations") or {}).get(key) == "true" for key in annotations)
    ]
    newest = max((meta.get("creationTimestamp") or "" for meta in marked), default="")
    return min((meta["name"] for meta in marked if (meta.get("creationTimestamp") or "") == newest), default="")
