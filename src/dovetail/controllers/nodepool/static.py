"""Static NodePools: a fixed number of nodes, whatever the pods do. The gate StaticCapacity enables them.

Missing NodeClaims are created within limits.nodes; surplus ones are deleted: unlaunched first, then empty, then those
whose pods are cheapest to move and that would soon expire anyway, with protected pods last.
"""

from __future__ import annotations

import sys

from dovetail.cluster import nodepools
from dovetail.cluster.state import ClusterState
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption import consolidation, expiration
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.node.termination import do_not_disrupt
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.provisioning import nodeclaim_template
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.language import source
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.quantity import resources

PERIOD_S = 10.0


class StaticCapacity:
    """The controllers `static.provisioning` and `static.deprovisioning`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "static.provisioning")

    async def run(self) -> None:
        if self._context.settings.gate("StaticCapacity"):
            await every(PERIOD_S, self.check, "static.provisioning", self._context.log, self._ids)

    async def check(self) -> None:
        await self._context.nodeclaim_creator.complete()
        for pool in tuple(self._context.cluster_state.pools.store.all()):
            if pool.static and pool.metadata.deletion_timestamp is None and pool.spec.replicas is not None:
                await self._scale(pool, pool.spec.replicas)

    async def _scale(self, pool: NodePool, replicas: int) -> None:
        cluster_state = self._context.cluster_state
        standing = [
            c
            for c in cluster_state.claims_of(pool.name)
            if not cluster_state.is_terminating(c, cluster_state.node_for(c))
        ]
        if any(c.is_true("DisruptionReason") and not c.is_true("Rebooting") for c in standing):
            return  # a command is just beginning: its node will be deleted, and its replacement is being created
        if len(standing) > replicas:
            for claim in sorted(standing, key=self._deletion_order)[: len(standing) - replicas]:
                await delete(self._context, claim, "static_scale_down")
        elif nodepools.ready(pool):
            await self._fill(pool, min(replicas - len(standing), remaining_nodes(cluster_state, pool)))

    async def _fill(self, pool: NodePool, missing: int) -> None:
        """Create the missing NodeClaims, as one decision."""
        if missing < 1:
            return
        decision_history, made = self._context.decision_history, list[str]()
        decision = decision_history.new_id()
        try:
            for _ in range(missing):
                made.append(await self._create(pool, decision))
        finally:
            if made:
                decision_history.record(
                    Decision(
                        id=decision,
                        kind="provision",
                        time=decision_history.now(),
                        view_age=self._context.cluster_state.age(),
                        summary=source("{count} node(s) for nodepool {pool} with replicas {replicas}").format(
                            count=len(made), pool=pool.name, replicas=pool.spec.replicas
                        ),
                        about=(*made, pool.name),
                    )
                )

    async def _create(self, pool: NodePool, decision: str) -> str:
        claim = await self._context.nodeclaim_creator.create(nodeclaim_template.static(pool, decision))
        self._context.log.info(
            "created nodeclaim",
            controller="static.provisioning",
            NodePool=logs.ref(pool.name),
            NodeClaim=logs.ref(claim.name),
            decision=decision,
        )
        self._context.metrics.claims_created.labels("provisioned", pool.name, "false").inc()
        return claim.name

    def _deletion_order(self, claim: NodeClaim) -> tuple[int, float, str]:
        """The order of deletion: the lowest first."""
        node = self._context.cluster_state.node_for(claim)
        if node is None:
            return 0, 0.0, claim.name
        pods = self._context.cluster_state.pods_on(node.metadata.name)
        now = self._context.clock.now()
        own = [pod for pod in pods if not any(o.kind == "DaemonSet" for o in pod.metadata.owner_references)]
        cost = consolidation.node_disruption_cost(own) * expiration.remaining(claim, now)
        if any(do_not_disrupt.of(pod).holds(now) for pod in pods):
            return 3, cost, claim.name
        return (2, cost, claim.name) if own else (1, 0.0, claim.name)


def remaining_nodes(cluster_state: ClusterState, pool: NodePool) -> int:
    """How many more nodes a NodePool's limits.nodes allow, terminating ones counted."""
    limit = resources(pool.spec.limits).get("nodes")
    return sys.maxsize if limit is None else limit - len(cluster_state.claims_of(pool.name))
