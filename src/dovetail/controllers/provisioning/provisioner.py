"""The provisioner: wait for a batch, take a snapshot, plan, verify, create NodeClaims, record.

Its NodeClaims name their pods; everything after that is done by other controllers.
If it dies between two of them, the pods of the missing ones are pending again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from dovetail.cluster import nodepools
from dovetail.cluster.nominations import Target
from dovetail.cluster.state import NOMINATION
from dovetail.controllers import logs
from dovetail.controllers.context import Context
from dovetail.controllers.history import provisioning
from dovetail.controllers.provisioning import nodeclaim_template, provisionable_pods
from dovetail.controllers.provisioning.batcher import Batcher, Filling
from dovetail.controllers.provisioning.planning import Planning
from dovetail.controllers.provisioning.runaway import Attempts, owner
from dovetail.controllers.provisioning.termination_deadlines import Ends
from dovetail.controllers.worker import EXPLAINED
from dovetail.kube.backoff import doubled
from dovetail.kube.errors import Forbidden, Invalid, KubeError, Unauthorized
from dovetail.kube.reflector import Change
from dovetail.kube.resources import NODECLAIMS, NODEPOOLS, NODES, PODS
from dovetail.model import wellknown
from dovetail.model.kinds.nodeclaim import NodeClaim
from dovetail.model.kinds.nodepool import NodePool
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.reasons import REASONS
from dovetail.planner.plan import Machine, Plan, Unschedulable
from dovetail.planner.snapshot import Snapshot

#: An unschedulable pod is tried again after so many seconds, then after twice as many, up to the last.
RETRY_FIRST, RETRY_LAST = 10.0, 60.0
#: Errors that the same NodeClaim would get again. Without an answer it may have been created all the same.
FIRM = (Forbidden, Unauthorized, Invalid)
#: Concurrent creations of NodeClaims.
AT_ONCE = 20


class Provisioner:
    """The controller `provisioner`."""

    def __init__(self, context: Context) -> None:
        settings = context.settings
        self._context = context
        filling = Filling(context.kube, context.cluster_state)
        self._batcher = Batcher(context.clock, settings.batch_idle_duration, settings.batch_max_duration, filling)
        self._planning = Planning(context)
        self._ids = context.chance.child("reconcile", "provisioner")
        self._refused: dict[str, tuple[int, float]] = {}
        self._told: dict[str, str] = {}
        self._attempts = Attempts()
        self._somebody = asyncio.Event()
        self._ends = Ends(context.cluster_state, context.clock)
        context.cluster_state.listen(PODS, self._pod_changed)
        context.cluster_state.listen(NODES, self._node_changed)
        context.cluster_state.listen(NODECLAIMS, self._claim_changed)
        context.cluster_state.listen(NODEPOOLS, self._pool_changed)

    # -- triggers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_again(), name="provisioner retries")
            group.create_task(self._think_ahead(), name="speculative planning")
            group.create_task(self._ends.run(self._batcher.trigger), name="termination deadlines")
            while True:
                await self._batcher.wait()
                await self._context.cluster_state.synced.wait()
                with logs.reconciling("provisioner", self._ids.uid()):
                    try:
                        with self._context.metrics.runtime.reconciliation("provisioner", EXPLAINED):
                            await self.provision()
                    except KubeError as problem:
                        self._context.log.error("Reconciler error", error=str(problem))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and not pod.spec.node_name:
            self._somebody.set()
        if pod is None:
            self._refused.pop(change.object.metadata.uid, None)
            self._told.pop(change.object.metadata.uid, None)
        elif pod.spec.node_name or pod.metadata.uid in self._refused or self._nominated_pods(pod):
            return
        elif provisionable_pods.provisionable(pod):
            self._batcher.trigger(pod.metadata.uid)
        elif provisionable_pods.queued(pod):
            self._batcher.extend(pod.metadata.uid)

    def _nominated_pods(self, pod: Pod) -> bool:
        return self._context.cluster_state.reservations.of(pod.metadata.uid) is not None

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new
        if node is not None and self._context.cluster_state.going(self._context.cluster_state.claim_for(node), node):
            self._batcher.trigger(node.metadata.uid)

    def _claim_changed(self, change: Change[NodeClaim]) -> None:
        """The pods of a deleted NodeClaim are pending again."""
        claim = change.object
        if change.new is None:
            self._attempts.over(claim.metadata.uid, launched=bool(claim.status.provider_id))
        if change.new is None or change.new.metadata.deletion_timestamp is not None:
            self._batcher.trigger(claim.metadata.uid)

    def _pool_changed(self, change: Change[NodePool]) -> None:
        """A NodePool that became usable, or changed what it offers, may serve pods that were unschedulable."""
        old, new = change.old, change.new
        if new is not None and (old is None or old.spec != new.spec or nodepools.ready(old) != nodepools.ready(new)):
            self._refused.clear()
            self._batcher.trigger(new.metadata.uid)

    async def _look_again(self) -> None:
        """Unschedulable pods are tried again, ever less often; all others were tried at once."""
        while True:
            if not self._context.cluster_state.unbound():
                self._somebody.clear()
                await self._somebody.wait()
            await asyncio.sleep(1.0)
            now = self._context.clock.monotonic()
            for pod in provisionable_pods.waiting(self._context.cluster_state):
                if provisionable_pods.provisionable(pod) and self._refused.get(pod.metadata.uid, (0, now))[1] <= now:
                    self._batcher.trigger(pod.metadata.uid)

    async def _think_ahead(self) -> None:
        """Whenever no pod has come for a moment, start a speculative plan for the pending ones."""
        while True:
            await self._batcher.lull.wait()
            self._batcher.lull.clear()
            if self._context.cluster_state.synced.is_set() and (pods := self._sorted_out()[0]):
                self._planning.think_ahead(self._context.snapshot_builder.cut(await self._context.offers.all(), pods))

    # -- one batch

    async def provision(self) -> None:
        """Plan for all pending pods, and create the NodeClaims of the plan."""
        context = self._context
        pods = self._wanted()
        if not pods:
            return
        if not any(not pool.static for pool in context.cluster_state.pools.store.all()):
            context.log.info("no dynamic nodepools found", controller="provisioner")
            why = Unschedulable(code="NO_NODEPOOL", message="no nodepools found")
            self._turn_away([(pod, why) for pod in pods])
            return
        await self._serve(pods)

    async def _serve(self, pods: Sequence[Pod]) -> None:
        """One plan for all. If none holds, one for either half: one bad pod must not cost the others."""
        if await self._round(pods):
            return
        if len(pods) == 1:
            told = REASONS["PLAN_REFUSED"].told(violation=self._planning.refusal)
            self._turn_away([(pods[0], Unschedulable(code="PLAN_REFUSED", message=told))])
            return
        middle = len(pods) // 2
        await self._serve(pods[:middle])
        await self._serve(pods[middle:])

    async def _round(self, pods: Sequence[Pod]) -> bool:
        """Snapshot, plan, create, record; False if every plan was refused."""
        context = self._context
        began = context.clock.monotonic()
        context.waits.looked_at(pods)
        snapshot = context.snapshot_builder.cut(await context.offers.all(), pods)
        decision = context.decision_history.new_id()
        with context.metrics.planning("provisioner", decision, len(pods)):
            plan = await self._planning.provision(snapshot)
        if plan is None:
            return False
        context.waits.decided(pods, plan.unschedulable)
        self._tell(plan, snapshot, decision, context.clock.monotonic() - began)
        by_key = {pod.metadata.key: pod for pod in pods}
        refused = await self._buy(plan, by_key, decision)
        self._nominate(plan, by_key, decision)
        self._report_refused(plan, by_key, decision)
        self._not_written(refused, by_key)
        left = {key for machine, _ in refused for key in machine.pods}
        for key in by_key.keys() - plan.unschedulable.keys() - left:
            self._refused.pop(by_key[key].metadata.uid, None)
        return True

    def _wanted(self) -> list[Pod]:
        """Pods to plan for; those that no plan can place get an event."""
        context = self._context
        wanted, problems = self._sorted_out()
        for pod, why in problems:
            ref = logs.ref(pod.metadata.name, pod.metadata.namespace)
            context.log.debug("ignoring pod", Pod=ref, error=why.message)
        self._turn_away(problems)
        context.metrics.ignored_pods.set(len(problems))
        return wanted

    def _sorted_out(self) -> tuple[list[Pod], list[tuple[Pod, Unschedulable]]]:
        """Pods to plan for, and those that no plan can place.

        Nodes come first in the cluster state's time, so a race leaves a pod out rather than launches twice.
        """
        cluster_state = self._context.cluster_state
        found: list[Pod] = []
        problems: list[tuple[Pod, Unschedulable]] = []
        for pod in provisionable_pods.waiting(cluster_state):
            problem = provisionable_pods.refusal(cluster_state, pod) or self._in_vain(pod)
            if problem is None:
                found.append(pod)
            else:
                problems.append((pod, problem))
        return [*found, *provisionable_pods.leaving(cluster_state, self._context.clock.now())], problems

    def _in_vain(self, pod: Pod) -> Unschedulable | None:
        """Why no more nodes are launched for this pod, if too many were already."""
        now = self._context.clock.monotonic()
        count = self._attempts.exhausted(pod, now, self._pods_of)
        return Unschedulable(code="RUNAWAY", message=REASONS["RUNAWAY"].told(count=count)) if count else None

    def _pods_of(self, uid: str) -> int:
        return sum(owner(pod) == uid for pod in self._context.cluster_state.pods.store.all())

    async def _buy(self, plan: Plan, pods: Mapping[str, Pod], decision: str) -> Sequence[tuple[Machine, KubeError]]:
        """Create the NodeClaims of a plan; those that the server refused, and why."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def create(machine: Machine) -> str | KubeError:
            async with gate:
                return await self._create(machine, pods, decision)

        self._context.written.clear()
        try:
            made = await asyncio.gather(*(create(machine) for machine in plan.machines))
        finally:
            self._context.written.set()
        outcomes = list(zip(plan.machines, made, strict=True))
        refused = [(machine, why) for machine, why in outcomes if isinstance(why, FIRM)]
        names = {machine.name: why if isinstance(why, str) else "" for machine, why in outcomes}
        for machine, _ in refused:
            del names[machine.name]
        if names or any(place.node for place in plan.placements.values()):
            decision_history = self._context.decision_history
            decision_history.record(
                provisioning.bought(decision_history, self._context.cluster_state, plan, names, decision)
            )
        return refused

    def _not_written(self, refused: Sequence[tuple[Machine, KubeError]], pods: Mapping[str, Pod]) -> None:
        """Report the pods of NodeClaims that the server refused."""
        told = REASONS["NOT_WRITTEN"].told
        found = [
            (pods[key], Unschedulable(code="NOT_WRITTEN", message=told(problem=why)))
            for machine, why in refused
            for key in machine.pods
            if key in pods
        ]
        self._turn_away(found)

    async def _create(self, machine: Machine, pods: Mapping[str, Pod], decision: str) -> str | KubeError:
        """Create one NodeClaim; its name, or why it was not created. Empty, if its NodePool is gone."""
        context = self._context
        pool = context.cluster_state.pools.store.get(machine.pool)
        if pool is None:
            return ""
        mine = [pods[key] for key in machine.pods if key in pods]
        body = nodeclaim_template.manifest(machine, pool, decision, [pod.metadata.uid for pod in mine])
        try:
            claim = await context.kube.create(NODECLAIMS, body, type=NodeClaim)
        except KubeError as problem:
            # Without an answer the NodeClaim may exist all the same; then the watch brings it, with its pods.
            context.log.error(
                "creating nodeclaim", controller="provisioner", NodePool=logs.ref(pool.name), error=str(problem)
            )
            return problem
        context.cluster_state.assume(claim)
        self._attempts.bought(mine, context.clock.monotonic(), claim.metadata.uid)
        self._tell_created(claim, machine, decision)
        for pod in mine:
            context.event_publisher.nominated(pod, claim.name, decision=decision)
        return claim.name

    def _nominate(self, plan: Plan, pods: Mapping[str, Pod], decision: str) -> None:
        """Nominate pods for existing and starting nodes that they were planned onto."""
        cluster_state = self._context.cluster_state
        until = self._context.clock.monotonic() + NOMINATION
        nodes: set[str] = set()
        count = 0
        for key, place in plan.placements.items():
            if place.node is None or key not in pods:
                continue
            count += 1
            nodes.add(place.node)
            node = cluster_state.nodes.store.get(place.node)
            claim = cluster_state.claim_for(node) if node else cluster_state.claims.store.get(place.node)
            replacement_nominations = claim is not None and not claim.is_true("Initialized")
            target = Target("claim", claim.name) if claim and replacement_nominations else Target("node", place.node)
            cluster_state.nominate(
                pods[key],
                target,
                None if replacement_nominations or cluster_state.leaves(pods[key].metadata.uid) else until,
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
        news = False
        left_out = context.offers.left_out() if refused else {}
        for key, why in refused.items():
            pod = pods.get(key)
            if pod is None:
                continue
            self._postpone(pod)
            message = _told(why, left_out)
            context.event_publisher.failed_scheduling(pod, message, decision)
            if self._told.get(pod.metadata.uid) != message:
                self._told[pod.metadata.uid] = message
                news = True
                context.log.error(
                    "could not schedule pod",
                    controller="provisioner",
                    Pod=logs.ref(pod.metadata.name, pod.metadata.namespace),
                    error=why.message,
                    code=why.code,
                    decision=decision,
                )
        self._report_barren(plan)
        if news:
            context.decision_history.record(
                provisioning.refused(context.decision_history, context.cluster_state, refused, decision)
            )

    def _report_barren(self, plan: Plan) -> None:
        """NodePools without any launchable instance type, for all pods."""
        context = self._context
        funnels = [item for why in plan.unschedulable.values() for item in why.pools.items()]
        for name in sorted({name for name, funnel in funnels if funnel.barren}):
            pool = context.cluster_state.pools.store.get(name)
            if pool is not None and context.event_publisher.no_types(pool):
                message = "skipping, nodepool requirements filtered out all instance types"
                context.log.info(message, controller="provisioner", NodePool=logs.ref(name))

    def _turn_away(self, found: Sequence[tuple[Pod, Unschedulable]]) -> None:
        """Report pods that no plan was made for, or no valid one; record what is new."""
        context = self._context
        news = {pod.metadata.key: why for pod, why in found if self._told.get(pod.metadata.uid) != why.message}
        decision = context.decision_history.new_id() if news else ""
        for pod, why in found:
            context.event_publisher.failed_scheduling(pod, f"{why.message} ({why.code})", decision)
            self._told[pod.metadata.uid] = why.message
            self._postpone(pod)
        if news:
            context.decision_history.record(
                provisioning.refused(context.decision_history, context.cluster_state, news, decision)
            )

    def _postpone(self, pod: Pod) -> None:
        times = self._refused.get(pod.metadata.uid, (0, 0.0))[0] + 1
        again = self._context.clock.monotonic() + doubled(RETRY_FIRST, RETRY_LAST, times)
        self._refused[pod.metadata.uid] = (times, again)

    def _tell(self, plan: Plan, snapshot: Snapshot, decision: str, seconds: float) -> None:
        context, metrics = self._context, self._context.metrics
        keys_ = [pod.metadata.key for pod in snapshot.pending]
        context.log.info(
            "found provisionable pod(s)",
            controller="provisioner",
            Pods=logs.some(keys_),
            duration=f"{seconds * 1000:.3f}ms",
            decision=decision,
        )
        metrics.scheduling.labels("provisioner").observe(plan.seconds)
        metrics.plan_cost.labels("provisioner").set(plan.cost.per_hour)
        if plan.cost.lower_bound is not None:
            metrics.plan_bound.labels("provisioner").set(plan.cost.lower_bound)
        if plan.cost.gap is not None:
            metrics.plan_gap.labels("provisioner").set(plan.cost.gap)
        if plan.machines:
            context.log.info(
                "computed new nodeclaim(s) to fit pod(s)",
                controller="provisioner",
                nodeclaims=len(plan.machines),
                pods=sum(len(machine.pods) for machine in plan.machines),
                decision=decision,
                cost=round(plan.cost.per_hour, 6),
                bound=plan.cost.lower_bound,
                gap=plan.cost.gap,
                tier=plan.tier,
            )

    def _tell_created(self, claim: NodeClaim, machine: Machine, decision: str) -> None:
        context = self._context
        types = list(dict.fromkeys(choice.instance_type for choice in machine.offerings))
        context.log.info(
            "created nodeclaim",
            controller="provisioner",
            NodePool=logs.ref(machine.pool),
            NodeClaim=logs.ref(claim.name),
            requests=logs.amounts(machine.requests),
            decision=decision,
            price=machine.price,
            **{"instance-types": logs.some(types)},
        )
        context.metrics.claims_created.labels(
            "provisioned", machine.pool, claim.metadata.annotations.get(wellknown.MIN_VALUES_RELAXED, "false")
        ).inc()


def _told(why: Unschedulable, left_out: Mapping[str, str]) -> str:
    """The reason, its remedy and its code, as `kubectl describe pod` shows them, and which NodePools were left out."""
    cure = why.cure or (REASONS[why.code].cure if why.code in REASONS else "")
    text = f"{why.message}; {cure} ({why.code})" if cure and cure not in why.message else f"{why.message} ({why.code})"
    return text + "".join(f"; nodepool {pool!r} is left out: {problem}" for pool, problem in left_out.items())
