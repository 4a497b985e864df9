"""An end with a date that is now: for machines whose pods cannot be asked nicely any more."""

from __future__ import annotations

from dovetail.cluster import keys
from dovetail.controllers.conditions import stamp
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.launch import delete
from dovetail.kube.resources import NODECLAIMS
from dovetail.model.kinds.nodeclaim import NodeClaim


async def at_once(context: Context, claim: NodeClaim, reason: str) -> None:
    """Delete a claim; its drain forces everybody. NotFound goes to the caller."""
    body = {"metadata": {"annotations": {keys.TERMINATION_TIMESTAMP: stamp(context.clock.now())}}}
    await context.kube.patch(NODECLAIMS, claim.name, body)
    await delete(context, claim, reason)
