"""The shadow: plans for pending pods and for disruption as the real controllers do, and records instead of acting.

Beside Karpenter it reads the NodePools, NodeClaims and EC2NodeClasses that Karpenter works with. Beside Cluster
Autoscaler it needs NodePools and EC2NodeClasses that say what may be launched; nodes without a NodeClaim are room for
pods, and are not consolidated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from dovetail.cluster import nodepools
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.disruption.controller import DisruptionController
from dovetail.controllers.history import provisioning
from dovetail.controllers.history.decisions import Decision
from dovetail.controllers.provisioning import provisionable_pods
from dovetail.controllers.provisioning.batcher import Batcher
from dovetail.controllers.provisioning.planning import Planning
from dovetail.controllers.shadow.comparison import ActualNode, actual_node, compare, launched_since
from dovetail.controllers.shadow.hypothetical import HypotheticalFleet
from dovetail.controllers.shadow.queue import ShadowQueue
from dovetail.controllers.worker import EXPLAINED
from dovetail.kube.errors import KubeError
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODEPOOLS, PODS
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.pods import Pod
from dovetail.planner.plan import Plan, PlannedNode

#: Between two checks of what the cluster's autoscaler did.
COMPARISON_INTERVAL_S = 5.0
#: A decision whose pods are not bound by then is compared with what there is.
COMPARISON_TIMEOUT_S = 1800.0
#: Between two plans for pods that got no place.
RETRY_INTERVAL_S = 60.0
#: Between two evaluations of disruption.
DISRUPTION_INTERVAL_S = 30.0


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A provisioning decision that waits for the cluster's autoscaler to serve the same pods."""

    decision: str
    decided: datetime
    since: float
    launches: tuple[PlannedNode, ...]
    pods: frozenset[str]


class Shadow:
    """The only controller that acts in a dry run, and it acts on nothing."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ids = context.chance.child("reconcile", "shadow")
        settings = context.settings
        self._batcher = Batcher(context.clock, settings.batch_idle_duration, settings.batch_max_duration)
        self._planning = Planning(context)
        self.queue = ShadowQueue(context)
        self._disruption = DisruptionController(context, self.queue)
        self.fleet = HypotheticalFleet()
        self._rounds: list[Round] = []
        #: Why pods are unschedulable, by UID: it is recorded once, and they are planned for again once in a while.
        self._refused: dict[str, str] = {}
        #: Nodes that were counted for a decision already.
        self._attributed: set[str] = set()
        #: Where the pods of decisions were bound, by UID: a pod may be gone when its decision is compared.
        self._bound: dict[str, str] = {}
        context.cluster_state.listen(PODS, self._pod_changed)
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)

    async def run(self) -> None:
        for pod in self._context.cluster_state.unbound():
            self._batcher.trigger(pod.metadata.uid)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._provision_batches(), name="shadow provisioning")
            group.create_task(self._every(DISRUPTION_INTERVAL_S, self.evaluate_disruption), name="shadow disruption")
            group.create_task(self._every(RETRY_INTERVAL_S, self.retry_unschedulable), name="shadow retries")
            group.create_task(self._every(COMPARISON_INTERVAL_S, self.compare_rounds), name="shadow comparison")

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is None:
            self._refused.pop(change.object.metadata.uid, None)
        elif pod.spec.node_name:
            if any(pod.metadata.uid in waiting.pods for waiting in self._rounds):
                self._bound[pod.metadata.uid] = pod.spec.node_name
        elif provisionable_pods.provisionable(pod) and pod.metadata.uid not in self._refused:
            self._batcher.trigger(pod.metadata.uid)
        elif provisionable_pods.queued(pod):
            self._batcher.extend(pod.metadata.uid)

    def _pool_changed(self, change: CacheChange[NodePool]) -> None:
        """A NodePool that is new, or offers something else, may serve pods that were unschedulable."""
        old, new = change.old, change.new
        if new is not None and (old is None or old.spec != new.spec or nodepools.ready(old) != nodepools.ready(new)):
            self._refused.clear()
            self._batcher.trigger(new.metadata.uid)

    async def retry_unschedulable(self) -> None:
        """Unschedulable pods are planned for again."""
        planned = self.fleet.planned
        for pod in provisionable_pods.waiting(self._context.cluster_state):
            if pod.metadata.uid not in planned:
                self._batcher.trigger(pod.metadata.uid)

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            with logs.reconciling("shadow", self._ids.uid()):
                try:
                    with self._context.metrics.runtime.reconciliation("shadow", EXPLAINED):
                        await act()
                except EXPLAINED as problem:
                    self._context.log.error("Reconciler error", error=str(problem))

    # -- what would be launched

    async def _provision_batches(self) -> None:
        while True:
            await self._batcher.wait()
            await self._context.cluster_state.synced.wait()
            with logs.reconciling("shadow", self._ids.uid()):
                try:
                    with self._context.metrics.runtime.reconciliation("shadow", EXPLAINED):
                        await self.provision()
                except KubeError as problem:
                    self._context.log.error("Reconciler error", error=str(problem))

    async def provision(self) -> None:
        """Plan for the pods that have no place yet, and record what would be launched."""
        context, cluster_state = self._context, self._context.cluster_state
        unbound = tuple(cluster_state.unbound())
        self.fleet = self.fleet.pruned(unbound)
        planned = self.fleet.planned
        pods = [
            pod
            for pod in provisionable_pods.waiting(cluster_state)
            if pod.metadata.uid not in planned and provisionable_pods.refusal(cluster_state, pod) is None
        ]
        if not pods or not any(not pool.static for pool in cluster_state.pools.store.all()):
            return
        offers = await context.instance_types.all()
        snapshot = context.snapshot_builder.build(offers, pods)
        nodes = (*self.fleet.charged(snapshot.nodes, unbound), *self.fleet.states(cluster_state.types, unbound))
        decision = context.decision_history.new_id()
        with context.metrics.planning("shadow", decision, len(pods)):
            plan = await self._planning.provision(msgspec.structs.replace(snapshot, nodes=nodes))
        if plan is None:
            return
        by_key = {pod.metadata.key: pod for pod in pods}
        self.fleet = self.fleet.with_plan(decision, plan, by_key, offers)
        self._record_refusals(plan, by_key)
        self._record(plan, decision, pods)

    def _record_refusals(self, plan: Plan, pods: Mapping[str, Pod]) -> None:
        context = self._context
        reasons = {key: why for key, why in plan.unschedulable.items() if key in pods}
        news = {key: why for key, why in reasons.items() if self._refused.get(pods[key].metadata.uid) != why.message}
        self._refused.update({pods[key].metadata.uid: why.message for key, why in reasons.items()})
        if news:
            context.decision_history.record(
                provisioning.refused(
                    context.decision_history, context.cluster_state, news, context.decision_history.new_id()
                )
            )

    def _record(self, plan: Plan, decision: str, pods: Sequence[Pod]) -> None:
        context = self._context
        served = [pod for pod in pods if pod.metadata.key not in plan.unschedulable]
        if not served:
            return
        names = {launch.name: f"shadow-{decision}-{launch.name}" for launch in plan.nodes}
        context.decision_history.record(
            provisioning.launched(context.decision_history, context.cluster_state, plan, names, decision)
        )
        for launch in plan.nodes:
            context.metrics.shadow.launches.labels(launch.pool).inc()
        context.metrics.shadow.planned.inc(sum(launch.price for launch in plan.nodes))
        context.log.info(
            "would launch node(s)",
            nodes=len(plan.nodes),
            pods=len(served),
            cost=round(plan.cost.per_hour, 6),
            decision=decision,
        )
        self._rounds.append(
            Round(
                decision=decision,
                decided=context.clock.now(),
                since=context.clock.monotonic(),
                launches=plan.nodes,
                pods=frozenset(pod.metadata.uid for pod in served),
            )
        )

    # -- what would be disrupted

    async def evaluate_disruption(self) -> None:
        """One pass of the disruption controller, whose commands are recorded; none begins."""
        await self._disruption.once()
        self.queue.close_unoffered()
        self._context.metrics.shadow.saving.set(self.queue.saving())

    # -- what the cluster's autoscaler did

    async def compare_rounds(self) -> None:
        """Decisions whose pods are served, against the nodes that were launched for them."""
        now = self._context.clock.monotonic()
        over = [waiting for waiting in self._rounds if self._is_over(waiting, now)]
        for settled in over:
            self._rounds.remove(settled)
            self._compare(settled)
            for uid in settled.pods:
                self._bound.pop(uid, None)

    def _is_over(self, waiting: Round, now: float) -> bool:
        cluster_state = self._context.cluster_state
        left = [pod for pod in map(cluster_state.pod, waiting.pods) if pod is not None and not pod.spec.node_name]
        return not left or now - waiting.since > COMPARISON_TIMEOUT_S

    def _compare(self, settled: Round) -> None:
        context, cluster_state = self._context, self._context.cluster_state
        names = sorted({self._bound[uid] for uid in settled.pods if uid in self._bound} - self._attributed)
        nodes = [node for node in map(cluster_state.nodes.store.get, names) if node is not None]
        actual: list[ActualNode] = [
            actual_node(node, cluster_state.types) for node in launched_since(nodes, settled.decided)
        ]
        self._attributed.update(node.name for node in actual)
        self._attributed.intersection_update(node.metadata.name for node in cluster_state.nodes.store.all())
        unbound = sum(uid not in self._bound for uid in settled.pods)
        result = compare(settled.launches, actual)
        if result.actual_cost is not None:
            context.metrics.shadow.actual.inc(result.actual_cost)
        if result.differs:
            context.metrics.shadow.differences.labels(result.outcome).inc()
        context.decision_history.record(
            Decision(
                id=context.decision_history.new_id(),
                kind="shadow",
                time=context.decision_history.now(),
                reason=result.outcome,
                subject=settled.decision,
                cost=result.planned_cost,
                before=result.actual_cost,
                pod_count=len(settled.pods),
                about=tuple(node.name for node in actual),
                summary=(
                    f"planned {_listed(result.planned)} for {len(settled.pods)} pod(s); the cluster's autoscaler"
                    f" launched {_listed(result.actual)}" + (f"; {unbound} pod(s) were not bound" if unbound else "")
                ),
                detail={"planned": result.planned, "actual": result.actual, "unbound": unbound},
            )
        )


def _listed(nodes: Mapping[str, int]) -> str:
    return ", ".join(f"{count}x {name}" for name, count in sorted(nodes.items())) or "no node"
