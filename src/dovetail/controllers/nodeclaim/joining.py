"""Machines that run and do not join: the cause is looked for, and said, long before the claim is given up."""

from __future__ import annotations

from datetime import timedelta

from dovetail.cloud.aws.awsauth import refusal
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.worker import every
from dovetail.kube.errors import NotFound
from dovetail.kube.resources import CONFIGMAPS
from dovetail.model.kinds.nodeclaim import NodeClaim

PERIOD = 30.0
#: A machine that has not joined after this long makes us curious.
LATE = timedelta(seconds=90)


class Joining:
    """The controller `nodeclaim.joining`."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def run(self) -> None:
        await every(PERIOD, self.look, "nodeclaim.joining", self._context.log)

    async def look(self) -> None:
        now = self._context.clock.now()
        for claim in tuple(self._context.mirror.claims.store.all()):
            launched = claim.condition("Launched")
            if claim.metadata.deletion_timestamp is not None or claim.is_true("Registered"):
                continue
            if launched is None or launched.status != "True" or launched.last_transition_time is None:
                continue
            if now - launched.last_transition_time >= LATE:
                await self._wonder(claim)

    async def _wonder(self, claim: NodeClaim) -> None:
        context = self._context
        node_class = context.mirror.node_classes.store.get(claim.spec.node_class_ref.name)
        role = await context.cloud.node_role(node_class) if node_class else None
        if role is None:
            return
        try:
            found = await context.kube.get(CONFIGMAPS, "aws-auth", "kube-system")
        except NotFound:
            found = {}
        why = refusal(role.arn, found.get("data"), role.admitted)
        if why is None:
            return
        message = f"Machine runs and has not joined the cluster: {why}"
        if context.notices.publish(claim, "Warning", "NodeNotJoined", message):
            context.log.error(
                "machine has not joined", controller="nodeclaim.joining", NodeClaim=logs.ref(claim.name), error=why
            )
