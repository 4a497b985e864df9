"""Volumes, the deciding half: which volume a claim gets, and what a new one looks like."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from dovetail.lab.controllers.views import Json
from dovetail.model.quantity import whole
from dovetail.model.selector import LabelSelector

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
EBS = "ebs.csi.aws.com"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
#: Topology keys by which a claim's class and nodes name a zone.
ZONE_KEYS = ("topology.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone", "failure-domain.beta.kubernetes.io/zone")


def class_of(claim: Json) -> str:
    name = claim["spec"].get("storageClassName")
    return "" if name is None else str(name)


def waits_for_consumer(storage_class: Json | None) -> bool:
    return storage_class is not None and storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"


def match(claim: Json, volumes: Iterable[Json]) -> Json | None:
    """The smallest free volume that satisfies the claim, or the one that is kept for it."""
    spec = claim["spec"]
    requested_bytes = whole(spec.get("resources", {}).get("requests", {}).get("storage", "0"))
    selector = msgspec.convert(spec["selector"], LabelSelector) if spec.get("selector") else None
    fitting: list[tuple[int, str, Json]] = []
    for volume in volumes:
        body = volume["spec"]
        reference = body.get("claimRef")
        if reference is not None:
            if _means(reference, claim):
                return volume
            continue
        if spec.get("volumeName") not in (None, "", volume["metadata"]["name"]):
            continue
        size = whole(body.get("capacity", {}).get("storage", "0"))
        modes = set(spec.get("accessModes", [])) <= set(body.get("accessModes", []))
        same = body.get("storageClassName", "") == class_of(claim)
        mode = body.get("volumeMode", "Filesystem") == spec.get("volumeMode", "Filesystem")
        chosen = selector is None or selector.matches(volume["metadata"].get("labels", {}))
        if (
            size >= requested_bytes
            and modes
            and same
            and mode
            and chosen
            and "deletionTimestamp" not in volume["metadata"]
        ):
            fitting.append((size, volume["metadata"]["name"], volume))
    return min(fitting, key=lambda entry: entry[:2])[2] if fitting else None


def _means(reference: Json, claim: Json) -> bool:
    metadata = claim["metadata"]
    same = reference.get("name") == metadata["name"] and reference.get("namespace") == metadata["namespace"]
    return same and reference.get("uid") in (None, "", metadata["uid"])


def claim_reference(claim: Json) -> Json:
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": "v1",
        "resourceVersion": metadata["resourceVersion"],
    }


def zones_of(storage_class: Json) -> list[str]:
    """The zones a class allows; empty means any."""
    return [
        zone
        for term in storage_class.get("allowedTopologies") or []
        for expression in term.get("matchLabelExpressions", [])
        if expression.get("key") in ZONE_KEYS
        for zone in expression.get("values", [])
    ]


def provisioned(claim: Json, storage_class: Json, zone: str | None) -> Json:
    """The volume that a provisioner makes for a claim."""
    metadata, spec = claim["metadata"], claim["spec"]
    provisioner = storage_class["provisioner"]
    body: dict[str, Any] = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": spec.get("accessModes", []),
        "claimRef": claim_reference(claim),
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": spec.get("volumeMode", "Filesystem"),
        "csi": {
            "driver": provisioner if "csi" in provisioner else EBS,
            "volumeHandle": f"vol-0{metadata['uid'].replace('-', '')[:16]}",
            "fsType": "ext4",
            "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": provisioner},
        },
    }
    if zone:
        expression = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if storage_class.get("mountOptions"):
        body["mountOptions"] = storage_class["mountOptions"]
    return {
        "metadata": {
            "name": f"pvc-{metadata['uid']}",
            "annotations": {"pv.kubernetes.io/provisioned-by": provisioner},
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer", "kubernetes.io/pv-protection"],
        },
        "spec": body,
    }


def undeletable(volume: Json) -> str | None:
    """Why no plugin here can delete a volume; a driver deletes its own."""
    spec = volume["spec"]
    if "csi" in spec:
        return None
    if "hostPath" in spec:
        path = spec["hostPath"]["path"]
        refusal = f"host_path deleter only supports /tmp/.+ but received provided {path}"
        return None if path.startswith("/tmp/") and len(path) > len("/tmp/") else refusal
    name = volume["metadata"]["name"]
    return f'error getting deleter volume plugin for volume "{name}": no deletable volume plugin matched'
