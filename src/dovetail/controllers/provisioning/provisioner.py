"""The provisioner: wait for a batch, take a snapshot, plan, verify, create NodeClaims, record.

Its NodeClaims name their pods; everything after that is done by other controllers.
If it dies between two of them, the pods of the missing ones are pending again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from dovetail.cluster import nodepools
from dovetail.cluster.nominations import NominationTarget
from dovetail.cluster.state import NOMINATION_TTL_S
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.history import provisioning
from dovetail.controllers.provisioning import nodeclaim_template, provisionable_pods
from dovetail.controllers.provisioning.batcher import Batcher, OwnersStillCreating
from dovetail.controllers.provisioning.node_group_scale_ups import NodeGroupScaleUps
from dovetail.controllers.provisioning.planning import Planning
from dovetail.controllers.provisioning.runaway import RunawayGuard, owner
from dovetail.controllers.provisioning.termination_deadlines import TerminationDeadlines
from dovetail.controllers.rights import READ_SCALE_UPS
from dovetail.controllers.worker import EXPLAINED
from dovetail.kube.backoff import doubled
from dovetail.kube.errors import Forbidden, Invalid, KubeError, Unauthorized
from dovetail.kube.reflector import CacheChange
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS
from dovetail.planner.explain.unschedulable import NO_NODEPOOL
from dovetail.planner.plan import Plan, PlannedNode, Unschedulable
from dovetail.planner.snapshot import Snapshot

#: An unschedulable pod is tried again after so many seconds, then after twice as many, up to the last.
RETRY_MIN_S, RETRY_MAX_S = 10.0, 60.0
#: And after so many at first, where only the creation of its NodeClaim failed.
CREATE_RETRY_MIN_S = 1.0
#: Pool, class and pods are often applied together. For so long after that a pool that is not ready yet is no news, and
#: its pods are tried again after so many seconds.
FIRST_WARNING_GRACE, RETRY_EARLY_S = timedelta(seconds=15), 2.0
#: Errors that the same NodeClaim would get again. Without an answer it may have been created all the same.
FINAL_ERRORS = (Forbidden, Unauthorized, Invalid)
#: Concurrent creations of NodeClaims.
MAX_CONCURRENT_CREATES = 20


class Provisioner:
    """The controller `provisioner`."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        still_creating = OwnersStillCreating(context.kube, context.cluster_state)
        self._batcher = Batcher(
            context.clock, settings.batch_idle_duration, settings.batch_max_duration, still_creating
        )
        self._planning = Planning(context)
        self._ids = context.chance.child("reconcile", "provisioner")
        self._refused: dict[str, tuple[int, float]] = {}
        self._reported: dict[str, str] = {}
        self._runaway = RunawayGuard()
        self._has_unbound_pods = asyncio.Event()
        self._deadlines = TerminationDeadlines(context.cluster_state, context.clock)
        self._scale_ups = NodeGroupScaleUps(context.kube)
        context.cluster_state.listen(PODS, self._pod_changed)
        context.cluster_state.listen(NODES, self._node_changed)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)

    # -- triggers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._retry_unschedulable(), name="provisioner retries")
            group.create_task(self._scale_ups.run(), name="node group scale-ups")
            group.create_task(self._plan_speculatively(), name="speculative planning")
            group.create_task(self._deadlines.run(self._batcher.trigger), name="termination deadlines")
            while True:
                await self._batcher.wait()
                await self._context.cluster_state.synced.wait()
                with logs.reconciling("provisioner", self._ids.uid()):
                    try:
                        with self._context.metrics.runtime.reconciliation("provisioner", EXPLAINED):
                            await self.provision()
                    except KubeError as problem:
                        self._context.log.error("Reconciler error", error=str(problem))

    def _pod_changed(self, change: CacheChange[Pod]) -> None:
        pod = change.new
        if pod is not None and not pod.spec.node_name:
            self._has_unbound_pods.set()
        if pod is None:
            self._refused.pop(change.object.metadata.uid, None)
            self._reported.pop(change.object.metadata.uid, None)
        elif pod.spec.node_name or pod.metadata.uid in self._refused or self._nominated_pods(pod):
            return
        elif provisionable_pods.provisionable(pod):
            self._batcher.trigger(pod.metadata.uid)
        elif provisionable_pods.queued(pod):
            self._batcher.extend(pod.metadata.uid)

    def _nominated_pods(self, pod: Pod) -> bool:
        return self._context.cluster_state.nominations.of(pod.metadata.uid) is not None

    def _node_changed(self, change: CacheChange[Node]) -> None:
        node = change.new
        if node is not None and self._context.cluster_state.is_terminating(
            self._context.cluster_state.claim_for(node), node
        ):
            self._batcher.trigger(node.metadata.uid)

    def _claim_changed(self, change: CacheChange[NodeClaim]) -> None:
        """The pods of a deleted NodeClaim are pending again."""
        claim = change.object
        if change.new is None:
            self._runaway.claim_gone(claim.metadata.uid, launched=bool(claim.status.provider_id))
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            self._batcher.trigger(claim.metadata.uid)

    def _pool_changed(self, change: CacheChange[NodePool]) -> None:
        """A NodePool that became usable, or changed what it offers, may serve pods that were unschedulable."""
        old, new = change.old, change.new
        if new is not None and (old is None or old.spec != new.spec or nodepools.ready(old) != nodepools.ready(new)):
            self._refused.clear()
            self._batcher.trigger(new.metadata.uid)

    async def _retry_unschedulable(self) -> None:
        """Unschedulable pods are tried again, ever less often; all others were tried at once."""
        while True:
            if not self._context.cluster_state.unbound():
                self._has_unbound_pods.clear()
                await self._has_unbound_pods.wait()
            await asyncio.sleep(1.0)
            now = self._context.clock.monotonic()
            for pod in provisionable_pods.waiting(self._context.cluster_state):
                if provisionable_pods.provisionable(pod) and self._refused.get(pod.metadata.uid, (0, now))[1] <= now:
                    self._batcher.trigger(pod.metadata.uid)

    async def _plan_speculatively(self) -> None:
        """Whenever no pod has come for a moment, start a speculative plan for the pending ones."""
        while True:
            await self._batcher.lull.wait()
            self._batcher.lull.clear()
            if self._context.cluster_state.synced.is_set() and (pods := self._split_by_problem()[0]):
                self._planning.plan_speculatively(
                    self._context.snapshot_builder.build(
                        await self._context.instance_types.all(), pods, self._context.instance_types.unusable()
                    )
                )

    # -- one batch

    async def provision(self) -> None:
        """Plan for all pending pods, and create the NodeClaims of the plan."""
        context = self._context
        await context.nodeclaim_creator.complete()
        pods = self._pods_to_plan()
        if not pods:
            return
        if not any(not pool.static for pool in context.cluster_state.pools.store.all()):
            context.log.info("no dynamic nodepools found", controller="provisioner")
            why = NO_NODEPOOL
            early = [pod for pod in pods if self._too_early(pod, why)]
            for pod in early:
                self._try_soon(pod)
            self._report_unplanned([(pod, why) for pod in pods if pod not in early])
            return
        await self._serve(pods)

    async def _serve(self, pods: Sequence[Pod]) -> None:
        """One plan for all. If none holds, one for either half: one bad pod must not cost the others."""
        if await self._round(pods):
            return
        if len(pods) == 1:
            message = REASONS["PLAN_REFUSED"].message(violation=self._planning.refusal)
            self._report_unplanned([(pods[0], Unschedulable(code="PLAN_REFUSED", message=message))])
            return
        middle = len(pods) // 2
        await self._serve(pods[:middle])
        await self._serve(pods[middle:])

    async def _round(self, pods: Sequence[Pod]) -> bool:
        """Snapshot, plan, create, record; False if every plan was refused."""
        context = self._context
        began = context.clock.monotonic()
        context.pod_latency.planning(pods)
        snapshot = context.snapshot_builder.build(
            await context.instance_types.all(), pods, context.instance_types.unusable()
        )
        decision = context.decision_history.new_id()
        with context.metrics.planning("provisioner", decision, len(pods)):
            plan = await self._planning.provision(snapshot)
        if plan is None:
            return False
        context.pod_latency.decided(pods, plan.unschedulable)
        self._log_plan(plan, snapshot, decision, context.clock.monotonic() - began)
        by_key = {pod.metadata.key: pod for pod in pods}
        failed = await self._create_claims(plan, by_key, decision)
        self._nominate(plan, by_key, decision)
        self._report_refused(plan, by_key, decision)
        self._report_not_created(failed, by_key)
        left = {key for planned, _ in failed for key in planned.pods}
        for key in by_key.keys() - plan.unschedulable.keys() - left:
            self._refused.pop(by_key[key].metadata.uid, None)
        return True

    def _pods_to_plan(self) -> list[Pod]:
        """Pods to plan for; those that no plan can place get an event."""
        context = self._context
        if (forbidden := self._scale_ups.forbidden) is not None:
            context.rights.deny(READ_SCALE_UPS, str(forbidden))
        else:
            context.rights.allow(READ_SCALE_UPS)
        pods_to_plan, problems = self._split_by_problem()
        for pod, why in problems:
            ref = logs.ref(pod.metadata.name, pod.metadata.namespace)
            context.log.debug("ignoring pod", Pod=ref, error=why.message)
        self._report_unplanned(problems)
        context.metrics.ignored_pods.set(len(problems))
        return pods_to_plan

    def _split_by_problem(self) -> tuple[list[Pod], list[tuple[Pod, Unschedulable]]]:
        """Pods to plan for, and those that no plan can place. Pods for which a node group grows are neither.

        Nodes come first in the cluster state's time, so a race leaves a pod out rather than launches twice.
        """
        cluster_state = self._context.cluster_state
        pods: list[Pod] = []
        problems: list[tuple[Pod, Unschedulable]] = []
        now = self._context.clock.now()
        for pod in provisionable_pods.waiting(cluster_state):
            if self._scale_ups.underway(pod.metadata.uid, now) is not None:
                continue
            problem = provisionable_pods.refusal(cluster_state, pod) or self._runaway_problem(pod)
            if problem is None:
                pods.append(pod)
            else:
                problems.append((pod, problem))
        return [*pods, *provisionable_pods.evictable(cluster_state, now)], problems

    def _runaway_problem(self, pod: Pod) -> Unschedulable | None:
        """Why no more nodes are launched for this pod, if too many were already."""
        now = self._context.clock.monotonic()
        count = self._runaway.exhausted(pod, now, self._pods_of)
        return Unschedulable(code="RUNAWAY", message=REASONS["RUNAWAY"].message(count=count)) if count else None

    def _pods_of(self, uid: str) -> int:
        return sum(owner(pod) == uid for pod in self._context.cluster_state.pods.store.all())

    async def _create_claims(
        self, plan: Plan, pods: Mapping[str, Pod], decision: str
    ) -> Sequence[tuple[PlannedNode, KubeError]]:
        """Create the NodeClaims of a plan; those that were not created as far as is known, and why."""
        gate = asyncio.Semaphore(MAX_CONCURRENT_CREATES)

        async def create(planned: PlannedNode) -> str | KubeError:
            async with gate:
                return await self._create(planned, pods, decision)

        self._context.written.clear()
        try:
            made = await asyncio.gather(*(create(planned) for planned in plan.nodes))
        finally:
            self._context.written.set()
        outcomes = list(zip(plan.nodes, made, strict=True))
        failed = [(planned, why) for planned, why in outcomes if not isinstance(why, str)]
        names = {planned.name: why if isinstance(why, str) else "" for planned, why in outcomes}
        for planned, why in failed:
            if isinstance(why, FINAL_ERRORS):
                del names[planned.name]
        if names or any(place.node for place in plan.placements.values()):
            decision_history = self._context.decision_history
            decision_history.record(
                provisioning.launched(decision_history, self._context.cluster_state, plan, names, decision)
            )
        return failed

    def _report_not_created(self, failed: Sequence[tuple[PlannedNode, KubeError]], pods: Mapping[str, Pod]) -> None:
        """Report the pods of NodeClaims that the server refused for good; the others are tried again by themselves."""
        message = REASONS["NOT_WRITTEN"].message
        of_failed = [(pods[key], why) for planned, why in failed for key in planned.pods if key in pods]
        refusals = [
            (pod, Unschedulable(code="NOT_WRITTEN", message=message(problem=why)))
            for pod, why in of_failed
            if isinstance(why, FINAL_ERRORS)
        ]
        self._report_unplanned(refusals)
        for pod, why in of_failed:
            if not isinstance(why, FINAL_ERRORS):
                self._postpone(pod, CREATE_RETRY_MIN_S)

    async def _create(self, planned: PlannedNode, pods: Mapping[str, Pod], decision: str) -> str | KubeError:
        """Create one NodeClaim; its name, or why it was not created. Empty, if its NodePool is gone."""
        context = self._context
        pool = context.cluster_state.pools.store.get(planned.pool)
        if pool is None:
            return ""
        mine = [pods[key] for key in planned.pods if key in pods]
        body = nodeclaim_template.manifest(planned, pool, decision, [pod.metadata.uid for pod in mine])
        try:
            claim = await context.nodeclaim_creator.create(body)
        except KubeError as problem:
            context.log.error(
                "creating nodeclaim", controller="provisioner", NodePool=logs.ref(pool.name), error=str(problem)
            )
            return problem
        self._runaway.launched(mine, context.clock.monotonic(), claim.metadata.uid)
        self._log_created(claim, planned, decision)
        for pod in mine:
            context.event_publisher.nominated(pod, claim.name, decision=decision)
        return claim.name

    def _nominate(self, plan: Plan, pods: Mapping[str, Pod], decision: str) -> None:
        """Nominate pods for existing and starting nodes that they were planned onto."""
        cluster_state = self._context.cluster_state
        until = self._context.clock.monotonic() + NOMINATION_TTL_S
        nodes: set[str] = set()
        count = 0
        for key, place in plan.placements.items():
            if place.node is None or key not in pods:
                continue
            count += 1
            nodes.add(place.node)
            node = cluster_state.nodes.store.get(place.node)
            claim = cluster_state.claim_for(node) if node else cluster_state.claims.store.get(place.node)
            starting = claim is not None and not claim.is_true("Initialized")
            target = (
                NominationTarget("claim", claim.name) if claim and starting else NominationTarget("node", place.node)
            )
            cluster_state.nominate(
                pods[key],
                target,
                None if starting or cluster_state.is_on_terminating_node(pods[key].metadata.uid) else until,
            )
            if provisionable_pods.provisionable(pods[key]):
                name, where = claim.name if claim else None, place.node if node else None
                self._context.event_publisher.nominated(pods[key], name, where, decision)
        if count:
            self._context.log.info(
                "computed unready node(s) will fit pod(s)", controller="provisioner", nodes=len(nodes), pods=count
            )

    # -- events, log and history

    def _report_refused(self, plan: Plan, pods: Mapping[str, Pod], decision: str) -> None:
        context = self._context
        refused = plan.unschedulable
        context.metrics.unschedulable.labels("provisioner").set(len(refused))
        changed = False
        reported: dict[str, Unschedulable] = {}
        for key, why in refused.items():
            pod = pods.get(key)
            if pod is None:
                continue
            if self._too_early(pod, why):
                self._try_soon(pod)
                continue
            reported[key] = why
            self._postpone(pod)
            message = _reported(why)
            context.event_publisher.failed_scheduling(pod, message, decision)
            funnels = "".join(f"\n{name}: {funnel.emptied_by}" for name, funnel in why.pools.items())
            last_reported = self._reported.get(pod.metadata.uid, "")
            self._reported[pod.metadata.uid] = message + funnels
            changed = changed or last_reported != message + funnels
            if last_reported.partition("\n")[0] != message:
                context.log.error(
                    "could not schedule pod",
                    controller="provisioner",
                    Pod=logs.ref(pod.metadata.name, pod.metadata.namespace),
                    error=why.message,
                    code=why.code,
                    decision=decision,
                )
        self._report_nodepools_without_types(plan)
        if changed:
            context.decision_history.record(
                provisioning.refused(context.decision_history, context.cluster_state, reported, decision)
            )

    def _too_early(self, pod: Pod, why: Unschedulable) -> bool:
        """Whether what is missing may have been applied with the pod, a moment ago: a warning would pass at once."""
        born = [pod.metadata.creation_timestamp] if why.code == "NO_NODEPOOL" and not why.pools else []
        for name, funnel in why.pools.items():
            pool = self._context.cluster_state.pools.store.get(name) if funnel.unusable and funnel.suits else None
            cause = self._context.instance_types.cause(pool) if pool is not None else None
            if pool is not None and (cause is None or cause.awaited):
                born += [pod.metadata.creation_timestamp, pool.metadata.creation_timestamp]
        latest = max((moment for moment in born if moment is not None), default=None)
        return latest is not None and self._context.clock.now() - latest < FIRST_WARNING_GRACE

    def _report_nodepools_without_types(self, plan: Plan) -> None:
        """NodePools without any launchable instance type, for all pods."""
        context = self._context
        funnels = [item for why in plan.unschedulable.values() for item in why.pools.items()]
        for name in sorted({name for name, funnel in funnels if funnel.offers_nothing}):
            pool = context.cluster_state.pools.store.get(name)
            if pool is not None and context.event_publisher.no_types(pool):
                message = "skipping, nodepool requirements filtered out all instance types"
                context.log.info(message, controller="provisioner", NodePool=logs.ref(name))

    def _report_unplanned(self, refusals: Sequence[tuple[Pod, Unschedulable]]) -> None:
        """Report pods that no plan was made for, or no valid one; record what is new."""
        context = self._context
        changed = {
            pod.metadata.key: why for pod, why in refusals if self._reported.get(pod.metadata.uid) != why.message
        }
        decision = context.decision_history.new_id() if changed else ""
        for pod, why in refusals:
            context.event_publisher.failed_scheduling(pod, _reported(why), decision)
            self._reported[pod.metadata.uid] = why.message
            self._postpone(pod)
        if changed:
            context.decision_history.record(
                provisioning.refused(context.decision_history, context.cluster_state, changed, decision)
            )

    def _try_soon(self, pod: Pod) -> None:
        self._refused[pod.metadata.uid] = (0, self._context.clock.monotonic() + RETRY_EARLY_S)

    def _postpone(self, pod: Pod, first: float = RETRY_MIN_S) -> None:
        times = self._refused.get(pod.metadata.uid, (0, 0.0))[0] + 1
        again = self._context.clock.monotonic() + doubled(first, RETRY_MAX_S, times)
        self._refused[pod.metadata.uid] = (times, again)

    def _log_plan(self, plan: Plan, snapshot: Snapshot, decision: str, seconds: float) -> None:
        context, metrics = self._context, self._context.metrics
        keys = [pod.metadata.key for pod in snapshot.pending]
        context.log.info(
            "found provisionable pod(s)",
            controller="provisioner",
            Pods=logs.some(keys),
            duration=f"{seconds * 1000:.3f}ms",
            decision=decision,
        )
        metrics.scheduling.labels("provisioner").observe(plan.seconds)
        metrics.plan_cost.labels("provisioner").set(plan.cost.per_hour)
        if plan.cost.lower_bound is not None:
            metrics.plan_bound.labels("provisioner").set(plan.cost.lower_bound)
        if plan.cost.gap is not None:
            metrics.plan_gap.labels("provisioner").set(plan.cost.gap)
        if plan.nodes:
            context.log.info(
                "computed new nodeclaim(s) to fit pod(s)",
                controller="provisioner",
                nodeclaims=len(plan.nodes),
                pods=sum(len(planned.pods) for planned in plan.nodes),
                decision=decision,
                cost=round(plan.cost.per_hour, 6),
                bound=plan.cost.lower_bound,
                gap=plan.cost.gap,
                tier=plan.tier,
            )

    def _log_created(self, claim: NodeClaim, planned: PlannedNode, decision: str) -> None:
        context = self._context
        types = list(dict.fromkeys(choice.instance_type for choice in planned.offerings))
        context.log.info(
            "created nodeclaim",
            controller="provisioner",
            NodePool=logs.ref(planned.pool),
            NodeClaim=logs.ref(claim.name),
            requests=logs.amounts(planned.requests),
            decision=decision,
            price=planned.price,
            **{"instance-types": logs.some(types)},
        )
        context.metrics.claims_created.labels(
            "provisioned", planned.pool, claim.metadata.annotations.get(wellknown.MIN_VALUES_RELAXED, "false")
        ).inc()


def _reported(why: Unschedulable) -> str:
    """The reason, its remedy and its code, as `kubectl describe pod` shows them."""
    remedy = why.remedy or (REASONS[why.code].remedy if why.code in REASONS else "")
    if remedy and remedy not in why.message:
        return f"{why.message}; {remedy} ({why.code})"
    return f"{why.message} ({why.code})"
