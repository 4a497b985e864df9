"""Drift of an instance from its class, from positive evidence alone: an empty answer drifts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.cloud.aws import ec2nodeclass
from dovetail.cloud.aws.amis import of_status
from dovetail.cloud.provider import Instance
from dovetail.model.kinds.nodeclass_hash import HASH_ANNOTATION, VERSION, VERSION_ANNOTATION, class_hash
from dovetail.model.labels import PLACEMENT_GROUP, RESERVATION


def fingerprint(node_class: Mapping[str, Any], certificate: str) -> dict[str, str]:
    """The annotations by which an instance is known to be of an older version of its class.

    They are Karpenter's, and count the cluster's certificate; while that is not known there are none.
    """
    spec: Mapping[str, Any] = node_class.get("spec") or {}
    if not certificate:
        return {}
    return {HASH_ANNOTATION: class_hash(spec, ec2nodeclass.family_name(spec), certificate), VERSION_ANNOTATION: VERSION}


def reason(
    claim: Mapping[str, Any],
    instance: Instance,
    node_class: Mapping[str, Any],
    certificate: str = "",
    group: str | None = None,
) -> str | None:
    """The first thing that no longer matches the class, or what its status selects now.

    `group` is the id of the class's placement group, empty if it wants none, None if that is not known.
    """
    if _hash_differs(claim, fingerprint(node_class, certificate)):
        return "NodeClassDrift"
    status: Mapping[str, Any] = node_class.get("status") or {}
    labels = {key: (value,) for key, value in (claim["metadata"].get("labels") or {}).items()}
    suited = {image.id for image in of_status(status) if image.suits(labels)}
    if suited and instance.image_id and instance.image_id not in suited:
        return "AMIDrift"
    groups = {group["id"] for group in status.get("securityGroups") or ()}
    worn = set(filter(None, instance.network.get("security-groups", "").split(",")))
    if groups and worn and groups != worn:
        return "SecurityGroupDrift"
    subnets = {subnet["id"] for subnet in status.get("subnets") or ()}
    placed = instance.network.get("subnet")
    if subnets and placed and placed not in subnets:
        return "SubnetDrift"
    reservation_id, listed = instance.labels.get(RESERVATION), status.get("capacityReservations")
    if reservation_id and listed is not None and reservation_id not in {reservation["id"] for reservation in listed}:
        return "CapacityReservationDrift"
    stands = instance.labels.get(PLACEMENT_GROUP) or (claim["metadata"].get("labels") or {}).get(PLACEMENT_GROUP, "")
    return "PlacementGroupDrift" if group is not None and group != stands else None


def _hash_differs(claim: Mapping[str, Any], now: Mapping[str, str]) -> bool:
    """Two hashes are compared only if both were made the same way."""
    then = claim["metadata"].get("annotations") or {}
    if not now or then.get(VERSION_ANNOTATION) != now[VERSION_ANNOTATION]:
        return False
    return bool(then.get(HASH_ANNOTATION) != now[HASH_ANNOTATION])
