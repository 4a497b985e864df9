"""Karpenter's provisioner: batches of pods that kube-scheduler refused, one run of its scheduler, NodeClaims.

A pod is planned for again in every batch until kube-scheduler has bound it. NodeClaims on their way count as empty
nodes, so a pod that was planned onto one finds it again; where kube-scheduler fills nodes in another way than planned,
the next batch launches once more.
"""

from __future__ import annotations

import asyncio

from dovetail.cluster import nodepools
from dovetail.controllers.context import Context
from dovetail.controllers.provisioning import nodeclaim_template, provisionable_pods
from dovetail.controllers.provisioning.batcher import Batcher
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.planner.plan import PlannedNode
from dovetail.studies.karpenter.nominations import NodeNominations
from dovetail.studies.karpenter.scheduling import Simulated

#: A pod that is still pending triggers a batch again after so long.
RETRIGGER_S = 10.0


class KarpenterProvisioner:
    """In the place of the controller `provisioner`."""

    def __init__(self, context: Context, nominations: NodeNominations) -> None:
        self._context = context
        self._nominations = nominations
        settings = context.settings
        self._batcher = Batcher(context.clock, settings.batch_idle_duration, settings.batch_max_duration)
        self._pending = asyncio.Event()
        context.cluster_state.listen(PODS, self._pod_changed)
        context.cluster_state.listen(NODES, self._node_changed)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retrigger(), name="provisioner retries")
            while True:
                await self._batcher.wait()
                await self._context.cluster_state.synced.wait()
                try:
                    await self.provision()
                except KubeError as problem:
                    self._context.log.error("Reconciler error", error=str(problem))

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is not None and provisionable_pods.provisionable(pod):
            self._pending.set()
            if change.old is None or not provisionable_pods.provisionable(change.old):
                self._batcher.trigger(pod.metadata.uid)

    def _node_changed(self, change: CacheChange[Node]) -> None:
        state, node = self._context.cluster_state, change.new
        if node is not None and state.is_terminating(state.claim_for(node), node):
            self._batcher.trigger(node.metadata.uid)

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            self._batcher.trigger(change.object.metadata.uid)

    def _pool_changed(self, change: CacheChange[NodePool]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or old.spec != new.spec or nodepools.ready(old) != nodepools.ready(new)):
            self._batcher.trigger(new.metadata.uid)

    async def _retrigger(self) -> None:
        while True:
            pods = [pod for pod in self._context.cluster_state.unbound() if provisionable_pods.provisionable(pod)]
            if not pods:
                self._pending.clear()
                await self._pending.wait()
            await asyncio.sleep(RETRIGGER_S)
            for pod in self._context.cluster_state.unbound():
                if provisionable_pods.provisionable(pod):
                    self._batcher.trigger(pod.metadata.uid)

    async def provision(self) -> None:
        """One run of the scheduler for all pending pods and those of deleting nodes."""
        context = self._context
        state, now = context.cluster_state, context.clock.now()
        waiting = [pod for pod in state.unbound() if provisionable_pods.provisionable(pod)]
        pods = [
            *(pod for pod in waiting if provisionable_pods.refusal(state, pod) is None),
            *provisionable_pods.evictable(state, now),
        ]
        if not pods:
            return
        simulated = Simulated(context.snapshot_builder.build(await context.instance_types.all(), pods))
        self._nominations.nominate(simulated.existing_nodes(), context.clock.monotonic())
        if not simulated.new_claims:
            return
        plan = simulated.plan()
        context.log.info(
            "computed new nodeclaim(s) to fit pod(s)",
            controller="provisioner",
            nodeclaims=len(plan.nodes),
            pods=sum(len(planned.pods) for planned in plan.nodes),
        )
        decision = context.decision_history.new_id()
        for planned in plan.nodes:
            await self._create(planned, decision)

    async def _create(self, planned: PlannedNode, decision: str) -> None:
        context = self._context
        pool = context.cluster_state.pools.store.get(planned.pool)
        if pool is None:
            return
        # The NodeClaim names no pods: kube-scheduler places them, wherever it likes.
        body = nodeclaim_template.manifest(planned, pool, decision, ())
        context.cluster_state.assume(await context.kube.create(NODECLAIMS, body, type=NodeClaim))
