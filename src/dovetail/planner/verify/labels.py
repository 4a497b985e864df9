"""The labels of a planned node: from its type, its offering and its pool, and those that the plan chooses.

A type or a pool may leave a label open; a plan may choose the value of such a label, and of no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import lru_cache

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import (
    CAPACITY_TYPE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    NODEPOOL,
    REGISTERED,
    WELL_KNOWN,
    ZONE,
)
from dovetail.model.requirements import Requirements
from dovetail.planner.snapshot import Pool, PoolRequirement

RESERVATION_ID = "karpenter.k8s.aws/capacity-reservation-id"


def labels_of(
    pool: Pool, kind: InstanceType, offering: Offering, chosen: Mapping[str, str], name: str
) -> dict[str, str]:
    """The labels a node of this offering would have; of several values a type may take, the first the pool allows."""
    labels: dict[str, str] = {}
    for need in pool.requirements:
        if need.operator == "In" and need.values:
            labels[need.key] = need.values[0]
    needs = _needs(pool.requirements)
    for label, values in kind.labels.items():
        first = next((value for value in values if label not in needs or needs[label].has(value)), None)
        if first is not None:
            labels[label] = first
    labels |= {REGISTERED: "true", INITIALIZED: "true", **pool.labels, **offering.labels}
    if offering.reservation_id:
        labels[RESERVATION_ID] = offering.reservation_id
    labels |= {
        INSTANCE_TYPE: kind.name,
        ZONE: offering.zone,
        CAPACITY_TYPE: offering.capacity_type,
        NODEPOOL: pool.name,
        HOSTNAME: name,
        **chosen,
    }
    return labels


@lru_cache(maxsize=64)
def _needs(requirements: tuple[PoolRequirement, ...]) -> Requirements:
    """The requirements of a pool, cached: they are checked for every offering."""
    return Requirements.of_entries(requirements)


def _admits(pool: Pool, label: str, value: str) -> bool:
    needs = _needs(pool.requirements)
    return label not in needs or needs[label].has(value)


def offered(pool: Pool, kind: InstanceType, offering: Offering, described: Set[str]) -> bool:
    """Whether the pool's requirements let it launch the offering.

    A type without a label that other types of the pool have (`described`) does not have it; a label that no type has
    is open.
    """
    for key, need in _needs(pool.requirements).items():
        values = _values(kind, offering, key)
        if values and not any(need.has(value) for value in values):
            return False
        if not values and key in described and key not in pool.labels and not need.negative:
            return False
    return True


def meets(requirements: Requirements, kind: InstanceType, offering: Offering) -> bool:
    """Whether the requirements of a NodeClaim admit an offering; a label that it leaves open does."""
    needs = ((need, _values(kind, offering, key)) for key, need in requirements.items())
    return all(not values or any(need.has(value) for value in values) for need, values in needs)


def _values(kind: InstanceType, offering: Offering, key: str) -> tuple[str, ...]:
    """The values of a label that an offering may have."""
    facts = {
        INSTANCE_TYPE: kind.name,
        ZONE: offering.zone,
        CAPACITY_TYPE: offering.capacity_type,
        RESERVATION_ID: offering.reservation_id,
    }
    fact = facts.get(key)
    return (fact,) if fact is not None else kind.labels.get(key, ())


def may_choose_label(pool: Pool, kind: InstanceType, offering: Offering, label: str, value: str) -> bool:
    """Whether a plan may choose this value of a label: the pool allows it, and the label is open."""
    fixed = {
        INSTANCE_TYPE: kind.name,
        ZONE: offering.zone,
        CAPACITY_TYPE: offering.capacity_type,
        NODEPOOL: pool.name,
        RESERVATION_ID: offering.reservation_id,
        **pool.labels,
        **offering.labels,
    }
    if label == HOSTNAME or fixed.get(label, value) != value or not _admits(pool, label, value):
        return False
    if label in fixed or label in WELL_KNOWN or any(need.key == label for need in pool.requirements):
        return label not in kind.labels or value in kind.labels[label]
    return value in kind.labels.get(label, ())
