"""What follows for a simulated instance from its launch (id, labels), and from the claim it was sold to (all of it)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from dovetail.cloud.provider import Instance, LaunchOption, LaunchRequest
from dovetail.model import labels as keys
from dovetail.model.instance_type import InstanceType
from dovetail.model.quantity import resources

SCHEME = "simulated"
IMAGE = "simulated-image"


def provider_id(token: str, zone: str) -> str:
    """The id of the instance that a launch token launches."""
    return f"{SCHEME}:///{zone}/i-{hashlib.sha256(token.encode()).hexdigest()[:17]}"


def instance_of(claim: Mapping[str, Any], created: datetime, types: Mapping[str, InstanceType]) -> Instance | None:
    """The instance a launched claim stands for: how the books are found again after a restart.

    It stands whether or not its type is still sold; then it has what its claim says.
    """
    metadata, status = claim.get("metadata") or {}, claim.get("status") or {}
    tags = metadata.get("labels") or {}
    provider = status.get("providerID") or ""
    name = tags.get(keys.INSTANCE_TYPE, "")
    if not provider.startswith(f"{SCHEME}://") or not name:
        return None
    t = types.get(name)
    return Instance(
        provider_id=provider,
        instance_type=name,
        zone=tags.get(keys.ZONE, ""),
        capacity_type=tags.get(keys.CAPACITY_TYPE, ""),
        image_id=status.get("imageID") or IMAGE,
        capacity=dict(t.capacity) if t is not None else resources(status.get("capacity") or {}),
        allocatable=dict(t.allocatable) if t is not None else resources(status.get("allocatable") or {}),
        labels=dict(tags),
        created=created,
        claim_uid=metadata.get("uid"),
        claim_name=metadata.get("name"),
        node_pool=tags.get(keys.NODEPOOL),
    )


def labels_of(launch: LaunchRequest, option: LaunchOption) -> dict[str, str]:
    """What the node of an instance will be labelled with."""
    t, offering = option.instance_type, option.offering
    labels = {key: launch.labels.get(key, values[0]) for key, values in t.labels.items() if values}
    return {
        **labels,
        **launch.labels,
        **offering.labels,
        keys.INSTANCE_TYPE: t.name,
        keys.ZONE: offering.zone,
        keys.CAPACITY_TYPE: offering.capacity_type,
    }
