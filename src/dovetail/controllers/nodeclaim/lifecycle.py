"""The lifecycle of a NodeClaim: launch, registration, binding of its pods, initialization.

Every step reads the current state and does the next thing; none remembers. It may be killed after any write
and continues from what it finds. A step that takes too long deletes the NodeClaim, and its pods are planned anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dovetail.cloud.provider import Instance
from dovetail.cluster.nominations import NominationTarget
from dovetail.controllers import logs
from dovetail.controllers.conditions import TRUE, UNKNOWN, Conditions, of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.discovered_capacity import undeclared_requests
from dovetail.controllers.nodeclaim import daemon_pods, initialization, registration
from dovetail.controllers.nodeclaim.binding import Binding
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.nodeclaim.launch import InstanceLauncher
from dovetail.controllers.nodeclaim.termination import finalize
from dovetail.controllers.rights import BIND_PODS
from dovetail.controllers.settings import BindingMode
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.errors import NotFound
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODES
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.labels import PLACEMENT_PARTITION
from dovetail.model.nodes import Node
from dovetail.model.quantity import format_resources, resources
from dovetail.model.taints import NO_SCHEDULE, PREFER_NO_SCHEDULE

#: How long, in seconds, a launch waits for the other NodeClaims of its batch to be written: they matter more than
#: the many small writes that follow a launch.
BATCH_WRITE_TIMEOUT_S = 1.0
#: How long, in seconds, until the cloud is asked again for the placement of an instance.
PARTITION_POLL_INTERVAL_S = 5.0


class Lifecycle:
    """The controller `nodeclaim.lifecycle`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._launcher = InstanceLauncher(context)
        #: When this process saw a NodeClaim appear, and when it launched it: monotonic time, which does not jump.
        self._seen: dict[tuple[str, str], float] = {}
        self._worker = Worker(
            "nodeclaim.lifecycle",
            self.reconcile,
            context.log,
            context.chance,
            workers=100,
            resource=NODECLAIMS,
            metrics=context.metrics,
        )
        self._binding = Binding(context, requeue=self._worker.add)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODES, self._node_changed)

    async def run(self) -> None:
        for claim in self._context.cluster_state.claims.store.all():
            node = self._context.cluster_state.node_for(claim)
            if node is not None:
                self._observe_capacity(node, claim)
            self._worker.add(claim.name)
        await self._worker.run()

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        uid = change.object.metadata.uid
        if change.new is None:
            self._launcher.forget(uid)
            self._seen.pop((uid, "Launched"), None)
            self._seen.pop((uid, "Registered"), None)
            return
        if change.old is None:
            self._seen[uid, "Launched"] = self._context.clock.monotonic()
        self._worker.add(change.key)

    def _node_changed(self, change: CacheChange[Node]) -> None:
        claim = self._context.cluster_state.claim_for(change.object)
        if claim is not None:
            self._observe_capacity(change.object, claim)
            self._worker.add(claim.name)

    def _observe_capacity(self, node: Node, claim: NodeClaim) -> None:
        """Observe the capacity of a node and the requests of its undeclared pods, as long as it is new."""
        cluster_state = self._context.cluster_state
        fresh = wellknown.INITIALIZED not in node.metadata.labels
        undeclared = (
            undeclared_requests(cluster_state.pods_on(node.metadata.name), cluster_state.daemonsets.store.all())
            if fresh
            else None
        )
        self._context.instance_types.discovered.observe(node, claim, undeclared)

    async def reconcile(self, name: str) -> Again:
        context = self._context
        claim = context.cluster_state.claims.store.get(name)
        if claim is None:
            return None
        if claim.metadata.deletion_timestamp is not None:
            return await finalize(context, claim)
        if wellknown.FINALIZER not in claim.metadata.finalizers:
            claim = await self._with_finalizer(claim)
        conditions = of_claim(claim, context.clock.now())
        before = {step: conditions.status(step) for step in ("Registered", "Initialized")}
        fields: dict[str, Any] = {}
        again: Again = None
        instance = await self._launch(claim, conditions, fields)
        if conditions.status("Launched") == TRUE:
            await self._register(claim, instance, conditions, fields)
            again = await self._bind(claim, conditions)
            await self._initialize(claim, conditions)
        if await self._write(claim, conditions, fields):
            reached = [step for step, status in before.items() if status != TRUE and conditions.status(step) == TRUE]
            self._log_reached(claim, reached)
        deadline = await self._liveness(claim, conditions)
        return min((pause for pause in (again, deadline) if pause is not None), default=None)

    # -- the steps

    async def _launch(self, claim: NodeClaim, conditions: Conditions, fields: dict[str, Any]) -> Instance | None:
        if conditions.status("Launched") == TRUE:
            self._launcher.forget(claim.metadata.uid)
            return None
        with suppress(TimeoutError):
            async with asyncio.timeout(BATCH_WRITE_TIMEOUT_S):
                await self._context.written.wait()
        instance = await self._launcher.launch(claim, conditions)
        if instance is None:
            return None
        await self._label(claim, instance)
        fields.update(
            providerID=instance.provider_id,
            imageID=instance.image_id,
            capacity=format_resources(instance.capacity),
            allocatable=format_resources(instance.allocatable),
        )
        conditions.true("Launched")
        self._seen[claim.metadata.uid, "Registered"] = self._context.clock.monotonic()
        return instance

    async def _register(
        self, claim: NodeClaim, instance: Instance | None, conditions: Conditions, fields: dict[str, Any]
    ) -> None:
        if conditions.status("Registered") != UNKNOWN:
            return
        nodes = self._context.cluster_state.nodes_for(claim) if instance is None else []
        if len(nodes) > 1:
            conditions.false("Registered", "MultipleNodesFound", "Invariant violated, matched multiple nodes")
            return
        if not nodes:
            conditions.unknown("Registered", "NodeNotFound", "Node not registered with cluster")
            return
        try:
            node = await self._context.kube.get(NODES, nodes[0].metadata.name, type=Node)
        except NotFound:
            conditions.unknown("Registered", "NodeNotFound", "Node not registered with cluster")
            return
        if claim.metadata.labels.get(PLACEMENT_PARTITION) == "":
            await self._label_partition(claim)
            return
        if node.metadata.labels.get(wellknown.REGISTERED) != "true":
            await self._sync(claim, node)
        conditions.true("Registered")
        fields["nodeName"] = node.metadata.name
        self._context.health.note(claim, True)
        self._context.safety.registration(True)

    async def _label_partition(self, claim: NodeClaim) -> None:
        """Write the partition that the cloud chose for an instance; the NodeClaim is reconciled again once it has one.

        Pods that are spread over the partitions of a placement group must not see a node without its partition label.
        """
        label = (await self._context.cloud.get(claim.status.provider_id)).labels.get(PLACEMENT_PARTITION)
        if not label:
            self._worker.add(claim.name, PARTITION_POLL_INTERVAL_S)
            return
        body = {"metadata": {"labels": {PLACEMENT_PARTITION: label}}}
        await self._context.kube.patch(NODECLAIMS, claim.name, body)

    async def _sync(self, claim: NodeClaim, node: Node) -> None:
        context = self._context
        if registration.taint_missing(node):
            context.event_publisher.unregistered_taint_missing(claim, wellknown.UNREGISTERED_TAINT.key)
            context.log.error(
                "node claim registration error",
                controller="nodeclaim.lifecycle",
                NodeClaim=logs.ref(claim.name),
                taint=wellknown.UNREGISTERED_TAINT.key,
                error="missing taint prevents registration-related race conditions on Karpenter-managed nodes",
            )
        place = (
            context.settings.place is BindingMode.BIND
            and not context.rights.is_denied(BIND_PODS)
            and any(context.cluster_state.nominations.on(_target(claim)))
        )
        daemons = any(daemon_pods.expected(node, context.cluster_state.daemonsets.store.all()))
        effect = PREFER_NO_SCHEDULE if daemons else NO_SCHEDULE
        placing = wellknown.placing_taint(context.clock.now(), effect) if place else None
        await context.kube.patch(NODES, node.metadata.name, registration.patch(node, claim, placing=placing))

    async def _bind(self, claim: NodeClaim, conditions: Conditions) -> Again:
        """Bind the planned pods to the registered node, which is closed to others until then."""
        node = self._context.cluster_state.node_for(claim)
        if node is None or conditions.status("Registered") != TRUE:
            return None
        return await self._binding.bind(claim, node)

    async def _initialize(self, claim: NodeClaim, conditions: Conditions) -> None:
        if conditions.status("Initialized") != UNKNOWN or conditions.status("Registered") != TRUE:
            return
        rebooting = conditions.get("Rebooting")
        if rebooting is not None and rebooting.status == TRUE:
            return
        node = self._context.cluster_state.node_for(claim)
        missing = initialization.missing(node, claim)
        if missing is not None:
            conditions.unknown("Initialized", missing.reason, missing.message)
            return
        assert node is not None
        if initialization.placing(node) or node.metadata.labels.get(wellknown.REGISTERED) != "true":
            return
        if node.metadata.labels.get(wellknown.INITIALIZED) != "true":
            body = {"metadata": {"labels": {wellknown.INITIALIZED: "true"}}}
            await self._context.kube.patch(NODES, node.metadata.name, body)
        conditions.true("Initialized")

    async def _liveness(self, claim: NodeClaim, conditions: Conditions) -> Again:
        """Seconds until this NodeClaim times out; it is deleted then."""
        if conditions.status("Registered") == TRUE:
            return None
        context, settings = self._context, self._context.settings
        launched = conditions.status("Launched") == TRUE
        step = "Registered" if launched else "Launched"
        limit = settings.registration_timeout if launched else settings.launch_timeout
        left = limit - self._waited(claim, conditions, step)
        if left > 0:
            return min(left, self._launcher.pause(claim.metadata.uid) or left)
        context.health.note(claim, False, conditions.get("Launched"))
        if launched:
            context.safety.registration(False, f"nodeclaim {claim.name} of nodepool {claim.node_pool}")
        reason = "registration_timeout" if launched else "launch_timeout"
        decision = await delete(context, claim, reason)
        context.log.info(
            "terminating due to timeout",
            controller="nodeclaim.lifecycle",
            NodeClaim=logs.ref(claim.name),
            timeout=limit,
            reason=reason,
            decision=decision,
        )
        return None

    def _waited(self, claim: NodeClaim, conditions: Conditions, step: str) -> float:
        """Seconds since a step was due. The wall clock counts only for what a previous process has begun.

        A wall clock behind the written time shows a step in the future; that is no reason to wait longer.
        """
        since = self._seen.get((claim.metadata.uid, step))
        if since is not None:
            return self._context.clock.monotonic() - since
        return max(0.0, (self._context.clock.now() - conditions.since(step)).total_seconds())

    # -- writes

    async def _with_finalizer(self, claim: NodeClaim) -> NodeClaim:
        """No launch without the finalizer: else a delete could leave the instance behind."""
        finalizers = [*claim.metadata.finalizers, wellknown.FINALIZER]
        body = {"metadata": {"resourceVersion": claim.metadata.resource_version, "finalizers": finalizers}}
        fresh = await self._context.kube.patch(NODECLAIMS, claim.name, body, type=NodeClaim)
        self._context.cluster_state.assume(fresh)
        return fresh

    async def _label(self, claim: NodeClaim, instance: Instance) -> None:
        """Write the cloud's labels and annotations on the NodeClaim; labels that it already has stay."""
        labels = {k: v for k, v in instance.labels.items() if k not in claim.metadata.labels}
        annotations = {k: v for k, v in instance.annotations.items() if claim.metadata.annotations.get(k) != v}
        if labels or annotations:
            body = {"metadata": {"labels": labels, "annotations": annotations}}
            await self._context.kube.patch(NODECLAIMS, claim.name, body)

    async def _write(self, claim: NodeClaim, conditions: Conditions, fields: dict[str, Any]) -> bool:
        """Write what changed; whether anything was written."""
        if not conditions.changed and not fields:
            return False
        version = claim.metadata.resource_version
        body = dict(status_patch(version, conditions, **fields))
        if "providerID" in fields:
            body["metadata"] = {}
        try:
            fresh = await self._context.kube.patch(NODECLAIMS, claim.name, body, subresource="status", type=NodeClaim)
        except NotFound:
            return False
        self._context.cluster_state.assume(fresh)
        return True

    def _log_reached(self, claim: NodeClaim, steps: Sequence[str]) -> None:
        """Log a reached step once the server has the condition: a refused write is repeated, its line must not be."""
        context = self._context
        node = context.cluster_state.node_for(claim)
        fields: dict[str, Any] = {"provider-id": claim.status.provider_id}
        if node is not None:
            fields["Node"] = logs.ref(node.metadata.name)
        for step in steps:
            if step == "Registered":
                context.log.info("registered nodeclaim", **fields)
                zone = claim.metadata.labels.get(wellknown.ZONE, "")
                context.metrics.nodes_created.labels(claim.node_pool or "", zone).inc()
            elif node is not None:
                allocatable = format_resources(resources(node.status.allocatable))
                context.log.info("initialized nodeclaim", **fields, allocatable=allocatable)


def _target(claim: NodeClaim) -> NominationTarget:
    return NominationTarget("claim", claim.name)
