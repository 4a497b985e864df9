"""How a node looks to the planner, from its Node, its NodeClaim, and the pods on it.

Until a node is registered its NodeClaim decides; until it is initialized its ephemeral taints do not
count and what the kubelet still reports as zero is taken from the NodeClaim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from dovetail.model import wellknown
from dovetail.model.instance_type import InstanceType, Resources
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node, Taint
from dovetail.model.pods import Pod
from dovetail.model.quantity import resources
from dovetail.model.taints import UNSCHEDULABLE, ephemeral, merge, same
from dovetail.model.volumes import CSINode
from dovetail.planner.snapshot import NodeState

#: Types by NodePool and name: NodePools may differ about a type. Those by no pool ("") are for nodes of none.
Types = Mapping[tuple[str, str], InstanceType]


def of_node(
    node: Node,
    claim: NodeClaim | None,
    pods: Iterable[Pod],
    csi: CSINode | None,
    types: Types,
    *,
    deleting: bool,
) -> NodeState:
    """A NodeClaim or other instance that has a Node."""
    labels = dict(node.metadata.labels)
    if claim is not None and labels.get(wellknown.REGISTERED) != "true":
        labels = {**labels, **_claim_labels(claim)}
    labels.setdefault(wellknown.HOSTNAME, node.metadata.name)
    rebooting = claim is not None and claim.is_true("Rebooting")
    initialized = claim is None or (labels.get(wellknown.INITIALIZED) == "true" and not rebooting)
    capacity, allocatable = resources(node.status.capacity), resources(node.status.allocatable)
    if claim is not None and not initialized:
        capacity = _filled(capacity, resources(claim.status.capacity))
        allocatable = _filled(allocatable, resources(claim.status.allocatable))
    pool = labels.get(wellknown.NODEPOOL) if claim is not None else None
    return NodeState(
        name=node.metadata.name,
        labels=labels,
        allocatable=allocatable,
        capacity=capacity,
        taints=_node_taints(node, claim, initialized),
        pods=tuple(pods),
        attach_limits=_attach_limits(csi, type_of(labels, types)),
        pool=pool,
        claim=claim.name if claim else None,
        initialized=initialized,
        deleting=deleting,
        price=price(labels, types),
        movable=False,
    )


def of_claim(claim: NodeClaim, pods: Iterable[Pod], types: Types, *, deleting: bool) -> NodeState:
    """A NodeClaim without a Node. Before its launch only the pods that it was created for are sure to fit."""
    labels = _claim_labels(claim)
    requests = resources(claim.spec.resources.requests)
    launched = bool(claim.status.provider_id)
    options = [_find_type(claim.node_pool or "", name, types) for name in _options(claim)]
    t = type_of(labels, types)
    return NodeState(
        name=claim.name,
        labels=labels,
        allocatable=resources(claim.status.allocatable) if launched else requests,
        capacity=resources(claim.status.capacity) if launched else _largest(filter(None, options), requests),
        taints=tuple(_taint(taint) for taint in claim.spec.taints),
        pods=tuple(pods),
        attach_limits=t.attach_limits if t else {},
        pool=claim.node_pool,
        claim=claim.name,
        initialized=False,
        deleting=deleting,
        price=price(labels, types),
        movable=False,
    )


def type_of(labels: Mapping[str, str], types: Types) -> InstanceType | None:
    """The instance type of a node, as its NodePool has it."""
    return _find_type(labels.get(wellknown.NODEPOOL, ""), labels.get(wellknown.INSTANCE_TYPE, ""), types)


def _find_type(pool: str, name: str, types: Types) -> InstanceType | None:
    return types.get((pool, name)) or types.get(("", name))


def price(labels: Mapping[str, str], types: Types) -> float | None:
    """Today's price of the offering of a node."""
    t = type_of(labels, types)
    if t is None:
        return None
    zone, capacity_type = labels.get(wellknown.ZONE), labels.get(wellknown.CAPACITY_TYPE)
    return next((o.price for o in t.offerings if (o.zone, o.capacity_type) == (zone, capacity_type)), None)


def launch_price(claim: NodeClaim) -> float | None:
    """The price per hour at which a NodeClaim was launched; None where its annotation is missing or unreadable."""
    try:
        price = float(claim.metadata.annotations.get(wellknown.PRICE, ""))
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None


def provider_labels(claim: NodeClaim) -> dict[str, str]:
    """What a NodeClaim's own requirements already decide: the keys with exactly one value."""
    return {
        term.key: term.values[0] for term in claim.spec.requirements if term.operator == "In" and len(term.values) == 1
    }


def planned(claim: NodeClaim) -> tuple[str, ...]:
    """The UIDs of the pods a NodeClaim was created for."""
    text = claim.metadata.annotations.get(wellknown.PODS, "")
    return tuple(filter(None, text.split(",")))


def _claim_labels(claim: NodeClaim) -> dict[str, str]:
    return {**provider_labels(claim), **claim.metadata.labels}


def _options(claim: NodeClaim) -> tuple[str, ...]:
    return next(
        (t.values for t in claim.spec.requirements if t.key == wellknown.INSTANCE_TYPE and t.operator == "In"), ()
    )


def _largest(options: Iterable[InstanceType], requests: Resources) -> Resources:
    """What limits must count for a NodeClaim that may become any of several types."""
    worst = dict(requests)
    for option in options:
        for name, amount in option.capacity.items():
            worst[name] = max(worst.get(name, 0), amount)
    return worst


def _filled(reported: dict[str, int], expected: Resources) -> dict[str, int]:
    return {**{name: amount for name, amount in expected.items() if not reported.get(name)}, **_nonzero(reported)}


def _nonzero(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


def _taint(taint: object) -> Taint:
    return taint if isinstance(taint, Taint) else msgspec.convert(taint, Taint, from_attributes=True)


def _node_taints(node: Node, claim: NodeClaim | None, initialized: bool) -> tuple[Taint, ...]:
    filling = any(taint.key == wellknown.PLACING for taint in node.spec.taints)
    mine = [taint for taint in node.spec.taints if not _passes(taint, filling)]
    if node.spec.unschedulable and not filling:
        mine = list(merge(mine, (_CORDONED,)))
    if claim is None or initialized:
        return tuple(mine)
    startup = [_taint(taint) for taint in claim.spec.startup_taints]
    kept = [t for t in mine if not ephemeral(t) and not any(same(t, s) for s in startup)]
    if node.metadata.labels.get(wellknown.REGISTERED) != "true":
        return merge(kept, map(_taint, claim.spec.taints))
    return tuple(kept)


def _passes(taint: Taint, filling: bool) -> bool:
    """Whether a taint is ours and temporary: the node is being filled (it may be cordoned then), or reboots."""
    return (
        taint.key == wellknown.PLACING
        or same(taint, wellknown.REBOOTING_TAINT)
        or (filling and taint.key == UNSCHEDULABLE)
    )


_CORDONED = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


def _attach_limits(csi: CSINode | None, t: InstanceType | None) -> Mapping[str, int]:
    """CSINode decides for the drivers it has published (no count: no limit), the type for the others."""
    limits = dict(t.attach_limits) if t else {}
    for driver in csi.spec.drivers if csi else ():
        limits.pop(driver.name, None)
        if driver.allocatable is not None and driver.allocatable.count is not None:
            limits[driver.name] = driver.allocatable.count
    return limits
