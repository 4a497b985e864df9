"""NodeClaim termination: its node first (drained by the node's own finalizer), then its instance, then the NodeClaim.

A NodeClaim that is deleted before its status has a provider id is looked up by UID, so that a launch whose answer
was lost is terminated too.
"""

from __future__ import annotations

from dovetail.cloud.provider import InstanceNotFound
from dovetail.controllers import logs
from dovetail.controllers.conditions import of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.node.termination import deadline
from dovetail.controllers.worker import Again
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp

#: Between two checks of an instance that is shutting down, in seconds.
CHECK_INTERVAL_S = 5.0


async def finalize(context: Context, claim: NodeClaim) -> Again:
    if wellknown.FINALIZER not in claim.metadata.finalizers:
        return None
    claim = await _with_deadline(context, claim)
    if claim.is_true("Registered") and await _delete_nodes(context, claim):
        return None
    provider_id = claim.status.provider_id or await _find_unrecorded_instance(context, claim)
    if provider_id and not await _terminated(context, claim, provider_id):
        return CHECK_INTERVAL_S
    return await _release(context, claim)


async def _with_deadline(context: Context, claim: NodeClaim) -> NodeClaim:
    """With a grace period the termination has a deadline, written where the drain reads it."""
    grace, deleted = claim.spec.grace, claim.metadata.deletion_timestamp
    if grace is None or deleted is None or deadline.of(claim) is not None:
        return claim
    end = deleted + grace
    body = {"metadata": {"annotations": {wellknown.TERMINATION_TIMESTAMP: stamp(end)}}}
    fresh = await context.kube.patch(NODECLAIMS, claim.name, body, type=NodeClaim)
    context.cluster_state.assume(fresh)
    context.log.info(
        "annotated nodeclaim",
        controller="nodeclaim.lifecycle",
        NodeClaim=logs.ref(claim.name),
        **{wellknown.TERMINATION_TIMESTAMP: stamp(end)},
    )
    context.event_publisher.publish(fresh, "Warning", "TerminationGracePeriodExpiring", deadline.message(end))
    return fresh


async def _delete_nodes(context: Context, claim: NodeClaim) -> bool:
    nodes = context.cluster_state.nodes_for(claim)
    for node in nodes:
        if node.metadata.deletion_timestamp is None:
            try:
                await context.kube.delete(NODES, node.metadata.name, uid=node.metadata.uid)
            except NotFound:
                continue
    return bool(nodes)


async def _find_unrecorded_instance(context: Context, claim: NodeClaim) -> str:
    """The instance that was launched for a NodeClaim whose status never had its provider id."""
    for instance in await context.cloud.instances():
        if instance.claim_uid == claim.metadata.uid and context.cluster_state.owner(instance.provider_id) is None:
            return instance.provider_id
    return ""


async def _terminated(context: Context, claim: NodeClaim, provider_id: str) -> bool:
    """Terminate the instance; True once the cloud no longer knows it."""
    try:
        with context.safety.cloud("terminate instances"):
            await context.cloud.terminate(provider_id)
        gone = False
    except InstanceNotFound:
        gone = True
    conditions = of_claim(claim, context.clock.now())
    conditions.true("InstanceTerminating")
    if gone:
        waited = context.clock.now() - conditions.since("InstanceTerminating")
        context.metrics.instance_termination.labels(claim.node_pool or "").observe(max(0.0, waited.total_seconds()))
        return True
    if conditions.changed:
        body = status_patch(claim.metadata.resource_version, conditions)
        context.cluster_state.assume(
            await context.kube.patch(NODECLAIMS, claim.name, body, subresource="status", type=NodeClaim)
        )
    return False


async def _release(context: Context, claim: NodeClaim) -> Again:
    fresh = context.cluster_state.claims.store.get(claim.name) or claim
    left = [finalizer for finalizer in fresh.metadata.finalizers if finalizer != wellknown.FINALIZER]
    body = {"metadata": {"resourceVersion": fresh.metadata.resource_version, "finalizers": left}}
    try:
        await context.kube.patch(NODECLAIMS, claim.name, body)
    except NotFound:
        return None
    labels = claim.metadata.labels
    context.log.info(
        "deleted nodeclaim",
        controller="nodeclaim.lifecycle",
        NodeClaim=logs.ref(claim.name),
        Node=logs.ref(claim.status.node_name),
        **{"provider-id": claim.status.provider_id},
    )
    if claim.metadata.deletion_timestamp is not None:
        waited = context.clock.now() - claim.metadata.deletion_timestamp
        context.metrics.claim_termination.labels(claim.node_pool or "").observe(max(0.0, waited.total_seconds()))
    context.metrics.claims_terminated.labels(
        claim.node_pool or "", labels.get(wellknown.CAPACITY_TYPE, ""), labels.get(wellknown.ZONE, "")
    ).inc()
    return None
