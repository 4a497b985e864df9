"""Node termination: taint, drain, detach, terminate, release. The controller `node.termination`.

It holds the node's finalizer. Each reconciliation does what is possible now and returns when to check again; no
state is kept between them that the objects do not have themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from dovetail.cloud.provider import InstanceNotFound
from dovetail.cluster.state import ON_NODE
from dovetail.controllers import logs
from dovetail.controllers.conditions import Conditions, of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.node import taints
from dovetail.controllers.node.termination import deadline, drain
from dovetail.controllers.node.termination.drain import drainable
from dovetail.controllers.node.termination.evictions import Evictions
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES, PODS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim, VolumeAttachment

# Volumes that must be detached before their instance is terminated: those of the pods that were drained.


def blocking(
    node: str,
    attachments: Iterable[VolumeAttachment],
    staying: Iterable[Pod],
    claims: Mapping[str, PersistentVolumeClaim],
) -> list[str]:
    """Attachments the node waits for. Volumes of pods that are not drained, and inline ones, are not waited for."""
    kept = {name for pod in staying if not drainable(pod) for name in _volumes(pod, claims)}
    return [
        attachment.metadata.name
        for attachment in attachments
        if attachment.spec.node_name == node
        and attachment.spec.source.persistent_volume_name
        and attachment.spec.source.persistent_volume_name not in kept
    ]


def _volumes(pod: Pod, claims: Mapping[str, PersistentVolumeClaim]) -> Iterable[str]:
    for volume in pod.spec.volumes:
        name = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else None
        if name is None and volume.ephemeral is not None:
            name = f"{pod.metadata.name}-{volume.name}"
        claim = claims.get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is not None and claim.spec.volume_name:
            yield claim.spec.volume_name


CHECK_INTERVAL_S = 1.0
INSTANCE_CHECK_INTERVAL_S = 5.0
#: A drain lasts at least so long, so that load balancers notice.
MIN_DRAIN_S = 5.0


class Termination:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._evictions = Evictions(context)
        self._worker = Worker(
            "node.termination",
            self._reconcile,
            context.log,
            context.chance,
            workers=50,
            resource=NODES,
            metrics=context.metrics,
        )
        context.cluster_state.listen(NODES, self._node_changed)
        context.cluster_state.listen(PODS, self._pod_changed)

    async def run(self) -> None:
        for node in self._context.cluster_state.nodes.store.all():
            if node.metadata.deletion_timestamp is not None:
                self._worker.add(node.metadata.name)
        await self._worker.run()

    def _node_changed(self, change: CacheChange[Node]) -> None:
        if change.new is not None and change.new.metadata.deletion_timestamp is not None:
            self._worker.add(change.new.metadata.name)

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        node = self._context.cluster_state.nodes.store.get(change.object.spec.node_name)
        if node is not None and node.metadata.deletion_timestamp is not None:
            self._worker.add(node.metadata.name)

    async def _reconcile(self, name: str) -> Again:
        context = self._context
        node = context.cluster_state.nodes.store.get(name)
        if (
            node is None
            or node.metadata.deletion_timestamp is None
            or wellknown.FINALIZER not in node.metadata.finalizers
        ):
            return None
        claim = context.cluster_state.claim_for(node)
        if claim is not None and claim.metadata.deletion_timestamp is None:
            await self._delete_claim(claim)
        if not node.ready and await self._is_gone(node):
            return await self._release(node)
        if not (taints.tainted(node) and taints.excluded(node)):
            await taints.add(context, name, leave_load_balancers=True)
        end = deadline.of(claim)
        if end is not None:
            context.event_publisher.publish(node, "Warning", "TerminationGracePeriodExpiring", deadline.message(end))
        if not await self._drained(node, claim, end):
            return CHECK_INTERVAL_S
        if not await self._detached(node, claim, end):
            return CHECK_INTERVAL_S
        if not await self._terminated(node):
            return INSTANCE_CHECK_INTERVAL_S
        return await self._release(node)

    async def _delete_claim(self, claim: NodeClaim) -> None:
        try:
            await self._context.kube.delete(NODECLAIMS, claim.name, uid=claim.metadata.uid)
        except NotFound:
            return

    async def _is_gone(self, node: Node) -> bool:
        """Whether the cloud positively answers that the instance of a node that is not ready is gone."""
        try:
            await self._context.cloud.get(node.spec.provider_id)
        except InstanceNotFound:
            return True
        return False

    async def _drained(self, node: Node, claim: NodeClaim | None, end: datetime | None) -> bool:
        context = self._context
        if claim is not None and claim.is_true("Drained"):
            return True
        now = context.clock.now()
        todo = drain.decide(context.cluster_state.pods_on(node.metadata.name), now, end)
        reason = _reason(claim)
        await self._evictions.force(node, todo.force, reason)
        await self._evictions.evict(node, todo.evict, reason)
        conditions = self._conditions(claim)
        if conditions is None:
            return todo.done
        began = conditions.get("Drained") is not None
        since = (now - conditions.since("Drained")).total_seconds()
        if not todo.done or not began or 0 <= since < MIN_DRAIN_S:  # a date in the future was written by a wrong clock
            conditions.unknown("Drained", "Draining", "Draining")
            await self._write(claim, conditions)
            if todo.protected and not todo.evict:
                names = ", ".join(pod.metadata.key for pod in todo.protected[:5])
                context.event_publisher.publish(
                    node, "Warning", "FailedDraining", f"Failed to drain node, pods that must not be disrupted: {names}"
                )
            return False
        conditions.true("Drained")
        await self._write(claim, conditions)
        context.metrics.nodes_drained.labels(node.metadata.labels.get(wellknown.NODEPOOL, "")).inc()
        return True

    async def _detached(self, node: Node, claim: NodeClaim | None, end: datetime | None) -> bool:
        context = self._context
        if claim is not None and claim.is_true("VolumesDetached"):
            return True
        watch = context.cluster_state.attachments
        if watch.failure is not None and not isinstance(watch.failure, Forbidden | NotFound):
            return False  # what is attached now is not known
        claims = {
            volume_claim.metadata.key: volume_claim for volume_claim in context.cluster_state.volume_claims.store.all()
        }
        name = node.metadata.name
        waiting = blocking(name, watch.store.by(ON_NODE, name), context.cluster_state.pods_on(name), claims)
        conditions = self._conditions(claim)
        expired = end is not None and context.clock.now() > end
        if conditions is not None:
            if not waiting:
                conditions.true("VolumesDetached")
            elif expired:
                conditions.false("VolumesDetached", "TerminationGracePeriodElapsed", "TerminationGracePeriodElapsed")
            else:
                conditions.unknown("VolumesDetached", "AwaitingVolumeDetachment", "AwaitingVolumeDetachment")
            await self._write(claim, conditions)
        if waiting and not expired:
            context.event_publisher.publish(
                node,
                "Normal",
                "AwaitingVolumeDetachment",
                f"Awaiting deletion of bound volumeattachments ({', '.join(sorted(waiting))})",
            )
            return False
        return True

    async def _terminated(self, node: Node) -> bool:
        if not node.spec.provider_id:
            return True
        try:
            with self._context.safety.cloud("terminate instances"):
                await self._context.cloud.terminate(node.spec.provider_id)
        except InstanceNotFound:
            return True
        return False

    async def _release(self, node: Node) -> Again:
        """Remove the finalizer. Read afresh: an older copy must not put back the finalizer of another controller."""
        context = self._context
        try:
            fresh = await context.kube.get(NODES, node.metadata.name, type=Node)
            left = [finalizer for finalizer in fresh.metadata.finalizers if finalizer != wellknown.FINALIZER]
            body = {"metadata": {"resourceVersion": fresh.metadata.resource_version, "finalizers": left}}
            await context.kube.patch(NODES, node.metadata.name, body)
        except NotFound:
            return None
        meta = node.metadata
        pool, zone = meta.labels.get(wellknown.NODEPOOL, ""), meta.labels.get(wellknown.ZONE, "")
        context.log.info("deleted node", controller="node.termination", Node=logs.ref(meta.name))
        now = context.clock.now()
        context.metrics.nodes_terminated.labels(pool, zone).inc()
        if meta.deletion_timestamp is not None:
            context.metrics.node_termination.observe((now - meta.deletion_timestamp).total_seconds(), pool)
        if meta.creation_timestamp is not None:
            context.metrics.node_lifetime.labels(pool).observe((now - meta.creation_timestamp).total_seconds())
        return None

    def _conditions(self, claim: NodeClaim | None) -> Conditions | None:
        if claim is None:
            return None
        fresh = self._context.cluster_state.claims.store.get(claim.name) or claim
        return of_claim(fresh, self._context.clock.now())

    async def _write(self, claim: NodeClaim | None, conditions: Conditions) -> None:
        if claim is None or not conditions.changed:
            return
        fresh = self._context.cluster_state.claims.store.get(claim.name) or claim
        body = status_patch(fresh.metadata.resource_version, conditions)
        try:
            written = await self._context.kube.patch(NODECLAIMS, claim.name, body, subresource="status", type=NodeClaim)
        except NotFound:
            return
        self._context.cluster_state.assume(written)


def _reason(claim: NodeClaim | None) -> str:
    condition = claim.condition("DisruptionReason") if claim else None
    return condition.reason if condition is not None and condition.status == "True" else "Forceful Termination"
