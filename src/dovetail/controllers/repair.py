"""Repair: a machine that has been unhealthy for too long is replaced, unless too many are at once.

When a fifth of a pool is unhealthy the cause is not the machines, and replacing them would make it worse.
"""

from __future__ import annotations

import math
from datetime import timedelta

from dovetail.cluster import keys
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.launch import termination_mode
from dovetail.controllers.termination import deadline
from dovetail.controllers.worker import every
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import Condition
from dovetail.model.nodes import Node

PERIOD = 10.0
UNHEALTHY_SHARE = 0.2
DO_NOT_REPAIR = "karpenter.sh/do-not-repair"


class Repair:
    """The controller `node.health`; does nothing unless the gate NodeRepair is open."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        if self._context.settings.gate("NodeRepair"):
            await every(PERIOD, self.look, "node.health", self._context.log)

    async def look(self) -> None:
        context = self._context
        sick: list[tuple[Node, NodeClaim, Condition]] = []
        ill: dict[str, int] = {}
        total: dict[str, int] = {}
        for claim in tuple(context.mirror.claims.store.all()):
            node = context.mirror.node_for(claim)
            if node is None:
                continue
            pool = claim.node_pool or ""
            total[pool] = total.get(pool, 0) + 1
            found = self._unhealthy(node)
            if found is not None:
                ill[pool] = ill.get(pool, 0) + 1
                if found[1] and claim.metadata.deletion_timestamp is None:
                    sick.append((node, claim, found[0]))
        for node, claim, problem in sick:
            pool = claim.node_pool or ""
            if node.metadata.annotations.get(DO_NOT_REPAIR) == "true":
                text = f'Cannot disrupt NodeClaim: repair is blocked through the "{DO_NOT_REPAIR}" annotation'
                context.notices.publish(claim, "Normal", "DisruptionBlocked", text)
                continue
            if ill[pool] > math.ceil(UNHEALTHY_SHARE * total[pool]):
                self._hold(node, claim)
                continue
            await self._replace(node, claim, problem)

    def _hold(self, node: Node, claim: NodeClaim) -> None:
        """Say on everything that is concerned that too many are ill at once."""
        context = self._context
        pool = context.mirror.pools.store.get(claim.node_pool or "")
        text = f'more than {UNHEALTHY_SHARE:.0%} of nodes in nodepool "{claim.node_pool}" are unhealthy'
        for subject in (node, claim, pool):
            if subject is not None:
                context.notices.publish(subject, "Warning", "NodeRepairBlocked", text, dedupe=900.0)

    def _unhealthy(self, node: Node) -> tuple[Condition, bool] | None:
        """The condition that makes a node unhealthy, and whether it has lasted long enough to act."""
        now = self._context.clock.now()
        for policy in self._context.cloud.repair_policies():
            for each in node.status.conditions:
                if each.type == policy.condition_type and each.status == policy.condition_status:
                    since = each.last_transition_time or now
                    return each, now - since >= timedelta(seconds=policy.toleration_seconds)
        return None

    async def _replace(self, node: Node, claim: NodeClaim, problem: Condition) -> None:
        """Its pods cannot be asked nicely: the end is now."""
        context = self._context
        await deadline.at_once(context, claim, "unhealthy")
        context.metrics.claims_unhealthy_disrupted.labels(
            problem.type, claim.node_pool or "", claim.metadata.labels.get(keys.CAPACITY_TYPE, ""),
            claim.status.image_id, termination_mode(claim),
        ).inc()  # fmt: skip
        context.log.info(
            "deleting unhealthy node", controller="node.health", Node=logs.ref(node.metadata.name),
            NodeClaim=logs.ref(claim.name), condition=problem.type, status=problem.status,
        )  # fmt: skip
