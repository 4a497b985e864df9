"""Karpenter's disruption: empty nodes, drifted ones, then multi-node and single-node consolidation; one command a pass.

Candidates are ranked by price per pod that would move. Multi-node consolidation searches the longest prefix of that
ranking which needs at most one cheaper node; single-node consolidation takes the first candidate that does. Both wait
15 s and simulate once more before they act.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import msgspec

from dovetail.cluster.indexes import DRIFTED, NOT_CONSOLIDATABLE, STAGE
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.budgets import RemainingBudgets
from dovetail.controllers.disruption.candidate_cache import CandidateCache, Evaluations
from dovetail.controllers.disruption.candidates import blocking, candidate_of, prices
from dovetail.controllers.disruption.expiration import ExpiryDates
from dovetail.controllers.disruption.queue import Queue
from dovetail.controllers.disruption.simulation import CLOSED
from dovetail.controllers.disruption.types import Candidate, Command, DisruptionReason
from dovetail.controllers.nodeclaim.deletion import delete
from dovetail.controllers.provisioning import provisionable_pods
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model.pods import Pod
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.studies.karpenter.nominations import NodeNominations
from dovetail.studies.karpenter.replacement import cheaper
from dovetail.studies.karpenter.scheduling import Simulated, without

PERIOD_S = 10.0
#: How long a consolidation must hold before it is executed; the loop waits for it.
VALIDATION_S = 15.0
#: Without a change, consolidation is tried again after so long.
RETRY_S = 300.0
#: Candidates that multi-node consolidation looks at.
MAX_MULTI_NODE_CANDIDATES = 100


class ConsolidationMove(msgspec.Struct, frozen=True):
    """Candidates to remove, the plan of their replacement, and the number of new NodeClaims in it."""

    candidates: tuple[Candidate, ...]
    plan: Plan | None
    new_claims: int


class KarpenterDisruption:
    """In the place of the controller `disruption`."""

    def __init__(self, context: Context, nominations: NodeNominations) -> None:
        self._context = context
        self._nominations = nominations
        self.queue = Queue(context)
        self._cache = CandidateCache(context)
        self._expiries = ExpiryDates(context.cluster_state)
        self._changes = 0
        #: What was found to have nothing to do, at which number of changes, and until when that holds.
        self._settled: dict[str, tuple[int, float]] = {}
        for resource in (NODES, NODECLAIMS, NODEPOOLS, PODS):
            context.cluster_state.listen(resource, self._changed)

    def _changed(self, change: CacheChange[object]) -> None:
        self._changes += 1

    async def run(self) -> None:
        self.queue.resume()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(), name="disruption queue")
            while True:
                try:
                    acted = await self.once()
                except KubeError as problem:
                    self._context.log.error("Reconciler error", error=str(problem))
                    acted = False
                await asyncio.sleep(1.0 if acted else PERIOD_S)

    async def once(self) -> bool:
        """One pass; whether a command was started."""
        context = self._context
        if not context.cluster_state.synced.is_set():
            return False
        await self._expire()
        pools = await context.instance_types.all()
        for method in (self._emptiness, self._drift, self._multi_node, self._single_node):
            if await method(pools):
                return True
        return False

    # -- the methods, in their order

    async def _expire(self) -> None:
        """An expired NodeClaim is deleted; its pods get new nodes when it drains."""
        for claim in self._expiries.due(self._context.clock.now()):
            if claim.metadata.deletion_timestamp is None:
                await delete(self._context, claim, "expired")

    async def _emptiness(self, pools: Sequence[Pool]) -> bool:
        chosen = self._trimmed(self._empty(pools), DisruptionReason.EMPTY)
        if not chosen:
            return False
        await asyncio.sleep(VALIDATION_S)
        still = {candidate.node for candidate in self._empty(pools)}
        chosen = self._trimmed([candidate for candidate in chosen if candidate.node in still], DisruptionReason.EMPTY)
        return bool(chosen) and await self._start(
            DisruptionReason.EMPTY, "empty", ConsolidationMove(tuple(chosen), None, 0)
        )

    async def _drift(self, pools: Sequence[Pool]) -> bool:
        """One drifted node a pass, those without pods first, then the oldest drift."""
        context, state, now = self._context, self._context.cluster_state, self._context.clock.now()
        unblocked = []
        for claim in state.claims.store.by(STAGE, DRIFTED):
            node, marked = state.node_for(claim), claim.condition("Drifted")
            since = marked.last_transition_time if marked is not None else None
            if node is not None and since is not None and not blocking(context, node, claim, now, waive_pods=True):
                unblocked.append((claim, node, since))
        allowed = RemainingBudgets.now(
            context, DisruptionReason.DRIFTED
        )  # says so where they allow nothing, in any pass
        if not unblocked:
            return False
        drifted, prices_by_offering = [], prices(pools)
        for claim, node, since in unblocked:
            candidate = candidate_of(context, node, claim, prices_by_offering)
            drifted.append((bool(candidate.pods), since, candidate.node, candidate))
        for *_, candidate in sorted(drifted, key=lambda entry: entry[:3]):
            if not allowed.fits((candidate,)):
                continue
            snapshot = self._snapshot(pools)
            moved = self._pods((candidate,), snapshot)
            simulated = without(snapshot, {candidate.node}, moved)
            if simulated.places(moved):
                plan = simulated.plan() if simulated.new_claims else None
                return await self._start(
                    DisruptionReason.DRIFTED, "", ConsolidationMove((candidate,), plan, simulated.new_claims)
                )
        return False

    async def _multi_node(self, pools: Sequence[Pool]) -> bool:
        return await self._consolidate(pools, "multi")

    async def _single_node(self, pools: Sequence[Pool]) -> bool:
        return await self._consolidate(pools, "single")

    async def _consolidate(self, pools: Sequence[Pool], kind: str) -> bool:
        now, seen = self._context.clock.monotonic(), self._changes
        changes, until = self._settled.get(kind, (-1, 0.0))
        if changes == seen and now < until:
            return False
        candidates = self._trimmed(self._ranked(pools), DisruptionReason.UNDERUTILIZED)
        move = self._search(candidates, pools, kind)
        if move is None:
            self._settled[kind] = (seen, now + RETRY_S)
            return False
        await asyncio.sleep(VALIDATION_S)
        still = {candidate.node for candidate in self._ranked(pools)}
        if not {candidate.node for candidate in move.candidates} <= still:
            return False
        if not RemainingBudgets.now(self._context, DisruptionReason.UNDERUTILIZED).fits(move.candidates):
            return False
        again = self._move(move.candidates, self._snapshot(pools), several=kind == "multi")
        if again is None or again.new_claims != move.new_claims:
            return False
        return await self._start(DisruptionReason.UNDERUTILIZED, kind, move)

    def _search(self, candidates: Sequence[Candidate], pools: Sequence[Pool], kind: str) -> ConsolidationMove | None:
        if not candidates:
            return None
        snapshot = self._snapshot(pools)
        if kind == "single":
            moves = (self._move((candidate,), snapshot, several=False) for candidate in candidates)
            return next((move for move in moves if move is not None), None)
        low, high, best = 2, min(len(candidates), MAX_MULTI_NODE_CANDIDATES), None
        while low <= high:
            middle = (low + high) // 2
            move = self._move(tuple(candidates[:middle]), snapshot, several=True)
            if move is None:
                high = middle - 1
            else:
                best, low = move, middle + 1
        return best

    def _move(
        self, candidates: tuple[Candidate, ...], snapshot: Snapshot, *, several: bool
    ) -> ConsolidationMove | None:
        """The removal of some candidates with at most one cheaper node in their place; None if that cannot be."""
        moved = self._pods(candidates, snapshot)
        simulated = without(snapshot, {candidate.node for candidate in candidates}, moved)
        if simulated.new_claims > 1 or not simulated.places(moved) or self._waits(simulated, snapshot):
            return None
        if not simulated.new_claims:
            return ConsolidationMove(candidates, None, 0)
        gates = self._context.settings.gate("SpotToSpotConsolidation")
        plan = cheaper(simulated, candidates, several=several, spot_to_spot=gates)
        return None if plan is None else ConsolidationMove(candidates, plan, 1)

    def _waits(self, simulated: Simulated, snapshot: Snapshot) -> bool:
        """Whether a pod was placed onto a node that is not initialised yet."""
        starting = {node.name for node in snapshot.nodes if not node.initialized}
        return bool(starting & simulated.existing_nodes())

    # -- candidates

    def _evaluations(self, pools: Sequence[Pool]) -> Evaluations:
        return self._cache.evaluations(pools)

    def _consolidatable(self, pools: Sequence[Pool]) -> list[Candidate]:
        evaluations, now, busy = self._evaluations(pools), self._context.clock.monotonic(), self.queue.busy()
        return [
            candidate
            for candidate in evaluations.candidates
            if candidate.node in evaluations.consolidatable_since
            and candidate.claim not in busy
            and not self._nominations.holds(candidate.node, now)
        ]

    def _empty(self, pools: Sequence[Pool]) -> list[Candidate]:
        return sorted(
            (candidate for candidate in self._consolidatable(pools) if candidate.empty),
            key=lambda candidate: candidate.node,
        )

    def _ranked(self, pools: Sequence[Pool]) -> list[Candidate]:
        """Those that are not empty, dearest per disruption first."""
        store = self._context.cluster_state.pools.store
        allowed = {pool.name for pool in store.all() if pool.spec.disruption.consolidation_policy != "WhenEmpty"}
        consolidatable = [
            candidate for candidate in self._consolidatable(pools) if not candidate.empty and candidate.pool in allowed
        ]
        return sorted(
            consolidatable, key=lambda candidate: (-(candidate.price or 0.0) / candidate.cost, candidate.node)
        )

    def _trimmed(self, candidates: Sequence[Candidate], reason: DisruptionReason) -> list[Candidate]:
        return RemainingBudgets(self._context, reason, self._cache.totals()).trim(candidates) if candidates else []

    def _snapshot(self, pools: Sequence[Pool]) -> Snapshot:
        """The cluster; nodes inside their NodePool's consolidateAfter take no moved pod."""
        context, state = self._context, self._context.cluster_state
        waiting = [pod for pod in state.unbound() if provisionable_pods.provisionable(pod)]
        snapshot = context.snapshot_builder.build(
            pools, [*waiting, *provisionable_pods.evictable(state, context.clock.now())]
        )
        closed = {
            node.metadata.name
            for claim in state.claims.store.by(STAGE, NOT_CONSOLIDATABLE)
            if (node := state.node_for(claim)) is not None
        }
        nodes = tuple(
            msgspec.structs.replace(node, taints=(*node.taints, CLOSED)) if node.name in closed else node
            for node in snapshot.nodes
        )
        return msgspec.structs.replace(snapshot, nodes=nodes)

    def _pods(self, candidates: Collection[Candidate], snapshot: Snapshot) -> list[Pod]:
        store, pending = self._context.cluster_state.pods.store, {pod.metadata.key for pod in snapshot.pending}
        stored = (store.get(key) for candidate in candidates for key in candidate.pods)
        return [pod for pod in stored if pod is not None and pod.metadata.key not in pending]

    async def _start(self, reason: DisruptionReason, kind: str, move: ConsolidationMove) -> bool:
        context = self._context
        replaced = sum(node.price for node in move.plan.nodes) if move.plan is not None else 0.0
        command = Command(
            id=context.decision_history.new_id(),
            reason=reason,
            kind=kind,
            candidates=move.candidates,
            saving=sum(candidate.price or 0.0 for candidate in move.candidates) - replaced,
        )
        # Without placements no pod is nominated: its replacement goes wherever kube-scheduler puts it.
        plan = msgspec.structs.replace(move.plan, placements={}) if move.plan is not None else None
        return await self.queue.start(command, plan)
