"""Asking the planner without stopping the world, and not believing it blindly.

Plans are made beside the loop, with a deadline for bettering the quick answer. Every plan is checked by the
verifier, which knows nothing of the packer; a plan that breaks a rule is not carried out.
"""

from __future__ import annotations

import asyncio

from dovetail.clock import VirtualLoop
from dovetail.controllers.context import Context
from dovetail.controllers.safety import Cause
from dovetail.planner.optimise.apart import apart
from dovetail.planner.optimise.better import better_by_work
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify


class Planning:
    """Plans and verifies. `refused` counts plans that the verifier would not let pass."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def provision(self, snapshot: Snapshot) -> Plan | None:
        """A plan that holds, or None: then nothing is bought for these pods together."""
        deadline = self._context.settings.plan_deadline or None
        for attempt in (deadline, None) if deadline else (None,):
            try:
                plan, problems = await self._checked(snapshot, attempt)
            except Exception as bug:
                # A bug met on one batch must not end the process that serves all the others; it is told with its trace.
                self._refused(f"planning failed: {bug!r}", bug)
                continue
            if not problems:
                self._context.safety.set(Cause.BROKEN_INVARIANT, None)
                return plan
            self._refused("; ".join(problems[:5]))
        return None

    def _refused(self, why: str, bug: Exception | None = None) -> None:
        context = self._context
        context.metrics.refused_plans.labels("provisioner").inc()
        context.log.error("plan refused by the verifier", controller="provisioner", error=why, exc_info=bug)
        context.safety.set(Cause.BROKEN_INVARIANT, why)

    async def _checked(self, snapshot: Snapshot, deadline: float | None) -> tuple[Plan, list[str]]:
        """In virtual time thinking takes no time and only work counts; in real time it must not stop the watches and
        the lease, so the quick answer is found in a thread and bettered in a process apart.
        """
        seed = self._context.chance.root
        virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)

        def think() -> tuple[Plan, list[str]]:
            plan = provision(snapshot, seed=seed, deadline=deadline, optimiser=better_by_work if virtual else apart())
            return plan, [str(each) for each in verify(plan, snapshot)]

        return think() if virtual else await asyncio.to_thread(think)
