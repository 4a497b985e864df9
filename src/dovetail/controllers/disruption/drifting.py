"""Replacing what has drifted: each machine by its own command, oldest drift first, as many as the budgets allow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.cluster.stages import DRIFTED, STAGE
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.allowances import Allowances
from dovetail.controllers.disruption.candidates import blocking, candidate, prices
from dovetail.controllers.disruption.commands import Candidate, Command, CommandQueue, Reason
from dovetail.controllers.disruption.staging import Refused, stage
from dovetail.planner.snapshot import Pool


class Drifting:
    """`waiting` says whether the last pass left somebody for the next one."""

    def __init__(self, context: Context, queue: CommandQueue) -> None:
        self._context = context
        self._queue = queue
        self.waiting = False

    async def once(self, pools: Sequence[Pool]) -> bool:
        """Whether anything was begun."""
        found = self._drifted(pools)
        self.waiting = False
        self._context.metrics.disruption_eligible.labels("drifted").set(len(found))
        if not found:
            return False
        allowed = Allowances.now(self._context, Reason.DRIFTED)
        acted = False
        for each in found:
            if not allowed.fits((each,)):
                self.waiting = True
            elif await self._replace(each, pools):
                allowed.take((each,))
                acted = True
        return acted

    def _drifted(self, pools: Sequence[Pool]) -> list[Candidate]:
        """Machines that have drifted and may go: those without pods first, then by the age of their drift.

        Pods do not hold a machine whose end has a date anyway.
        """
        context = self._context
        known, now = prices(pools), context.clock.now()
        found: list[tuple[bool, datetime, str, Candidate]] = []
        for claim in context.mirror.claims.store.by(STAGE, DRIFTED):
            marked = claim.condition("Drifted")
            if marked is None or marked.last_transition_time is None:
                continue
            node = context.mirror.node_for(claim)
            if node is not None and not blocking(context, node, claim, now, waive_pods=True):
                each = candidate(context, node, claim, known)
                found.append((bool(each.pods), marked.last_transition_time, each.node, each))
        return [each for *_, each in sorted(found, key=lambda one: one[:3])]

    async def _replace(self, each: Candidate, pools: Sequence[Pool]) -> bool:
        context = self._context
        staged = await stage(context, pools, each, terminate_first=context.settings.gate("TerminateFirstDrift"))
        if isinstance(staged, Refused):
            self.waiting |= not staged.why
            if staged.why:
                mirror = context.mirror
                node, claim = mirror.nodes.store.get(each.node), mirror.claims.store.get(each.claim)
                context.notices.blocked(node, claim, staged.why)
            return False
        claim = context.mirror.claims.store.get(each.claim)
        marked = claim.condition("Drifted") if claim is not None else None
        command = Command(
            id=context.ledger.new_id(), reason=Reason.DRIFTED, candidates=(each,),
            drift=marked.reason if marked is not None else "", terminate_first=staged.terminate_first,
        )  # fmt: skip
        begun = await self._queue.start(command, staged.plan, staged.copy)
        self.waiting |= not begun
        return begun
