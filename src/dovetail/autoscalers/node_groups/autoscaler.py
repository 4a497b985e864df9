"""The loop: look at the cluster and its groups, plan, act, record. One pass is `run_once`.

Nothing of it is needed again after a crash but what Kubernetes and the cloud hold: unneeded times are taken over from
taints, sizes from the groups, and a deletion that was cut short is undone at the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.autoscalers.node_groups import soft_taints
from dovetail.autoscalers.node_groups.actuation import Actuator
from dovetail.autoscalers.node_groups.annotations import is_being_deleted
from dovetail.autoscalers.node_groups.backoff import GroupBackoff
from dovetail.autoscalers.node_groups.balancing import Increase
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState
from dovetail.autoscalers.node_groups.cluster_watch import ClusterWatch
from dovetail.autoscalers.node_groups.cooldown import Cooldown
from dovetail.autoscalers.node_groups.decision_log import NodeGroupDecisions
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import DrainContext
from dovetail.autoscalers.node_groups.estimator import fresh_node
from dovetail.autoscalers.node_groups.expander_chain import ExpanderChain
from dovetail.autoscalers.node_groups.expanders import Filter, Option, choose
from dovetail.autoscalers.node_groups.explanations import explanations
from dovetail.autoscalers.node_groups.explanations import text as explanation_text
from dovetail.autoscalers.node_groups.group_repair import GroupRepair
from dovetail.autoscalers.node_groups.leftover_taints import LeftoverTaints
from dovetail.autoscalers.node_groups.metrics import ClusterAutoscalerMetrics, measure
from dovetail.autoscalers.node_groups.node_templates import NodeTemplates
from dovetail.autoscalers.node_groups.options import AutoscalingOptions
from dovetail.autoscalers.node_groups.pending import (
    all_new,
    is_recent,
    is_recreatable,
    is_unprocessed,
    is_unschedulable,
    old_enough,
    schedulable_with_groups,
    without_places,
)
from dovetail.autoscalers.node_groups.provisioning_requests import consumed
from dovetail.autoscalers.node_groups.quotas import Quotas, totals
from dovetail.autoscalers.node_groups.readiness import is_ready
from dovetail.autoscalers.node_groups.recording import LoopRecorder
from dovetail.autoscalers.node_groups.request_controller import ProvisioningRequestController
from dovetail.autoscalers.node_groups.scale_down import ScaleDownPlanner
from dovetail.autoscalers.node_groups.scale_down_log import cooldown_line, node_lines
from dovetail.autoscalers.node_groups.scale_up import (
    IN_BACKOFF,
    NOT_READY,
    ScaleUpInput,
    ScaleUpPlan,
    ScaleUpResult,
    is_at_max_total,
    plan_minimum_sizes,
    plan_scale_up,
)
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.autoscalers.node_groups.unremovable import Unremovable, UnremovableReason
from dovetail.chance import Chance
from dovetail.clock import Clock, stopwatch
from dovetail.cloud.node_groups import (
    ErrorClass,
    InstanceError,
    NodeGroup,
    NodeGroupCloud,
    NodeGroupError,
)
from dovetail.kube.client import Kube
from dovetail.kube.errors import KubeError
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

SOURCE = "static_autoscaler"
#: A cluster may take this long until its first nodes are ready before that is worth an event.
FIRST_NODES_S = 600.0


class LoopFailed(Exception):
    """A pass could not be finished; `kind` counts it in metrics."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NodeGroupAutoscaler:
    """Made by `program.run`; `run` loops until cancelled."""

    def __init__(
        self,
        options: AutoscalingOptions,
        kube: Kube,
        cloud: NodeGroupCloud,
        watch: ClusterWatch,
        actuator: Actuator,
        recording: LoopRecorder,
        metrics: ClusterAutoscalerMetrics,
        cooldown: Cooldown,
        decisions: NodeGroupDecisions,
        requests: ProvisioningRequestController | None,
        clock: Clock,
        chance: Chance,
    ) -> None:
        self.options = options
        self._kube = kube
        self._cloud = cloud
        self._watch = watch
        self._actuator = actuator
        self._record = recording
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self.state = GroupClusterState(options.health, GroupBackoff(options.backoff), self.is_ready)
        self.planner = ScaleDownPlanner(options.scale_down)
        self._repair = GroupRepair(cloud, self.state, recording, metrics)
        soft_taints_used = options.soft_taints.count > 0
        self._leftovers = LeftoverTaints(kube, actuator, self.group_of, recording, soft_taints_used=soft_taints_used)
        self._templates = NodeTemplates(cloud, watch, options, recording, self.is_ready)
        self._hints: dict[str, str] = {}
        self.cooldown = cooldown
        self._decisions = decisions
        self.requests = requests
        self._expanders = ExpanderChain(options.expanders, kube, cloud, recording, options.namespace)
        self._started = clock.now()
        #: Groups resized and deletions begun so far.
        self.actions = 0
        #: What the cluster lacks to begin with, as the status says it.
        self._lacking = ""
        self._wake = asyncio.Event()
        self.last_loop = clock.monotonic()
        self.last_success = clock.monotonic()
        self.last_plan: ScaleUpPlan | None = None

    def is_ready(self, node: Node) -> bool:
        return is_ready(node, self.options.taints)

    def pod_changed(self, pod: Pod) -> None:
        """A pod that has just become unschedulable starts a loop."""
        if self.options.frequent_loops and is_recent(pod, self._clock.now()):
            self._wake.set()

    # The loop

    async def run(self) -> None:
        """The first pass comes one interval after the start; a pass that did something is followed by another."""
        productive = False
        while True:
            if productive and self.options.frequent_loops:
                self._record.log(SOURCE, "Autoscaler loop triggered immediately after a productive iteration", 1)
                await asyncio.sleep(0)
            else:
                await self._wait()
            before = self.actions
            await self.attempt()
            productive = self.actions > before

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self.options.scan_interval_s):
                await self._wake.wait()
            self._record.log(SOURCE, "Autoscaler loop triggered by unschedulable pod appearing", 1)
        except TimeoutError:
            self._record.log(SOURCE, f"Autoscaler loop triggered by a {self.options.scan_interval_s:g}s timer", 1)
        self._wake.clear()

    async def attempt(self) -> None:
        """One pass; a failure is logged and counted, and the next pass tries again."""
        now = self._clock.now()
        started = stopwatch()
        self._metrics.last_activity.labels("main").set(now.timestamp())
        self.last_loop = self._clock.monotonic()
        try:
            await self.run_once(now)
            self.last_success = self._clock.monotonic()
        except Exception as problem:  # whatever it is: reported, counted, and --max-failing-time bounds how long
            self._tell_failure(problem)
        try:
            await self._write_status(self._clock.now())
        except Exception as problem:
            self._tell_failure(problem)
        self._metrics.duration.labels("main").observe(stopwatch() - started)

    def _tell_failure(self, problem: Exception) -> None:
        if isinstance(problem, LoopFailed):
            kind = problem.kind
        elif isinstance(problem, NodeGroupError):
            kind = "cloudProviderError"
        elif isinstance(problem, KubeError):
            kind = "apiCallError"
        else:
            self._metrics.errors.labels("internalError").inc()
            self._record.unexpected(SOURCE, "Failed to run a loop", problem)
            return
        self._metrics.errors.labels(kind).inc()
        self._record.error(SOURCE, f"Failed to run a loop: {problem}")

    async def run_once(self, now: datetime) -> None:
        self._record.log(SOURCE, "Starting main loop", 4)
        stale = self._watch.staleness()
        if stale:
            self.planner.clear()
            raise LoopFailed("apiCallError", stale)
        await self._refresh()
        groups = self._cloud.groups()
        nodes = list(self._watch.nodes.store)
        self._tell_endings(nodes)
        self._record.mixed_sizes(groups)
        if self._lacks_nodes(nodes, now):
            return
        await self._leftovers.remove(nodes, self._take_over_candidates)
        snapshot = self._watch.snapshot(self.options.expendable_cutoff)
        templates = await self._templates.of_groups(groups, snapshot, now)
        self.state.update(nodes, groups, now)
        self._tell_happenings()
        measure(self._metrics, self.state, nodes, self.options.scale_up.max_nodes_total, now)
        await self._repair.revert_timed_out()
        await self._repair.remove_overdue(now)
        if not self.state.is_cluster_healthy():
            self._record.warning(SOURCE, "Cluster is not ready for autoscaling")
            self.planner.clear()
            self._record.status_event("Warning", "ClusterUnhealthy", "Cluster is unhealthy")
            return
        await self._repair.remove_failed()
        if await self._repair.fix_sizes(now):
            self._record.log(SOURCE, "Some node group target size was fixed, skipping the iteration")
            return
        starting = self._inject_upcoming(snapshot, templates, now)
        if self.requests is not None:
            await self.requests.end_expired(now)
            snapshot.schedule(self.requests.booked_pods(self._watch.pods.store, now))
        pods = self._pods_to_help(snapshot, now)
        quotas = self._growth_quotas(nodes, templates)
        scale_up_input = self._scale_up_input(
            snapshot, templates, quotas, nodes, await self._expanders.filters(len(nodes)), now
        )
        plan = self._plan(pods, scale_up_input, now)
        self.last_plan = plan
        await self._carry_out(plan, now)
        if plan.result is ScaleUpResult.SUCCESSFUL:
            return
        if self.requests is not None and await self.requests.serve(
            snapshot, scale_up_input, lambda increases: self._increase(increases, now), now
        ):
            return
        if self.options.scale_down_enabled:
            there = [node for node in nodes if node.metadata.name not in starting]
            await self._scale_down(snapshot, there, plan.result is ScaleUpResult.IN_COOLDOWN, now)
        if self.options.enforce_min_size:
            increases = plan_minimum_sizes(scale_up_input)
            if increases:
                await self._increase(increases, now)

    def _takes_pods(self, node: Node) -> bool:
        return self.is_ready(node) and not node.spec.unschedulable

    def _lacks_nodes(self, nodes: Sequence[Node], now: datetime) -> bool:
        """Whether no node is ready and --scale-up-from-zero=false forbids to begin there."""
        self._lacking = ""
        if self.options.scale_up_from_zero or any(self._takes_pods(node) for node in nodes):
            return False
        problem = self._lacking = "Cluster has no ready nodes." if nodes else "Cluster has no nodes."
        self._record.warning(SOURCE, problem)
        self.planner.clear()
        if not nodes or self._started + timedelta(seconds=FIRST_NODES_S) < now:
            self._record.status_event("Warning", "ClusterUnhealthy", problem)
        return True

    async def _refresh(self) -> None:
        started = stopwatch()
        try:
            await self._cloud.refresh()
        except NodeGroupError:
            raise
        except Exception as problem:  # whatever the cloud's library raises: the next pass asks again
            raise LoopFailed("cloudProviderError", f"Failed to refresh cloud provider config: {problem}") from problem
        finally:
            self._metrics.duration.labels("cloudProviderRefresh").observe(stopwatch() - started)

    def _take_over_candidates(self, nodes: Sequence[Node]) -> None:
        """With --node-deletion-candidate-ttl what an earlier program found goes on."""
        if self.options.candidate_life_s > 0:
            self.planner.load_candidates(nodes, self._clock.now(), self.options.candidate_life_s)

    def _tell_happenings(self) -> None:
        for happening in self.state.happenings:
            self._record.status_event(happening.kind, happening.reason, happening.message)
            self._record.warning("clusterstate", happening.message)
        self.state.happenings.clear()
        for _, error, _ in self.state.failures:
            self._metrics.failed_scale_ups.labels(error.code).inc()
        self.state.failures.clear()

    def _tell_endings(self, nodes: Sequence[Node]) -> None:
        """The group chose the instance: its pods were not drained, and only its owner can keep it from doing so."""
        names = {node.spec.provider_id: node.metadata.name for node in nodes}
        for ending in self._cloud.group_initiated_terminations():
            self._record.ended_by_group(ending, names.get(ending.provider_id, ""))

    # Growing

    def _inject_upcoming(self, snapshot: ClusterSnapshot, templates: Mapping[str, NodeInfo], now: datetime) -> set[str]:
        """Nodes that will come take part already; those that have registered and started not are theirs."""
        counts, starting = self.state.upcoming(now)
        for name, count in counts.items():
            template = templates.get(name)
            for number in range(count if template is not None else 0):
                assert template is not None
                snapshot.add_node(fresh_node(template, f"{template.name}-upcoming-{number}"))
        for name in starting:
            if name in snapshot.nodes:
                snapshot.remove_node(name)
        return starting

    def _pods_to_help(self, snapshot: ClusterSnapshot, now: datetime) -> list[Pod]:
        options = self.options
        pending: list[Pod] = []
        unprocessed = 0
        served = self._watch.node_claims.served()
        for pod in self._watch.pods.store:
            if pod.metadata.uid in served or (self.requests is not None and consumed(pod)):
                continue
            if options.allowed_schedulers and pod.spec.scheduler_name not in options.allowed_schedulers:
                continue
            if is_unschedulable(pod):
                pending.append(pod)
            elif is_unprocessed(pod, options.bypassed_schedulers):
                pending.append(pod)
                unprocessed += 1
        self._metrics.unschedulable_pods.labels("unschedulable").set(len(pending) - unprocessed)
        self._metrics.unschedulable_pods.labels("scheduler_unprocessed").set(unprocessed)
        moving = [
            pod
            for name in self._actuator.draining()
            for pod in self._watch.pods_on(name)
            if is_recreatable(pod) and not pod.terminating
        ]
        pods = schedulable_with_groups([*pending, *moving], options.expendable_cutoff)
        left = without_places(pods, snapshot, self._hints)
        return old_enough(left, options.new_pod_delay_s, now)

    def _growth_quotas(self, nodes: Sequence[Node], templates: Mapping[str, NodeInfo]) -> Quotas:
        """What groups may still add: their targets count, and the nodes of no group."""
        counted: list[tuple[Node, int]] = []
        for group in self._cloud.groups():
            template = templates.get(group.id)
            if template is not None:
                counted.append((template.node, group.target_size))
        now = self._clock.now()
        for node in nodes:
            if self._cloud.group_of(node.spec.provider_id) is None and not is_being_deleted(node, now):
                counted.append((node, 1))
        return Quotas(self.options.limits, totals(counted))

    def _scale_up_input(
        self,
        snapshot: ClusterSnapshot,
        templates: Mapping[str, NodeInfo],
        quotas: Quotas,
        nodes: Sequence[Node],
        filters: Sequence[Filter],
        now: datetime,
    ) -> ScaleUpInput:
        def blocked(group: NodeGroup) -> str | None:
            safety = self.state.safety(group.id, now)
            if safety.safe:
                return None
            return NOT_READY if not safety.healthy else IN_BACKOFF

        def pick(options: Sequence[Option], templates: Mapping[str, NodeInfo]) -> Option | None:
            return choose(options, filters, templates, self._chance)

        return ScaleUpInput(
            self._cloud.groups(),
            templates,
            snapshot,
            quotas,
            len(snapshot.nodes),
            self.options.scale_up,
            blocked,
            self.options.comparator,
            pick,
            sum(self._takes_pods(node) for node in nodes),
        )

    def _plan(self, pods: Sequence[Pod], scale_up_input: ScaleUpInput, now: datetime) -> ScaleUpPlan:
        if not pods:
            self._record.log(SOURCE, "No unschedulable pods", 1)
            return ScaleUpPlan(ScaleUpResult.NOT_NEEDED)
        for pod in pods[:20]:
            self._record.log("orchestrator", f"Pod {pod.metadata.key} is unschedulable", 1)
        limited = is_at_max_total(scale_up_input)
        if not limited and not self.options.bypassed_schedulers and all_new(pods, now):
            self._record.log(SOURCE, "Unschedulable pods are very new, waiting one iteration for more", 1)
            return ScaleUpPlan(ScaleUpResult.IN_COOLDOWN)
        started = stopwatch()
        self._metrics.last_activity.labels("scaleUp").set(now.timestamp())
        plan = plan_scale_up(pods, scale_up_input)
        self._metrics.duration.labels("scaleUp").observe(stopwatch() - started)
        return plan

    async def _carry_out(self, plan: ScaleUpPlan, now: datetime) -> None:
        if plan.result is ScaleUpResult.LIMITED_BY_MAX_TOTAL or plan.limited_by_total:
            most = self.options.scale_up.max_nodes_total
            message = f"Max total nodes in cluster reached: {most}"
            self._record.status_event("Warning", "MaxNodesTotalReached", message)
            self._record.log(SOURCE, "Max total nodes in cluster reached", 1)
        if plan.result is ScaleUpResult.NO_OPTIONS:
            self._record.log("orchestrator", "No expansion options", 1)
        if plan.result is ScaleUpResult.SUCCESSFUL:
            assert plan.option is not None
            self._record.log("orchestrator", f"Best option to resize: {plan.option.group.id}", 1)
            self._record.log("orchestrator", f"Estimated {plan.option.nodes} nodes needed in {plan.option.group.id}", 1)
            shown = " ".join(str(increase) for increase in plan.increases)
            self._record.log("orchestrator", f"Final scale-up plan: [{shown}]", 1)
            if await self._increase(plan.increases, now):
                self._record.triggered(plan.triggered, f"[{shown}]")
                self._decisions.scaled_up(plan, plan.increases, ",".join(self.options.expanders))
        else:
            self._record.refused(plan)
            self._decisions.refused(plan)

    async def _increase(self, increases: Sequence[Increase], now: datetime) -> bool:
        """Resize the groups; whether all of them were."""
        for increase in increases:
            group, sizes = increase.group, f"(max: {increase.max_size})"
            self._record.log("executor", f"Scale-up: setting group {group.id} size to {increase.new_size}")
            self._record.status_event(
                "Normal",
                "ScaledUpGroup",
                f"Scale-up: setting group {group.id} size to {increase.new_size} "
                f"instead of {increase.current_size} {sizes}",
            )
            try:
                await self._cloud.increase(group, increase.delta)
            except NodeGroupError as problem:
                message = f"Scale-up failed for group {group.id}: {problem}"
                self._record.status_event("Warning", "FailedToScaleUpGroup", message)
                self._record.error("executor", message)
                cause = f"failed to increase node group size: {problem}"
                error = InstanceError(ErrorClass.OTHER, "cloudProviderError", cause)
                self.state.register_failure(group, error, now)
                return False
            self.state.register_scale_up(group, increase.delta, now)
            self._metrics.scaled_up_nodes.inc(increase.delta)
            self.cooldown.scaled_up(group.id, now)
            self.actions += 1
            self._record.status_event(
                "Normal",
                "ScaledUpGroup",
                f"Scale-up: group {group.id} size set to {increase.new_size} "
                f"instead of {increase.current_size} {sizes}",
            )
        self.state.retarget(self._cloud.groups())
        return True

    # Shrinking

    async def _scale_down(
        self, snapshot: ClusterSnapshot, nodes: Sequence[Node], forbidden: bool, now: datetime
    ) -> None:
        started = stopwatch()
        self._record.log(SOURCE, "Calculating unneeded nodes", 4)
        going = set(self._actuator.deletions)
        candidates = self.planner.in_order(self._candidates(nodes, now), snapshot, now)
        destinations = [node.metadata.name for node in nodes if node.metadata.name not in going]
        context = DrainContext(now, RemainingPdbs(self._watch.pdbs.store), self._watch.controllers())
        self.planner.update(snapshot, candidates, destinations, self.group_of, context, self.is_ready)
        for node in nodes:
            if node.metadata.name not in candidates and self.planner.unremovable.reason(node.metadata.name) is None:
                self.planner.unremovable.add(Unremovable(node.metadata.name, self._why_no_candidate(node)))
        self._metrics.unneeded_nodes.set(len(self.planner.unneeded))
        self._metrics.duration.labels("findUnneeded").observe(stopwatch() - started)
        cooldown = forbidden or not candidates or self.cooldown.is_active(now)
        self._metrics.in_cooldown.set(cooldown)
        for line in (
            *node_lines(self.planner, now),
            cooldown_line(self.cooldown, forbidden=forbidden, active=cooldown),
        ):
            self._record.log(*line)
        if cooldown:
            await self._soft_taints(nodes)
            return
        self._record.log(SOURCE, "Starting scale down", 4)
        self._metrics.last_activity.labels("scaleDown").set(now.timestamp())
        deletions = {group.id: self._actuator.count(group.id) for group in self._cloud.groups()}
        quotas = self._removal_quotas(snapshot, now)
        decision = self.planner.removable_now(snapshot, self.group_of, quotas, deletions, self.is_ready, now)
        begun = await self._actuator.start(decision.empty, decision.drain, self._member, self.planner.utilization)
        self._count_unremovable()
        if begun:
            self.cooldown.began_deletion(now)
            self.actions += len(begun)
            for deletion in begun:
                self.planner.unneeded.pop(deletion.node, None)
        await self._soft_taints(nodes)

    def _removal_quotas(self, snapshot: ClusterSnapshot, now: datetime) -> Quotas:
        """What nodes may still take away: only those count that stay, whatever the targets of their groups say."""
        nodes = [info.node for info in snapshot.nodes.values()]
        staying = (
            (node, 1)
            for node in nodes
            if node.metadata.name not in self._actuator.deletions and not is_being_deleted(node, now)
        )
        return Quotas(self.options.limits, totals(staying))

    def group_of(self, node: Node) -> NodeGroup | None:
        return self._cloud.group_of(node.spec.provider_id)

    def _member(self, name: str) -> tuple[NodeGroup, str] | None:
        node = self._watch.nodes.store.get(name)
        group = self.group_of(node) if node is not None else None
        return (group, node.spec.provider_id) if node is not None and group is not None else None

    def _candidates(self, nodes: Sequence[Node], now: datetime) -> list[str]:
        """Nodes of groups that are above their minimum and in no cooldown of their own."""
        names = []
        for node in nodes:
            group = self.group_of(node)
            if group is None or node.metadata.name in self._actuator.deletions:
                continue
            if group.target_size <= group.min_size or self.cooldown.is_group_active(group.id, now):
                continue
            names.append(node.metadata.name)
        return names

    def _why_no_candidate(self, node: Node) -> UnremovableReason:
        if node.metadata.name in self._actuator.deletions:
            return UnremovableReason.BEING_DELETED
        group = self.group_of(node)
        if group is None:
            return UnremovableReason.NOT_AUTOSCALED
        return (
            UnremovableReason.MIN_SIZE_REACHED
            if group.target_size <= group.min_size
            else UnremovableReason.NOT_UNNEEDED_OTHER
        )

    def _count_unremovable(self) -> None:
        counts = dict.fromkeys(UnremovableReason, 0)
        for unremovable in self.planner.unremovable:
            counts[unremovable.reason] += 1
        for reason, count in counts.items():
            self._metrics.unremovable_nodes.labels(reason.value).set(count)

    async def _soft_taints(self, nodes: Sequence[Node]) -> None:
        going = self._actuator.deletions
        members = [node for node in nodes if self.group_of(node) is not None and node.metadata.name not in going]
        limits = self.options.soft_taints
        taint_changes = soft_taints.changes(members, self.planner.unneeded, limits.count)
        await soft_taints.update(
            self._kube, self._clock, taint_changes, limits, lambda message: self._record.warning("softtaint", message)
        )

    async def _write_status(self, now: datetime) -> None:
        if self._lacking:
            await self._record.announce(self._lacking)
            return
        candidates: dict[str, list[str]] = {}
        for name in self.planner.unneeded:
            member = self._member(name)
            if member is not None:
                candidates.setdefault(member[0].id, []).append(name)
        explained = explanations(self.planner, self.last_plan, self._members(), self.state.groups, now)
        await self._record.write_status(
            self.state,
            candidates,
            now,
            scale_down_at=self.planner.last_update,
            explanations=explanation_text(explained),
        )
        problem = await self._decisions.save()
        if problem:
            self._record.warning(SOURCE, problem)

    def _members(self) -> list[tuple[str, str, float | None]]:
        """The nodes of groups, with their prices."""
        prices = self._expanders.prices()
        return [
            (node.metadata.name, group.id, prices.of_labels(node.metadata.labels))
            for node in self._watch.nodes.store
            if (group := self.group_of(node)) is not None
        ]
