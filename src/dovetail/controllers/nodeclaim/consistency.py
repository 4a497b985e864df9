"""NodeClaim consistency: a node with far less capacity than its instance type is reported."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail.controllers.conditions import of_claim, status_patch
from dovetail.controllers.context import Context
from dovetail.controllers.worker import every, reconcile_ids
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.nodes import Node
from dovetail.model.quantity import quantity, resources

PERIOD = 600.0
#: Less than this share of the expected capacity is too little.
SHARE = 0.9


class Consistency:
    """The controller `nodeclaim.consistency`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = reconcile_ids(context.chance, "nodeclaim.consistency")
        #: Consistent NodeClaims, with the objects that were compared: while those are the same, so is the result.
        self._sound: dict[str, tuple[NodeClaim, Node]] = {}

    async def run(self) -> None:
        await every(PERIOD, self.check, "nodeclaim.consistency", self._context.log, self._ids)

    async def check(self) -> None:
        before, self._sound = self._sound, {}
        for claim in tuple(self._context.cluster_state.claims.store.all()):
            node = self._context.cluster_state.node_for(claim)
            if node is None or claim.metadata.deletion_timestamp or not claim.is_true("Initialized"):
                continue
            checked = before.get(claim.name)
            if checked is None or checked[0] is not claim or checked[1] is not node:
                problems = tuple(issues(node, claim))
                if problems or not claim.is_true("ConsistentStateFound"):
                    await self._report(claim, problems)
                    continue
            self._sound[claim.name] = (claim, node)

    async def _report(self, claim: NodeClaim, problems: tuple[str, ...]) -> None:
        context, meta = self._context, claim.metadata
        conditions = of_claim(claim, context.clock.now())
        for issue in problems:
            context.event_publisher.failed_consistency(claim, issue)
            context.log.error("consistency error", controller="nodeclaim.consistency", name=claim.name, error=issue)
        if problems:
            conditions.false("ConsistentStateFound", "ConsistencyCheckFailed", "Consistency Check Failed")
        else:
            conditions.true("ConsistentStateFound")
        if conditions.changed:
            body = status_patch(meta.resource_version, conditions)
            try:
                await context.kube.patch(NODECLAIMS, claim.name, body, subresource="status")
            except (Conflict, NotFound):
                return  # another write came first; the next check follows


def issues(node: Node, claim: NodeClaim) -> Iterator[str]:
    """Resources that the node has too little of."""
    expected, actual = resources(claim.status.capacity), resources(node.status.capacity)
    for name, requested in resources(claim.spec.resources.requests).items():
        expected_amount = expected.get(name, 0)
        if requested and expected_amount and actual.get(name, 0) < SHARE * expected_amount:
            share = 100.0 * actual.get(name, 0) / expected_amount
            yield (
                f"expected {quantity(name, expected_amount)} of resource {name}, but found "
                f"{quantity(name, actual.get(name, 0))} ({share:.1f}% of expected)"
            )
