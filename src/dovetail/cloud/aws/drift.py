"""Drift of a machine from its class, from positive evidence alone: an empty answer drifts nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.cloud.aws import nodeclass
from dovetail.cloud.aws.images import Image
from dovetail.cloud.aws.reservations import RESERVATION
from dovetail.cloud.protocol import Machine

HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
#: Ours: two hashes are compared only if both were made this way.
VERSION = "dovetail-1"
#: What is compared by what it selects, not by how it says so.
_SELECTS = frozenset({
    "subnetSelectorTerms", "securityGroupSelectorTerms", "capacityReservationSelectorTerms", "amiSelectorTerms",
    "amiFamily", "ipPrefixCount",
})


def fingerprint(node_class: Mapping[str, Any]) -> dict[str, str]:
    """The annotations by which a machine is known to be of an older version of its class."""
    spec: Mapping[str, Any] = node_class.get("spec") or {}
    kept = {key: value for key, value in spec.items() if key not in _SELECTS and value not in (None, {}, [], "")}
    text = msgspec.json.encode([nodeclass.family_name(spec), kept], order="sorted")
    return {HASH: str(int(hashlib.sha256(text).hexdigest()[:16], 16)), HASH_VERSION: VERSION}


def reason(claim: Mapping[str, Any], machine: Machine, node_class: Mapping[str, Any]) -> str | None:
    """The first thing that no longer matches what the class's status selects now."""
    if _hash_differs(claim, node_class):
        return "NodeClassDrift"
    status: Mapping[str, Any] = node_class.get("status") or {}
    images = [Image(id=a["id"], name="", created="", deprecated=False,
                    requirements=tuple(a.get("requirements") or ())) for a in status.get("amis") or ()]
    labels = {key: (value,) for key, value in (claim["metadata"].get("labels") or {}).items()}
    suited = {image.id for image in images if image.suits(labels)}
    if suited and machine.image_id and machine.image_id not in suited:
        return "AMIDrift"
    groups = {group["id"] for group in status.get("securityGroups") or ()}
    worn = set(filter(None, machine.network.get("security-groups", "").split(",")))
    if groups and worn and groups != worn:
        return "SecurityGroupDrift"
    subnets = {subnet["id"] for subnet in status.get("subnets") or ()}
    placed = machine.network.get("subnet")
    if subnets and placed and placed not in subnets:
        return "SubnetDrift"
    held, listed = machine.labels.get(RESERVATION), status.get("capacityReservations")
    if held and listed is not None and held not in {each["id"] for each in listed}:
        return "CapacityReservationDrift"
    return None


def _hash_differs(claim: Mapping[str, Any], node_class: Mapping[str, Any]) -> bool:
    ours = claim["metadata"].get("annotations") or {}
    theirs = node_class["metadata"].get("annotations") or {}
    if not all(key in side for key in (HASH, HASH_VERSION) for side in (ours, theirs)):
        return False
    return bool(ours[HASH_VERSION] == theirs[HASH_VERSION] and ours[HASH] != theirs[HASH])
