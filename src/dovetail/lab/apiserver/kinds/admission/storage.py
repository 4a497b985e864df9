"""Storage admission: a default class for claims, protection from early deletion, and who may grow."""

from __future__ import annotations

from dovetail.lab.apiserver.kinds.admission.defaultclass import newest_default
from dovetail.lab.apiserver.kinds.admission.refusal import forbidden
from dovetail.lab.apiserver.kinds.pod.resources import amount
from dovetail.lab.apiserver.registry import Context, Object

_DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_LEGACY = "volume.beta.kubernetes.io/storage-class"


def default_class(claim: Object, ctx: Context) -> None:
    if "storageClassName" in claim["spec"] or _LEGACY in (claim["metadata"].get("annotations") or {}):
        return
    name = newest_default(ctx, "storage.k8s.io", "storageclasses", _DEFAULT)
    if name:
        claim["spec"]["storageClassName"] = name


def protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def review_resize(claim: Object, old: Object, ctx: Context) -> None:
    new = claim["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
    before = old["spec"].get("resources", {}).get("requests", {}).get("storage", "0")
    if not amount(new) > amount(before) or (old.get("status") or {}).get("phase") != "Bound":
        return
    name = claim["spec"].get("storageClassName", "")
    found = ctx.cluster.get("storage.k8s.io", "storageclasses", None, name) if name else None
    if found is None or not found.get("allowVolumeExpansion"):
        text = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
            "must support resize"
        )
        raise forbidden(claim, ctx, text)
