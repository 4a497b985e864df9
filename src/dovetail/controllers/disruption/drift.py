"""Drift: a machine that is no longer what its pool and its class ask for.

What we compare ourselves (hashes, labels) is evidence at once. What a cloud says (images, networks, types)
must be said twice, some time apart, before a machine is replaced for it: an empty or partial answer has
taken down whole fleets.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from dovetail.model.instancetype import InstanceType
from dovetail.model.kinds import hashes
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from dovetail.model.requirements import Requirements

POOL, REQUIREMENTS, TYPE_GONE = "NodePoolDrifted", "RequirementsDrifted", "InstanceTypeNotFound"

#: Seconds between the two times a cloud must say it.
AGAIN = 60.0
#: A type that cannot be found drifts no machine younger than this.
YOUNG = timedelta(hours=1)


def static(claim: NodeClaim, pool: NodePool) -> str | None:
    """What follows from the objects alone."""
    mine, its = claim.metadata.annotations, pool.metadata.annotations
    keys = (hashes.HASH_ANNOTATION, hashes.VERSION_ANNOTATION)
    if all(key in side for key in keys for side in (mine, its)):
        same_version = mine[hashes.VERSION_ANNOTATION] == its[hashes.VERSION_ANNOTATION]
        if same_version and mine[hashes.HASH_ANNOTATION] != its[hashes.HASH_ANNOTATION]:
            return POOL
    wanted = Requirements.of_entries(pool.spec.template.spec.requirements)
    labels = claim.metadata.labels
    has = Requirements.of_labels({key: labels[key] for key in wanted if key in labels})
    return None if has.compatible(wanted) else REQUIREMENTS


def type_gone(claim: NodeClaim, types: Mapping[str, InstanceType]) -> str | None:
    """Whether a complete list no longer has the machine's type and place. An empty list says nothing."""
    labels = claim.metadata.labels
    if not types or INSTANCE_TYPE not in labels:
        return None
    found = types.get(labels[INSTANCE_TYPE])
    if found is None:
        return TYPE_GONE
    kinds = {labels.get(CAPACITY_TYPE), "on-demand"} if labels.get(CAPACITY_TYPE) == "reserved" else {
        labels.get(CAPACITY_TYPE)}
    if not any(o.zone == labels.get(ZONE) and o.capacity_type in kinds for o in found.offerings):
        return TYPE_GONE
    return None
