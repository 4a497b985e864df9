"""The legacy repair: an unhealthy node is deleted at once, without a replacement first and beside all budgets.

`--legacy-node-repair` puts it in the place of the repair that is a method of disruption.
When more than a fifth of a NodePool is unhealthy (of the cluster, for nodes without one), nothing is deleted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from dovetail.cloud.provider import RepairAction, RepairPolicy
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.metrics.definitions import snake
from dovetail.controllers.node.termination import deadline
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition
from dovetail.model.nodes import Node

PERIOD_S = 10.0
UNHEALTHY_SHARE = 0.2


class LegacyRepair:
    """The controller `node.health`; does nothing unless it is enabled and the gate NodeRepair is open."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "node.health")
        self._policies = [
            (re.compile(repair_policy.reason_regex), repair_policy)
            for repair_policy in context.cloud.repair_policies()
            if repair_policy.action is RepairAction.REPLACE
        ]

    async def run(self) -> None:
        settings = self._context.settings
        if settings.gate("NodeRepair") and settings.legacy_node_repair:
            await every(PERIOD_S, self.check, "node.health", self._context.log, self._ids)

    async def check(self) -> None:
        now = self._context.clock.now()
        for claim in tuple(self._context.cluster_state.claims.store.all()):
            node = self._context.cluster_state.node_for(claim)
            if node is None or claim.metadata.deletion_timestamp is not None:
                continue
            due, problem = min(self._problems(node, now), key=lambda problem: problem[0], default=(None, None))
            if due is None or problem is None or due > now:
                continue
            if self._many(claim.node_pool):
                where = "in the nodepool" if claim.node_pool else "in the cluster"
                text = f"more than {UNHEALTHY_SHARE:.0%} nodes are unhealthy {where}"
                self._context.event_publisher.publish(node, "Warning", "NodeRepairBlocked", text, dedupe=900.0)
                continue
            await self._delete(node, claim, problem)

    def _problems(self, node: Node, now: datetime) -> Iterator[tuple[datetime, Condition]]:
        """Unhealthy conditions of a node, and when each is due for repair."""
        for pattern, policy in self._policies:
            for condition in node.status.conditions:
                if _names(policy, condition) and pattern.search(condition.reason):
                    since = condition.last_transition_time or now
                    yield since + timedelta(seconds=policy.toleration_seconds), condition

    def _many(self, pool: str | None) -> bool:
        nodes = [
            node
            for node in self._context.cluster_state.nodes.store.all()
            if pool is None or node.metadata.labels.get(wellknown.NODEPOOL) == pool
        ]
        now = self._context.clock.now()
        unhealthy = sum(any(True for _ in self._problems(node, now)) for node in nodes)
        return unhealthy > math.ceil(UNHEALTHY_SHARE * len(nodes))

    async def _delete(self, node: Node, claim: NodeClaim, problem: Condition) -> None:
        """Delete at once: the pods of an unhealthy node cannot be evicted gracefully."""
        context = self._context
        await deadline.force_now(context, claim, "unhealthy")
        context.metrics.claims_unhealthy_disrupted.labels(
            snake(problem.type),
            claim.node_pool or "",
            claim.metadata.labels.get(wellknown.CAPACITY_TYPE, ""),
            claim.status.image_id,
            "forceful",
        ).inc()
        context.log.info(
            "deleting unhealthy node",
            controller="node.health",
            Node=logs.ref(node.metadata.name),
            NodeClaim=logs.ref(claim.name),
            condition=problem.type,
            status=problem.status,
        )


def _names(policy: RepairPolicy, condition: Condition) -> bool:
    return (policy.condition_type, policy.condition_status) == (condition.type, condition.status)
