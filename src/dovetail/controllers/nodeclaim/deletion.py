"""Deleting a NodeClaim: counted by its reason, and in the decision history unless a command has recorded it.

Everything else follows from the deletion: the node is drained, the instance terminated, the finalizers removed.
"""

from __future__ import annotations

from dovetail.cluster.state_node import launch_price
from dovetail.controllers.context import Context
from dovetail.controllers.history.decisions import Decision
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS
from dovetail.language import source
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.pods import returning

#: What reasons are called in the decision history, for the catalogue.
_WORDS = {
    "capacity_reservation_expiring": source("capacity reservation expiring"),
    "capacity_reservation_interrupted": source("capacity reservation interrupted"),
    "event_status": source("event status"),
    "expired": source("expired"),
    "garbage_collected": source("garbage collected"),
    "instance_status": source("instance status"),
    "instance_stopped": source("instance stopped"),
    "instance_terminated": source("instance terminated"),
    "insufficient_capacity": source("insufficient capacity"),
    "launch_failed": source("launch failed"),
    "launch_timeout": source("launch timeout"),
    "nodeclass_not_ready": source("nodeclass not ready"),
    "registration_timeout": source("registration timeout"),
    "scheduled_change": source("scheduled change"),
    "spot_interrupted": source("spot interrupted"),
    "static_scale_down": source("static scale down"),
    "unhealthy": source("unhealthy"),
}


async def delete(
    context: Context,
    claim: NodeClaim,
    reason: str,
    *,
    why: str = "",
    decision: str = "",
    policy: str = "",
    bound: float | None = None,
) -> str:
    """Delete a NodeClaim and return the id of the decision; one that is gone already is as good, and needs none.

    `why` says more than the reason does, `decision` is the command's that has recorded it, `policy` the
    consolidation policy, and `bound` the seconds its drain may take whatever the NodeClaim says.
    """
    context.deleted_claims.add(claim.metadata.uid)
    try:
        await context.kube.delete(NODECLAIMS, claim.name, uid=claim.metadata.uid)
    except NotFound:
        return ""
    kind, node = claim.metadata.labels.get(wellknown.CAPACITY_TYPE, ""), context.cluster_state.node_for(claim)
    labels = (reason, claim.node_pool or "", kind, policy, termination_mode(claim, bound))
    context.metrics.claims_disrupted.labels(*labels).inc()
    if node is not None:
        pods = sum(map(returning, context.cluster_state.pods_on(node.metadata.name)))
        context.metrics.pods_disruption_initiated.labels(*labels).inc(pods)
    words = _WORDS.get(reason) or reason.replace("_", " ")
    return decision or record(context, claim, reason, f"{words}: {why}" if why else words)


def termination_mode(claim: NodeClaim, bound: float | None = None) -> str:
    """How forceful a NodeClaim's termination may be: without a grace period its drain is unbounded."""
    grace = claim.spec.grace
    if bound is None and grace is not None:
        bound = grace.total_seconds()
    if bound is None:
        return "graceful"
    return "eventual" if bound > 0 else "forceful"


def record(context: Context, claim: NodeClaim, reason: str, why: str) -> str:
    """Record that a NodeClaim is deleted, and return the id of the decision."""
    decision_history, labels = context.decision_history, claim.metadata.labels
    node, price = context.cluster_state.node_for(claim), launch_price(claim) if claim.status.provider_id else None
    described = [
        labels[key] for key in (wellknown.INSTANCE_TYPE, wellknown.ZONE, wellknown.CAPACITY_TYPE) if key in labels
    ]
    what = f"{claim.name} ({', '.join(described)})" if described else claim.name
    decision = Decision(
        id=decision_history.new_id(),
        kind="end",
        time=decision_history.now(),
        reason=reason,
        summary=source("{what} is deleted: {why}").format(what=what, why=why),
        view_age=context.cluster_state.age(),
        before=price,
        cost=None if price is None else 0.0,
        removed=(node.metadata.name,) if node is not None else (),
        about=tuple(name for name in (claim.name, claim.node_pool) if name),
    )
    decision_history.record(decision)
    return decision.id
