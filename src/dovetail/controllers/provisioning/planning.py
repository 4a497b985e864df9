"""Asking the planner without stopping the world, and not believing it blindly.

The quick answer is taken on the loop; the better one is computed beside it, with a deadline. Every plan is
checked by the verifier, which knows nothing of the packer; a plan that breaks a rule is not carried out.
"""

from __future__ import annotations

import asyncio

from dovetail.clock import VirtualLoop
from dovetail.controllers.context import Context
from dovetail.controllers.safety import Cause
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify


class Planning:
    """Plans and verifies. `refused` counts plans that the verifier would not let pass."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def provision(self, snapshot: Snapshot) -> Plan | None:
        """A plan that holds, or None: then nothing is bought and everybody is told."""
        deadline = self._context.settings.plan_deadline or None
        for attempt in (deadline, None) if deadline else (None,):
            plan = await self._plan(snapshot, attempt)
            problems = verify(plan, snapshot)
            if not problems:
                self._context.safety.set(Cause.BROKEN_INVARIANT, None)
                return plan
            self._context.metrics.refused_plans.labels("provisioner").inc()
            self._context.log.error(
                "plan refused by the verifier",
                controller="provisioner",
                tier=plan.tier,
                error="; ".join(str(each) for each in problems[:5]),
            )
            self._context.safety.set(Cause.BROKEN_INVARIANT, f"a plan broke {len(problems)} rule(s): {problems[0]}")
        return None

    async def _plan(self, snapshot: Snapshot, deadline: float | None) -> Plan:
        """In virtual time thinking takes no time; in real time it must not stop the watches."""
        seed = self._context.chance.root
        if deadline is None or isinstance(asyncio.get_running_loop(), VirtualLoop):
            return provision(snapshot, seed=seed, deadline=deadline)
        return await asyncio.to_thread(provision, snapshot, seed=seed, deadline=deadline)
