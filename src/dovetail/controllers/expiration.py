"""Expiration: a machine's last day. Its replacement comes first, but not for ever.

At its date a machine is handed to the disruption queue, which buys room for its pods and then lets it go.
Expiry is a promise, not a wish: if the room cannot be had within a while the machine goes all the same.
The budgets do not hold it back, as in Karpenter.
"""

from __future__ import annotations

from datetime import timedelta

from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.nodeclaim.launch import delete
from dovetail.controllers.worker import Again, Worker
from dovetail.kube.reflector import Change
from dovetail.kube.resources import NODECLAIMS
from dovetail.model import duration
from dovetail.model.kinds.nodeclaim import NodeClaim

NEVER = "Never"


def expires_in(claim: NodeClaim, now_after_creation: timedelta) -> timedelta | None:
    """How long a claim still has; None if it never expires."""
    text = claim.spec.expire_after
    if text is None or text == NEVER:
        return None
    return duration.parse(text) - now_after_creation


class Expiration:
    """The controller `nodeclaim.expiration`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._worker = Worker("nodeclaim.expiration", self._reconcile, context.log, context.chance)
        context.mirror.listen(NODECLAIMS, self._changed)

    async def run(self) -> None:
        for claim in self._context.mirror.claims.store.all():
            self._worker.add(claim.name)
        await self._worker.run()

    def _changed(self, change: Change[NodeClaim]) -> None:
        if change.old is None and change.new is not None:
            self._worker.add(change.new.name)

    async def _reconcile(self, name: str) -> Again:
        context = self._context
        claim = context.mirror.claims.store.get(name)
        if claim is None or claim.metadata.deletion_timestamp is not None or claim.metadata.creation_timestamp is None:
            return None
        left = expires_in(claim, context.clock.now() - claim.metadata.creation_timestamp)
        if left is None:
            return None
        if left > timedelta(0):
            return left.total_seconds()
        context.log.info(
            "deleting expired nodeclaim", controller="nodeclaim.expiration", NodeClaim=logs.ref(name),
            **{"expire-after": claim.spec.expire_after},
        )  # fmt: skip
        await delete(context, claim, "expired")
        return None
