"""The observer: how well we see and how well things stand, told to safety, metrics and the ledger's store."""

from __future__ import annotations

from dovetail.controllers.context import Context
from dovetail.controllers.safety import Cause
from dovetail.controllers.worker import every
from dovetail.kube.errors import Forbidden, Unauthorized

PERIOD = 5.0
FORGET = 3600.0


class Observer:
    """Looks every few seconds, and saves what was decided since."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._forgot = context.clock.monotonic()

    async def run(self) -> None:
        await every(PERIOD, self.look, "observer", self._context.log)

    async def look(self) -> None:
        context = self._context
        mirror, metrics = context.mirror, context.metrics
        age, failures = mirror.age(), mirror.failures()
        context.safety.view(age, ", ".join(failures.values()))
        metrics.view_age.set(age)
        metrics.synced.set(int(mirror.synced.is_set()))
        metrics.node_count.set(len(mirror.nodes.store))
        self._health()
        try:
            await context.ledger.save()
            context.safety.set(Cause.NOT_AUTHORISED, None)
        except (Unauthorized, Forbidden) as problem:
            context.safety.set(Cause.NOT_AUTHORISED, problem.message)
        if context.clock.monotonic() - self._forgot > FORGET:
            self._forgot = context.clock.monotonic()
            await context.ledger.forget()

    def _health(self) -> None:
        mirror = self._context.mirror
        total = unhealthy = 0
        for claim in mirror.claims.store.all():
            if claim.is_true("Initialized") and claim.metadata.deletion_timestamp is None:
                total += 1
                node = mirror.node_for(claim)
                unhealthy += node is None or not node.ready
        self._context.safety.health(unhealthy, total)
