"""Replacing what has drifted: each machine by its own command, oldest drift first, as many as the budgets allow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from dovetail.controllers.context import Context
from dovetail.controllers.disruption.allowances import Allowances
from dovetail.controllers.disruption.candidates import survey
from dovetail.controllers.disruption.commands import Candidate, Command, Reason
from dovetail.controllers.disruption.queue import Queue
from dovetail.controllers.disruption.staging import Refused, stage
from dovetail.planner.snapshot import Pool


class Drifting:
    """`waiting` says whether the last pass left somebody for the next one."""

    def __init__(self, context: Context, queue: Queue) -> None:
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
        allowed = Allowances(self._context, Reason.DRIFTED)
        acted = False
        for each in found:
            if not allowed.fits((each,)):
                self.waiting = True
            elif await self._replace(each, pools):
                allowed.take((each,))
                acted = True
        return acted

    def _drifted(self, pools: Sequence[Pool]) -> list[Candidate]:
        """Machines that have drifted and may go: those without pods first, then by the age of their drift."""
        since: dict[str, datetime] = {}
        for claim in self._context.mirror.claims.store.all():
            marked = claim.condition("Drifted")
            if marked is not None and marked.status == "True" and marked.last_transition_time is not None:
                since[claim.name] = marked.last_transition_time
        field = survey(self._context, pools, waive_pods=True).candidates if since else ()
        found = [each for each in field if each.claim in since]
        return sorted(found, key=lambda each: (bool(each.pods), since[each.claim], each.node))

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
        command = Command(
            id=context.ledger.new_id(), reason=Reason.DRIFTED, candidates=(each,),
            terminate_first=staged.terminate_first,
        )  # fmt: skip
        return await self._queue.start(command, staged.plan, staged.copy_of)
