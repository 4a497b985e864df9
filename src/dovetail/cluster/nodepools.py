"""NodePools as the planner sees them: the template, the weight, the limits, and the instance types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dovetail.model import wellknown
from dovetail.model.instance_type import InstanceType
from dovetail.model.kinds.adopt import PROVISIONER_ANNOTATION
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.labels import PROVISIONER_NAME
from dovetail.model.nodes import Taint
from dovetail.model.quantity import resources
from dovetail.planner.snapshot import Pool, PoolRequirement


def usable(pool: NodePool) -> bool:
    """A NodePool that pods may be planned onto new nodes of: dynamic, ready, and not being deleted."""
    return not pool.static and pool.metadata.deletion_timestamp is None and ready(pool)


def has_no_status(pool: NodePool) -> bool:
    """A NodePool whose status no controller has written: beside Cluster Autoscaler there is none that does."""
    return not pool.static and pool.metadata.deletion_timestamp is None and not pool.status.conditions


def ready(pool: NodePool) -> bool:
    return any(taint.type == "Ready" and taint.status == "True" for taint in pool.status.conditions)


def ordered(pools: Iterable[NodePool]) -> list[NodePool]:
    """Heavier first; of equal weight the last name first, as upstream does."""
    by_name = sorted(pools, key=lambda pool: pool.name, reverse=True)
    return sorted(by_name, key=lambda pool: -(pool.spec.weight or 0))


def for_planner(pool: NodePool, types: Sequence[InstanceType]) -> Pool:
    template = pool.spec.template
    return Pool(
        name=pool.name,
        types=tuple(types),
        weight=pool.spec.weight or 0,
        requirements=tuple(
            PoolRequirement(key=term.key, operator=term.operator, values=tuple(term.values), min_values=term.min_values)
            for term in template.spec.requirements
        ),
        labels=labels(pool),
        taints=tuple(_taint(taint) for taint in template.spec.taints),
        startup_taints=tuple(_taint(taint) for taint in template.spec.startup_taints),
        limits=resources(pool.spec.limits),
    )


def labels(pool: NodePool) -> dict[str, str]:
    """The labels of every node of the NodePool, among them those that name the NodePool and its NodeClass."""
    reference = pool.spec.template.spec.node_class_ref
    provisioner = pool.metadata.annotations.get(PROVISIONER_ANNOTATION)
    return {
        **pool.spec.template.metadata.labels,
        **({PROVISIONER_NAME: provisioner} if provisioner else {}),
        wellknown.NODEPOOL: pool.name,
        wellknown.node_class_label(reference.group, reference.kind): reference.name,
    }


def types_by_pool(pools: Iterable[Pool]) -> dict[tuple[str, str], InstanceType]:
    """Instance types by NodePool and name; for nodes of no NodePool ("") the first NodePool that has a type decides.

    A NodePool has an entry only for a type that differs from that one; thousands of NodePools may offer the same types.
    """
    types_by_name: dict[tuple[str, str], InstanceType] = {}
    undiffering: set[int] = set()
    """Tuples of types, by identity, without a type that differs."""
    for pool in pools:
        if id(pool.types) in undiffering:
            continue
        differing = [t for t in pool.types if types_by_name.setdefault(("", t.name), t) is not t]
        types_by_name |= {(pool.name, t.name): t for t in differing}
        if not differing:
            undiffering.add(id(pool.types))
    return types_by_name


def _taint(taint: object) -> Taint:
    return msgspec.convert(taint, Taint, from_attributes=True)
