"""The v1 objects that stand for one of the first generation in a cluster.

A Provisioner is kept as a NodePool that it owns, an AWSNodeTemplate as an EC2NodeClass: everything else then
knows one generation only, and deleting the old object deletes what stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.model.kinds.conversion_annotations import DOMAIN, annotation, put, take
from dovetail.model.kinds.convert import expand
from dovetail.model.kinds.convert_v1beta1 import CLASS_ANNOTATION, member
from dovetail.model.kinds.schema import Json
from dovetail.model.labels import PROVISIONER_NAME

#: On a NodePool: the Provisioner it stands for, whose name its nodes carry as a label.
PROVISIONER_ANNOTATION = f"{DOMAIN}/provisioner"


def adopted(obj: Mapping[str, Any], default_profile: str = "", default_family: str = "AL2") -> list[Json]:
    """The v1 objects for a Provisioner or an AWSNodeTemplate, owned by it, fit for server-side apply.

    `default_family` is of templates that name neither a family nor images: AL2 has none for newer clusters.
    """
    objects_ = []
    obj = _with_family(obj, default_family)
    for obj_ in expand(obj):
        for version in ("v1alpha5", "v1alpha1", "v1"):
            take(obj_, annotation(version))
        take(obj_, CLASS_ANNOTATION)
        spec = member(obj_, "spec")
        if obj_.get("kind") == "NodePool":
            _labels(obj_, spec)
        elif "role" not in spec and "instanceProfile" not in spec and default_profile:
            spec["instanceProfile"] = default_profile
        objects_.append({key: obj_[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": _metadata(obj_, obj)})
    return objects_


def _with_family(obj: Mapping[str, Any], family: str) -> Mapping[str, Any]:
    spec = member(obj, "spec")
    named = any(spec.get(field) for field in ("amiFamily", "amiSelector", "launchTemplate"))
    if obj.get("kind") != "AWSNodeTemplate" or named:
        return obj
    return {**obj, "spec": {**spec, "amiFamily": family}}


def _labels(pool: Json, spec: Json) -> None:
    """v1 does not allow labels of nodes in Karpenter's domain; an annotation says that these are a Provisioner's."""
    metadata = member(spec, "template", "metadata")
    name = member(metadata, "labels").pop(PROVISIONER_NAME, None)
    if isinstance(name, str):
        put(pool, PROVISIONER_ANNOTATION, name)
    for field in ("labels", "annotations"):
        if not metadata.get(field):
            metadata.pop(field, None)
    if not metadata:
        member(spec, "template").pop("metadata", None)


def _metadata(obj_: Json, owner: Mapping[str, Any]) -> Json:
    said = member(owner, "metadata")
    metadata: Json = {"name": said.get("name")}
    kept = {
        key: value
        for key, value in member(obj_, "metadata", "annotations").items()
        if not key.startswith("kubectl.kubernetes.io/")
    }
    if kept:
        metadata["annotations"] = kept
    if said.get("labels"):
        metadata["labels"] = dict(said["labels"])
    metadata["ownerReferences"] = [
        {
            "apiVersion": owner.get("apiVersion"),
            "kind": owner.get("kind"),
            "name": said.get("name"),
            "uid": said.get("uid", ""),
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return metadata


def owned_by(obj_: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """Whether an object stands for that old one, and not for itself."""
    uid = member(owner, "metadata").get("uid")
    references = member(obj_, "metadata").get("ownerReferences")
    return any(reference.get("uid") == uid for reference in references or () if isinstance(reference, dict))
