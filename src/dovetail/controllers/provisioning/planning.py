"""Running the planner beside the event loop, and verifying its plans.

Plans are made beside the loop, with a deadline for improving the quick plan. Every plan is checked by the
verifier, which shares no code with the packer; a plan that violates a constraint is not executed.
"""

from __future__ import annotations

import asyncio

import msgspec

from dovetail.clock import beside, virtual
from dovetail.controllers.context import Context
from dovetail.controllers.safemode import SafeModeCause
from dovetail.model.pods import Pod
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.optimise.worker import apart
from dovetail.planner.plan import Plan
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify


class Planning:
    """Plans and verifies, speculatively where there is time for it. `refusal` is why the last plan was refused."""

    def __init__(self, context: Context) -> None:
        self.refusal = ""
        self._context = context
        self._speculative: SpeculativePlan | None = None

    def plan_speculatively(self, snapshot: Snapshot) -> None:
        """Start a plan that may be requested soon. One at a time: improving it takes a processor."""
        deadline = self._context.settings.plan_deadline
        if deadline and (self._speculative is None or self._speculative.answer.done()):
            self._speculative = speculative_plan(snapshot, asyncio.ensure_future(self._checked(snapshot, deadline)))

    async def provision(self, snapshot: Snapshot) -> Plan | None:
        """A verified plan, or None: then nothing is launched for these pods together."""
        plan = await self._take_speculative(snapshot)
        return plan if plan is not None else await self._provision(snapshot)

    async def _take_speculative(self, snapshot: Snapshot) -> Plan | None:
        """The speculative plan, if it is for this snapshot and holds now."""
        speculative, self._speculative = self._speculative, None
        if speculative is None or not alike(speculative.snapshot, snapshot):
            return None
        await asyncio.wait([speculative.answer])
        if speculative.answer.exception() is not None:
            return None  # the same snapshot fails in the same way when it is planned again, and is reported then
        plan, problems = speculative.answer.result()
        if not problems and speculative.snapshot.nodes != snapshot.nodes:
            problems = await beside(lambda: _problems(plan, snapshot))
        return None if problems else plan

    async def _provision(self, snapshot: Snapshot) -> Plan | None:
        deadline = self._context.settings.plan_deadline or None
        for attempt in (deadline, None) if deadline else (None,):
            try:
                plan, problems = await self._checked(snapshot, attempt)
            except Exception as bug:
                # A bug met on one batch must not end the process that serves all the others; it is logged with a trace.
                self._refused(f"planning failed: {bug!r}", bug)
                continue
            if not problems:
                self._context.safety.set(SafeModeCause.BROKEN_INVARIANT, None)
                return plan
            self._refused("; ".join(problems[:5]))
        return None

    def _refused(self, why: str, bug: Exception | None = None) -> None:
        context, self.refusal = self._context, why
        context.metrics.refused_plans.labels("provisioner").inc()
        context.log.error("plan refused by the verifier", controller="provisioner", error=why, exc_info=bug)
        context.safety.set(SafeModeCause.BROKEN_INVARIANT, why)

    async def _checked(self, snapshot: Snapshot, deadline: float | None) -> Checked:
        """In virtual time only work counts; in real time the quick plan is improved in a separate process."""
        seed, simulated = self._context.chance.root, virtual()
        optimiser = better_by_work if simulated else apart()

        def plan_and_verify() -> Checked:
            plan = provision(snapshot, seed=seed, deadline=deadline, optimiser=optimiser)
            if simulated:  # how long this host took is in no history: the same seed gives the same bytes
                plan = msgspec.structs.replace(plan, seconds=0.0)
            return plan, _problems(plan, snapshot)

        return await beside(plan_and_verify)


def _problems(plan: Plan, snapshot: Snapshot) -> list[str]:
    return [str(violation) for violation in verify(plan, snapshot)]


# Speculative planning: a plan for the pods of an open batch, made while the window is still open.
#
# Mostly no other pod comes. Then the plan is ready when the window closes, and nodes are launched a second sooner.

#: A plan and the violations that the verifier found.
Checked = tuple[Plan, list[str]]


class SpeculativePlan(msgspec.Struct, frozen=True):
    """A snapshot, and the plan that is being made for it."""

    snapshot: Snapshot
    answer: asyncio.Future[Checked]


def speculative_plan(snapshot: Snapshot, answer: asyncio.Future[Checked]) -> SpeculativePlan:
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if nothing awaits it
    return SpeculativePlan(snapshot, answer)


#: What else a plan depends on; PDBs only matter to disruption.
_ASIDE = (
    "namespaces",
    "claims",
    "volumes",
    "storage_classes",
    "priorities",
    "default_spread",
    "selectors",
    "unavailable",
    "preferences",
    "min_values",
    "unusable_pools",
)


def alike(first: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots have the same plan: the same pending pods, nodes and offers."""
    before = {pod.metadata.uid: pod for pod in first.pending}
    return (
        len(first.pools) == len(other.pools)
        and all(mine is yours for mine, yours in zip(first.pools, other.pools, strict=True))
        and [node.name for node in first.nodes] == [node.name for node in other.nodes]
        and len(first.pending) == len(other.pending)
        and all(_same(before.get(pod.metadata.uid), pod) for pod in other.pending)
        and [daemon.spec for daemon in first.daemons] == [daemon.spec for daemon in other.daemons]
        and all(getattr(first, name) == getattr(other, name) for name in _ASIDE)
    )


def _same(first: Pod | None, other: Pod) -> bool:
    """Whether a pod has the same scheduling constraints; its status does not matter."""
    return first is not None and (
        first is other
        or (first.metadata.labels == other.metadata.labels and (first.spec is other.spec or first.spec == other.spec))
    )
