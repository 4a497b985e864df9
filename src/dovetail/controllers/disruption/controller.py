"""The disruption loop: empty nodes first, then drifted ones, then the best saving; replacements before removals.

Nothing here blocks: a consolidation proposal is kept for a while and validated again before it is executed,
while everything else goes on. In safe mode nothing voluntary begins.
"""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import NamedTuple

from dovetail.clock import beside, stopwatch
from dovetail.cluster.indexes import DISRUPTED, NOT_CONSOLIDATABLE, STAGE
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.balanced import Balance
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidate_cache import CandidateCache, Evaluations
from dovetail.controllers.disruption.candidates import candidate_of, joined, prices
from dovetail.controllers.disruption.consolidation import (
    ConsolidationContext,
    ConsolidationProposal,
    RejectedConsolidation,
    choose,
)
from dovetail.controllers.disruption.consolidation_state import ConsolidationState, RejectionCache
from dovetail.controllers.disruption.drift import DriftMethod
from dovetail.controllers.disruption.move_rate_limit import MoveRateLimit
from dovetail.controllers.disruption.queue import Queue, release
from dovetail.controllers.disruption.repair import Repair
from dovetail.controllers.disruption.simulation import Simulation
from dovetail.controllers.disruption.types import Candidate, Command, CommandQueue, DisruptionReason
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.metrics.definitions import snake
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.worker import EXPLAINED
from dovetail.kube.errors import KubeError
from dovetail.model.kinds.nodepool import NodePool
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Pool

PERIOD_S = 10.0
#: Seconds without another trigger after which triggers close together are handled in one pass.
TRIGGER_DEBOUNCE_S = 0.5
#: How often, in seconds, an Unconsolidatable event is repeated; less often where the whole fleet is near the optimum.
STAY_EVENT_INTERVAL_S, NEAR_BEST_EVENT_INTERVAL_S = 900.0, 3600.0
#: How long a decision to consolidate, or to remove an empty node, must hold before it is executed.
VALIDATION_S = 15.0
#: How long a pending consolidation, or the next search, waits in seconds for nodes where pods still come and go: the
#: best of a part is not the best. Where NodePools have a longer consolidateAfter, a search waits for it, up to so long.
GATHERING_S, MAX_GATHERING_S = 60.0, 600.0
#: What the searches are called in metrics: the fleet is always searched as a whole.
_SEARCHES = {"empty": "empty", "underutilized": "multi"}


#: What a proposal depends on, as lists of objects.
Seen = tuple[tuple[object, ...], ...]


class PendingConsolidation(NamedTuple):
    """A proposal, since when it holds, and what it was made from."""

    proposal: ConsolidationProposal
    since: float
    seen: Seen

    def still(self, seen: Seen) -> bool:
        """Whether everything is as it was, so that the same search would have the same result."""
        return list(map(len, self.seen)) == list(map(len, seen)) and all(
            map(operator.is_, chain.from_iterable(self.seen), chain.from_iterable(seen))
        )


class DisruptionController:
    def __init__(self, context: Context, queue: CommandQueue | None = None) -> None:
        """With a `queue` of its own (a dry run) no taint is removed: what it finds is another autoscaler's."""
        self._context = context
        self._cleans = queue is None
        self._ids = context.chance.child("reconcile", "disruption")
        self.queue: CommandQueue = Queue(context) if queue is None else queue
        self._repair = Repair(context, self.queue)
        self._drift = DriftMethod(context, self.queue)
        self._moves = MoveRateLimit(context)
        self._balance = Balance(context)
        self._rejections = RejectionCache()
        self._consolidation_state = ConsolidationState(context)
        self._pending: PendingConsolidation | None = None
        self._candidate_cache = CandidateCache(context)
        #: Why each node stays, as of the last pass: for `explain` and the events.
        self.evaluations = Evaluations()
        self.stays: dict[str, RejectedConsolidation] = {}
        #: The last published reason of each node that stays, and until when it need not be published again.
        self._published_stays: dict[str, tuple[str, float]] = {}
        #: Whether a candidate waits for a budget or for time to pass, when the next pass is due, and the last search.
        self._waiting = False
        self._again = math.inf
        self._last_search = -math.inf
        #: Since when a search waits for nodes to become consolidatable.
        self._waiting_since: float | None = None

    async def run(self) -> None:
        await self._read_marks()
        self.queue.resume()  # before taints are removed that a command still needs
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(), name="disruption queue")
            while True:
                with logs.reconciling("disruption", self._ids.uid()):
                    try:
                        with self._context.metrics.runtime.reconciliation("disruption", EXPLAINED):
                            acted = await self.once()
                    except KubeError as problem:
                        self._context.log.error("Reconciler error", error=str(problem))
                        acted = False
                await self._pause(1.0 if acted else PERIOD_S)

    async def _read_marks(self) -> None:
        """Before anything is disrupted: a replica that stood by may have missed what the last leader marked.

        A node that is disrupted already would not count for its budget (`dovetail simulate --random 1005`).
        """
        while True:
            try:
                return await self._context.nodeclaim_creator.complete()
            except KubeError as problem:
                self._context.log.error(
                    "nodeclaims not read, no disruption yet", controller="disruption", error=str(problem)
                )
            await asyncio.sleep(PERIOD_S)

    async def _pause(self, seconds: float) -> None:
        seconds = min(seconds, self._consolidation_state.left())
        if self._pending is not None:
            pending_seconds = self._context.clock.monotonic() - self._pending.since
            # A consolidatable node wakes us earlier.
            due = VALIDATION_S if pending_seconds < VALIDATION_S - 0.5 else GATHERING_S
            seconds = min(seconds, max(1.0, due - pending_seconds))
        try:
            async with asyncio.timeout(seconds):
                await self._consolidation_state.woken.wait()
                while self._consolidation_state.woken.is_set():  # nodes become consolidatable together
                    self._consolidation_state.woken.clear()
                    await asyncio.sleep(TRIGGER_DEBOUNCE_S)
        except TimeoutError:
            return
        finally:
            self._consolidation_state.woken.clear()

    async def once(self) -> bool:
        """One pass; whether a command was started."""
        context = self._context
        if not context.cluster_state.synced.is_set():
            return False
        await context.nodeclaim_creator.complete()
        if self._cleans and not self._consolidation_state.none:
            await self._clean()
        repairable = not context.safety.stops(DisruptionReason.UNHEALTHY) and self._repair.due()
        if repairable and await self._timed("unhealthy", self._repair.once(await context.instance_types.all())):
            return True
        if context.safety.safe_mode:
            self._pending = None
            return False
        pools = await context.instance_types.all()
        self._consolidation_state.offered(pools)
        if self._consolidation_state.none:
            return False
        count = self._consolidation_state.count
        self.evaluations = self._candidate_cache.evaluations(pools)
        self._publish_blockers()
        self._waiting, self._again = False, self._consolidation_state.instant(self.evaluations.until)
        for reason, method in (
            ("expired", self._expire),
            ("empty", self._emptiness),
            ("drifted", self._drift.once),
        ):
            if await self._timed(reason, method(pools)):
                return True
        if await self._consolidate(pools):
            return True
        self._waiting |= self._drift.waiting
        self._consolidation_state.passed(count, not self._waiting and self._pending is None, self._again)
        return False

    async def _timed(self, reason: str, method: Awaitable[bool]) -> bool:
        began = stopwatch()
        acted = await method
        self._record_duration(reason, began)
        return acted

    def _record_duration(self, reason: str, began: float) -> None:
        labels = (reason, _SEARCHES.get(reason, ""))
        self._context.metrics.disruption_evaluation.labels(*labels).observe(stopwatch() - began)

    async def _clean(self) -> None:
        """Remove our taint from nodes that no command holds: a previous process may have left it there."""
        context, cluster_state, busy = self._context, self._context.cluster_state, self.queue.busy()
        marked = cluster_state.claims.store.by(STAGE, DISRUPTED)
        tainted = cluster_state.nodes.store.by(STAGE, DISRUPTED)
        suspects = {
            claim.name: claim for claim in (*marked, *map(cluster_state.claim_for, tainted)) if claim is not None
        }
        for claim in suspects.values():
            node = cluster_state.node_for(claim)
            if (
                node is None
                or claim.name in busy
                or cluster_state.is_terminating(claim, node)
                or claim.is_true("Rebooting")
            ):
                continue
            await release(context, node.metadata.name, claim.name)

    # -- the methods, in their order

    async def _expire(self, pools: Sequence[Pool]) -> bool:
        """NodeClaims past their expiry, each with its own command; no budget holds them back."""
        context, acted = self._context, False
        expired = self._consolidation_state.expired()
        known_prices = prices(pools) if expired else {}
        for claim in expired:
            node = context.cluster_state.node_for(claim)
            if context.cluster_state.is_terminating(claim, node):
                continue
            context.log.info("expired nodeclaim", controller="nodeclaim.expiration", NodeClaim=logs.ref(claim.name))
            if node is None:
                await delete(context, claim, "expired")
                continue
            candidate = candidate_of(context, node, claim, known_prices)
            plan = Simulation(context, pools).without((candidate,)) if candidate.pods else None
            acted |= await self._begin(DisruptionReason.EXPIRED, "", (candidate,), plan, 0.0)
        return acted

    async def _emptiness(self, pools: Sequence[Pool]) -> bool:
        empty = [candidate for candidate in self._consolidatable() if candidate.empty]
        ready = [candidate for candidate in self._consolidatable(at_least=VALIDATION_S) if candidate.empty]
        self._waiting |= len(ready) < len(empty)
        self._context.metrics.disruption_eligible.labels("empty").set(len(ready))
        allowed = RemainingBudgets(self._context, DisruptionReason.EMPTY, self._candidate_cache.totals())
        chosen = allowed.trim(sorted(ready, key=lambda candidate: candidate.node))
        self._waiting |= len(chosen) < len(ready)
        if not chosen:
            return False
        saving = sum(candidate.price or 0.0 for candidate in chosen)
        return await self._begin(DisruptionReason.EMPTY, "empty", chosen, None, saving)

    async def _consolidate(self, pools: Sequence[Pool]) -> bool:
        context = self._context
        ready = self._moves.free(
            [
                candidate
                for candidate in self._consolidatable()
                if not candidate.empty and self._policy(candidate.pool) != "WhenEmpty"
            ]
        )
        context.metrics.disruption_eligible.labels("underutilized").set(len(ready))
        if not ready:
            return await self._hold(None)
        allowed = RemainingBudgets(context, DisruptionReason.UNDERUTILIZED, self._candidate_cache.totals())
        now, recent_pod_events = context.clock.monotonic(), self._has_recent_pod_events()
        if self._pending is not None:
            pending_seconds = now - self._pending.since + 0.001
            if pending_seconds < VALIDATION_S or (pending_seconds < GATHERING_S and recent_pod_events):
                return False
        elif recent_pod_events and now < (then := self._next_search(now)):
            self._again = min(self._again, then)
            return False
        self._last_search, self._waiting_since = now, None
        vain = (
            -math.inf if self._pending is not None else self._rejections.vain(now, recent_pod_events=recent_pod_events)
        )
        simulation = Simulation(context, pools, self._in_motion(), ready)
        seen = (*simulation.seen, tuple(ready))
        if self._pending is not None and self._pending.still(seen) and allowed.fits(self._pending.proposal.candidates):
            return await self._hold(self._pending.proposal)
        refused = self._rejections.still(ready, pools, now)
        ask = partial(
            simulation.question,
            ready,
            allowed,
            refused,
            vain=vain,
            spot_to_spot=context.settings.gate("SpotToSpotConsolidation"),
        )

        def search() -> tuple[
            ConsolidationContext, tuple[ConsolidationProposal | None, dict[str, RejectedConsolidation]]
        ]:
            question = ask()
            return question, choose(ready, question)

        began = stopwatch()
        question, (best, self.stays) = await beside(search)
        self._record_duration("underutilized", began)
        rejections: dict[str, RejectedConsolidation] = {}
        if best is not None:
            best, rejections = await self._balance.approved(best, question, prices(pools))
            self.stays |= rejections
        self._rejections.note(ready, self.stays, now)
        if best is None and (question.removals or rejections):
            self._rejections.searched(question.above, now, recent_pod_events=recent_pod_events)
        self._publish_stays()
        self._waiting |= any(stay.code in ("BUDGET", "NOT_LOOKED_AT") for stay in self.stays.values())
        return await self._hold(best, seen)

    async def _hold(self, best: ConsolidationProposal | None, seen: Seen = ()) -> bool:
        """Execute a proposal that has held for the validation period; a new one must hold first."""
        pending, self._pending = self._pending, None
        if best is None:
            if pending is not None:
                self._context.metrics.failed_validations.labels(_kind(pending.proposal)).inc()
                publish_rejections(self._context, pending.proposal, self.stays)
            return False
        if pending is None:
            self._pending = PendingConsolidation(best, self._context.clock.monotonic(), seen)
            publish_candidates(self._context, best)
            return False
        begun = await self._begin(DisruptionReason.UNDERUTILIZED, _kind(best), best.candidates, best.plan, best.saving)
        if not begun:
            publish_rejections(self._context, best, self.stays)
        return begun

    async def _begin(
        self, reason: DisruptionReason, kind: str, candidates: Sequence[Candidate], plan: Plan | None, saving: float
    ) -> bool:
        command = Command(
            id=self._context.decision_history.new_id(),
            reason=reason,
            kind=kind,
            candidates=tuple(candidates),
            saving=saving,
            policy=snake(self._policy(candidates[0].pool)) if kind else "",
        )
        begun = await self.queue.start(command, plan)
        if begun and reason is DisruptionReason.UNDERUTILIZED:
            self._moves.note(candidates)
        self._waiting |= not begun
        return begun

    # -- candidates

    def _consolidatable(self, at_least: float = 0.0) -> list[Candidate]:
        """Candidates without pod events for their NodePool's consolidateAfter, and for at least `at_least` seconds."""
        since, before = self.evaluations.consolidatable_since, self._context.clock.now() - timedelta(seconds=at_least)
        return [
            candidate
            for candidate in self.evaluations.candidates
            if candidate.node in since and since[candidate.node] <= before
        ]

    def _has_recent_pod_events(self) -> bool:
        """Whether pods come and go on a node that will be a candidate later."""
        cluster_state = self._context.cluster_state
        settles = {pool.name for pool in self._settling() if not pool.static}
        return any(
            claim.node_pool in settles and not cluster_state.is_terminating(claim, cluster_state.node_for(claim))
            for claim in cluster_state.claims.store.by(STAGE, NOT_CONSOLIDATABLE)
        )

    def _next_search(self, now: float) -> float:
        """When to search if pods come and go until then."""
        if self._waiting_since is None:
            self._waiting_since = now
        longest = max(
            (pool.spec.disruption.quiet_time or timedelta() for pool in self._settling()), default=timedelta()
        )
        until = self._last_search + GATHERING_S
        if longest.total_seconds() > GATHERING_S:
            until = max(until, self._waiting_since + min(MAX_GATHERING_S, longest.total_seconds() + GATHERING_S))
        return until

    def _in_motion(self) -> frozenset[str]:
        """Nodes of ours where pods come and go just now, and empty ones: no target for moved pods."""
        cluster_state, settles = self._context.cluster_state, {pool.name for pool in self._settling()}
        nodes = [
            cluster_state.node_for(claim)
            for claim in cluster_state.claims.store.by(STAGE, NOT_CONSOLIDATABLE)
            if claim.node_pool in settles
        ]
        empty = [candidate.node for candidate in self._consolidatable() if candidate.empty]
        return frozenset((*empty, *(node.metadata.name for node in nodes if node is not None)))

    def _settling(self) -> list[NodePool]:
        """The NodePools whose nodes may become consolidatable."""
        pools = self._context.cluster_state.pools.store.all()
        return [pool for pool in pools if pool.spec.disruption.consolidate_after != "Never"]

    def _policy(self, pool: str) -> str:
        nodepool = self._context.cluster_state.pools.store.get(pool)
        return nodepool.spec.disruption.consolidation_policy if nodepool else "WhenEmpty"

    # -- events and history

    def _record_stay(self, decision: str, candidate: Candidate, why: RejectedConsolidation) -> None:
        decision_history = self._context.decision_history
        decision_history.record(
            Decision(
                id=decision,
                kind="keep",
                time=decision_history.now(),
                summary=why.message,
                reason=why.code,
                subject=candidate.node,
                before=candidate.price,
                detail={"saving": why.saving, "needed": why.needed, "instead": why.instead},
            )
        )

    def _publish_stays(self) -> None:
        """Publish why each node stays, on Node and NodeClaim, and record it: when it changed, or after a while."""
        now, before, self._published_stays = self._context.clock.monotonic(), self._published_stays, {}
        for candidate in self.evaluations.candidates:
            why = self.stays.get(candidate.node)
            if why is None:
                continue
            published = before.get(candidate.node)
            if published is None or published[0] != why.message or published[1] <= now:
                published = (
                    why.message,
                    now + (NEAR_BEST_EVENT_INTERVAL_S if why.code == "NEAR_BEST" else STAY_EVENT_INTERVAL_S),
                )
                self._publish_stay(candidate, why, published[1] - now)
            self._published_stays[candidate.node] = published

    def _publish_stay(self, candidate: Candidate, why: RejectedConsolidation, pause: float) -> None:
        claim = self._context.cluster_state.claims.store.get(candidate.claim)
        node = self._context.cluster_state.nodes.store.get(candidate.node)
        text, decision = why.message[:1].upper() + why.message[1:], self._context.decision_history.new_id()
        publish = self._context.event_publisher.publish_on_node_and_claim
        if claim and publish(node, claim, "Normal", "Unconsolidatable", text, dedupe=pause, decision=decision):
            self._record_stay(decision, candidate, why)

    def _publish_blockers(self) -> None:
        """Publish on every blocked node the blockers that are not its own state."""
        for name, reasons in self.evaluations.blocked.items():
            node = self._context.cluster_state.nodes.store.get(name)
            claim = self._context.cluster_state.claim_for(node) if node is not None else None
            blockers = [blocker for blocker in reasons if blocker.code not in ("DELETING", "NOT_INITIALIZED")]
            if claim is not None and blockers:
                self._context.event_publisher.blocked(node, claim, joined(blockers))


def _kind(proposal: ConsolidationProposal) -> str:
    return "multi" if len(proposal.candidates) > 1 else "single"


# Events of a pending consolidation, on every node of it: that there is one, or that it was rejected.
#
# Karpenter's reasons and messages, so that existing dashboards keep working.

_WHY = {"BUDGET": "budget", "PODS_WOULD_NOT_FIT": "scheduling"}


def publish_candidates(context: Context, proposal: ConsolidationProposal) -> None:
    """The consolidation is now pending."""
    for candidate in proposal.candidates:
        _publish(
            context,
            proposal,
            candidate,
            "ConsolidationCandidate",
            f"Consolidation candidate: {_describe(proposal, candidate)}",
        )


def publish_rejections(
    context: Context, proposal: ConsolidationProposal, stays: Mapping[str, RejectedConsolidation]
) -> None:
    """The pending consolidation did not hold."""
    for candidate in proposal.candidates:
        why = _WHY.get(stays[candidate.node].code, "churn") if candidate.node in stays else "churn"
        text = f"Consolidation rejected: {_describe(proposal, candidate)}, reason: {why}"
        _publish(context, proposal, candidate, "ConsolidationRejected", text)


def _describe(proposal: ConsolidationProposal, candidate: Candidate) -> str:
    count, replacements = len(proposal.candidates), len(proposal.plan.nodes)
    how = "replace" if replacements else "delete"
    if count > 1:
        return f"{how}: [{candidate.node}] (part of {count}-node consolidation)"
    come = f" -> [{replacements} replacement{'' if replacements == 1 else 's'}]" if replacements else ""
    return f"{how}: nodepools=[{candidate.pool}]: [{candidate.node}]{come}"


def _publish(context: Context, proposal: ConsolidationProposal, candidate: Candidate, reason: str, text: str) -> None:
    node, claim = (
        context.cluster_state.nodes.store.get(candidate.node),
        context.cluster_state.claims.store.get(candidate.claim),
    )
    context.event_publisher.publish_on_node_and_claim(
        node, claim, "Normal", reason, f"{text} (savings: ${proposal.saving:.2f})"
    )
