"""The termination deadline of a NodeClaim, written where its drain reads it.

A deadline is tightened, never extended: events have already published it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from dovetail.controllers.conditions import instant
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.kube.resources import NODECLAIMS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.meta import stamp


def of(claim: NodeClaim | None) -> datetime | None:
    """When all pods must be gone, if the NodeClaim has a readable deadline."""
    text = claim.metadata.annotations.get(wellknown.TERMINATION_TIMESTAMP) if claim else None
    return instant(text) if text is not None else None


def message(end: datetime) -> str:
    """The event message of a deadline."""
    return f"All pods will be deleted by {stamp(end)}"


async def tighten(context: Context, claim: NodeClaim, grace: float) -> None:
    """The end comes within `grace` seconds, unless it was to come sooner. NotFound and Conflict go to the caller."""
    end, current = context.clock.now() + timedelta(seconds=grace), of(claim)
    if current is not None and current <= end:
        return
    meta = {
        "resourceVersion": claim.metadata.resource_version,
        "annotations": {wellknown.TERMINATION_TIMESTAMP: stamp(end)},
    }
    context.cluster_state.assume(await context.kube.patch(NODECLAIMS, claim.name, {"metadata": meta}, type=NodeClaim))


async def force_now(context: Context, claim: NodeClaim, reason: str) -> str:
    """Delete a NodeClaim and return the decision's id; its drain forces all pods. NotFound goes to the caller."""
    body = {"metadata": {"annotations": {wellknown.TERMINATION_TIMESTAMP: stamp(context.clock.now())}}}
    await context.kube.patch(NODECLAIMS, claim.name, body)
    return await delete(context, claim, reason)
