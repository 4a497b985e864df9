"""How a node, or a NodeClaim without one, is seen: pure functions of the objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.controllers.conditions import instant
from dovetail.controllers.disruption.expiration import date
from dovetail.language import message, source
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import NODE_GROUPS
from dovetail.model.meta import Amount, condition
from dovetail.model.nodes import Node
from dovetail.model.quantity import QuantityError, amount
from dovetail.view import prices
from dovetail.view.model import Amounts, NodePhase, NodeView, PodView

_ARCHITECTURE = "kubernetes.io/arch"
#: How long a NodeClaim may take to be launched, and then to register: after that it is given up, as in Karpenter.
LAUNCH_TIMEOUT, REGISTRATION_TIMEOUT = timedelta(minutes=5), timedelta(minutes=15)
#: Resources of which every node has some that are not drawn.
_NOT_SHOWN = ("hugepages-", "attachable-volumes-")
#: The steps of a NodeClaim, and what is said of one that is not done and says nothing itself.
_UNMET = {
    "Launched": source("not launched yet"),
    "Registered": source("not registered yet"),
    "Initialized": source("not initialized yet"),
}


def node_view(
    node: Node, claim: NodeClaim | None, pods: Sequence[PodView] | None, usage: Amounts | None, terminating: bool
) -> NodeView:
    """`pods` is None where pods may not be read."""
    labels = {**(claim.metadata.labels if claim is not None else {}), **node.metadata.labels}
    state, reason, until = _node_state(node, claim, terminating)
    return NodeView(
        name=node.metadata.name,
        claim=claim.name if claim is not None else None,
        has_node=True,
        state=state,
        reason=reason,
        until=until,
        pool=labels.get(wellknown.NODEPOOL),
        group=next((labels[key] for key in NODE_GROUPS if labels.get(key)), None),
        zone=labels.get(wellknown.ZONE),
        instance_type=labels.get(wellknown.INSTANCE_TYPE),
        capacity_type=prices.capacity_type(labels),
        architecture=labels.get(_ARCHITECTURE) or node.status.node_info.architecture or None,
        price=prices.price(labels, claim),
        capacity=_amounts(node.status.capacity),
        allocatable=_amounts(node.status.allocatable),
        requests=None if pods is None else _requested(pods),
        usage=usage,
        pods=tuple(pods or ()),
        created=node.metadata.creation_timestamp,
        expires=date(claim) if claim is not None else None,
        provider_id=node.spec.provider_id,
        kubelet_version=node.status.node_info.kubelet_version,
    )


def claim_view(claim: NodeClaim) -> NodeView:
    """A NodeClaim that has no node yet: what it is, as far as it has been decided."""
    labels = {**_decided(claim), **claim.metadata.labels}
    state, reason, until = _claim_state(claim)
    return NodeView(
        name=claim.name,
        claim=claim.name,
        has_node=False,
        state=state,
        reason=reason,
        until=until,
        pool=claim.node_pool,
        group=None,
        zone=labels.get(wellknown.ZONE),
        instance_type=labels.get(wellknown.INSTANCE_TYPE),
        capacity_type=prices.capacity_type(labels),
        architecture=labels.get(_ARCHITECTURE),
        price=prices.price(labels, claim),
        capacity=_amounts(claim.status.capacity),
        allocatable=_amounts(claim.status.allocatable),
        requests=_amounts(claim.spec.resources.requests),
        usage=None,
        pods=(),
        created=claim.metadata.creation_timestamp,
        expires=date(claim),
        provider_id=claim.status.provider_id,
    )


def _node_state(node: Node, claim: NodeClaim | None, terminating: bool) -> tuple[NodePhase, str, datetime | None]:
    why = claim.condition("DisruptionReason") if claim is not None else None
    reason = why.reason if why is not None and why.status == "True" else ""
    if terminating or node.metadata.deletion_timestamp is not None:
        end = claim.metadata.annotations.get(wellknown.TERMINATION_TIMESTAMP) if claim is not None else None
        return NodePhase.DRAINING, reason, instant(end) if end is not None else None
    if reason:
        return NodePhase.REPLACING, reason, None
    ready = condition(node.status.conditions, "Ready")
    if claim is not None and not claim.is_true("Initialized"):
        return NodePhase.JOINING, _unmet(claim) or (ready.message if ready is not None else ""), _deadline(claim)
    if not node.ready:
        said = (ready.reason or ready.message) if ready is not None else message("no kubelet has reported")
        return NodePhase.NOT_READY, said, None
    if node.spec.unschedulable:
        return NodePhase.CORDONED, "spec.unschedulable", None
    return NodePhase.READY, "", None


def _claim_state(claim: NodeClaim) -> tuple[NodePhase, str, datetime | None]:
    if claim.metadata.deletion_timestamp is not None:
        return NodePhase.DRAINING, message("NodeClaim is deleted"), None
    return (NodePhase.JOINING if claim.status.provider_id else NodePhase.LAUNCHING), _unmet(claim), _deadline(claim)


def _deadline(claim: NodeClaim) -> datetime | None:
    """When the NodeClaim is given up, unless its next step is done by then."""
    launched = claim.condition("Launched")
    if launched is not None and launched.status == "True":
        since, patience = launched.last_transition_time, REGISTRATION_TIMEOUT
    else:
        since, patience = claim.metadata.creation_timestamp, LAUNCH_TIMEOUT
    registered = claim.is_true("Registered")
    return None if registered or since is None else since + patience


def _unmet(claim: NodeClaim) -> str:
    """The first step that is not done, with what is known about it."""
    for step in _UNMET:
        condition = claim.condition(step)
        if condition is None or condition.status != "True":
            return (condition.message or condition.reason if condition is not None else "") or message(_UNMET[step])
    return ""


def _decided(claim: NodeClaim) -> dict[str, str]:
    """What the NodeClaim's requirements leave no choice about."""
    return {
        term.key: term.values[0] for term in claim.spec.requirements if term.operator == "In" and len(term.values) == 1
    }


def _amounts(given: Mapping[str, Amount]) -> Amounts:
    amounts = {}
    for name, text in given.items():
        if name.startswith(_NOT_SHOWN):
            continue
        try:
            amounts[name] = amount(name, text)
        except QuantityError:
            continue  # absent from the view, so drawn as unknown
    return amounts


def _requested(pods: Sequence[PodView]) -> Amounts:
    """The sum of requests, with the number of pods as `pods`."""
    summed: dict[str, int] = {}
    for pod in pods:
        for name, count in (pod.requests or {}).items():
            summed[name] = summed.get(name, 0) + count
    summed["pods"] = len(pods)
    return summed
