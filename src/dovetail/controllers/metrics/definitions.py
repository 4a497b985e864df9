"""Metrics, by Karpenter's names and labels, so that dashboards and alerts keep working; ours begin with `dovetail_`.

One object per run owns the registry: two controllers in one process (a lab, a test) do not share metrics. What is
counted as it happens is here; what can be read off the cluster at any time is in `gauges`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from dovetail import __version__
from dovetail.clock import Clock
from dovetail.controllers.metrics.condition_metrics import ConditionMetrics
from dovetail.controllers.metrics.exposition import SummaryMetric
from dovetail.controllers.metrics.runtime import RECONCILE_BUCKETS, RuntimeMetrics
from dovetail.controllers.shadow.metrics import ShadowMetrics

#: Karpenter's buckets: those of controller-runtime, and longer ones.
DURATIONS = (*RECONCILE_BUCKETS, 120, 150, 300, 450, 600)

SCORES = (0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0)
REBOOTS = tuple(10.0 * 2**n for n in range(8))
TERMINATIONS = tuple(2.0**n for n in range(12))
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
LIFETIMES = (
    *(MINUTE * n for n in (15, 30, 45)),
    *(HOUR * n for n in (1, 2, 4, 6, 8, 10, 12, 16, 20)),
    *(DAY * n for n in (1, 2, 3, 5, 10, 15, 20, 25, 30)),
)

#: No Go program exports when each series began, and it doubles their number.
disable_created_metrics()  # type: ignore[no-untyped-call]

_DISRUPTED = ("reason", "nodepool", "capacity_type", "consolidation_policy", "termination_mode")


class Metrics:
    """Every family is made once, here, with its labels."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.registry = CollectorRegistry()
        #: Metrics that are computed at each scrape, in pieces.
        self.sources: list[Callable[[], Iterator[str]]] = []
        ProcessCollector(registry=self.registry)
        self._claims()
        self._pods()
        self._pools()
        self._planning()
        self._state()
        self._disruption()
        self._interruption()
        self.conditions = ConditionMetrics(self.registry)
        self.runtime = RuntimeMetrics(self.registry, clock)
        self.shadow = ShadowMetrics(self.registry)

    def text(self) -> bytes:
        """The exposition format."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The same in pieces, so that other tasks run in between."""
        yield generate_latest(self.registry)
        for source in self.sources:
            yield from (piece.encode() for piece in source())

    def _claims(self) -> None:
        self.claims_created = self._counter(
            "nodeclaims_created", "NodeClaims created.", ("reason", "nodepool", "min_values_relaxed")
        )
        self.claims_terminated = self._counter(
            "nodeclaims_terminated", "NodeClaims that were terminated.", ("nodepool", "capacity_type", "zone")
        )
        self.claims_disrupted = self._counter("nodeclaims_disrupted", "NodeClaims deleted by us, and why.", _DISRUPTED)
        self.claims_unhealthy_disrupted = self._counter(
            "nodeclaims_unhealthy_disrupted",
            "NodeClaims replaced because their node was unhealthy.",
            ("condition", "nodepool", "capacity_type", "image_id", "termination_mode"),
        )
        self.instance_termination = self._histogram(
            "nodeclaims_instance_termination_duration_seconds",
            "From the cloud's delete call to the instance's end.",
            ("nodepool",),
            buckets=TERMINATIONS[:11],
        )
        self.claim_termination = self._histogram(
            "nodeclaims_termination_duration_seconds",
            "From the deletion of a NodeClaim to its removal.",
            ("nodepool",),
            buckets=TERMINATIONS,
        )
        self.nodes_created = self._counter("nodes_created", "Nodes that registered.", ("nodepool", "zone"))
        self.nodes_terminated = self._counter("nodes_terminated", "Nodes that were terminated.", ("nodepool", "zone"))
        self.node_termination = self._summary(
            "nodes_termination_duration_seconds", "From the deletion of a node to its removal.", ("nodepool",)
        )
        self.node_lifetime = self._histogram(
            "nodes_lifetime_duration_seconds", "Age of nodes at their termination.", ("nodepool",), buckets=LIFETIMES
        )
        self.nodes_drained = self._counter("nodes_drained", "Nodes that were drained.", ("nodepool",))
        self.launch_latency = self._histogram(
            "dovetail_launch_seconds", "From a NodeClaim's creation to its launch.", ("nodepool",), prefix=""
        )

    def _pods(self) -> None:
        self.deletion_costs = self._counter(
            "pod_deletion_cost_pod_annotation_writes", "Deletion costs written on pods, by result.", ("result",)
        )
        self.pending_deletion_costs = self._gauge(
            "pod_deletion_cost_nodes_with_pending_annotation_writes",
            "Nodes whose pods are to be annotated in this cycle.",
            ("nodepool",),
        )
        self.evictions = self._counter("pods_eviction_requests", "Eviction requests, by answer.", ("code",))
        self.pods_drained = self._counter("pods_drained", "Pods drained.", ("reason",))
        self.pods_disruption_initiated = self._counter(
            "pods_disruption_initiated", "Pods on nodes whose disruption was started.", _DISRUPTED
        )
        dynamic = ("dynamic_resources",)
        self.pod_decision = self._histogram(
            "pods_scheduling_decision_duration_seconds", "From seeing a pod to the first plan for it.", ()
        )
        self.pod_bound = self._histogram(
            "pods_bound_duration_seconds", "From a pod's creation to its binding.", dynamic
        )
        self.pod_provisioning_bound = self._histogram(
            "pods_provisioning_bound_duration_seconds", "From the first plan for a pod to its binding.", dynamic
        )
        self.pod_startup = self._summary("pods_startup_duration_seconds", "From a pod's creation to its start.", ())
        self.pod_provisioning_startup = self._histogram(
            "pods_provisioning_startup_duration_seconds", "From the first plan for a pod to its start.", ()
        )
        self.pods_placed = self._counter("dovetail_pods_placed", "Planned pods, by outcome.", ("outcome",), prefix="")

    def _pools(self) -> None:
        self.allowed_disruptions = self._gauge(
            "nodepools_allowed_disruptions", "Nodes that a budget allows to be disrupted now.", ("nodepool", "reason")
        )
        self.unpriced = self._counter(
            "nodepools_cost_tracker_errors", "NodeClaims without a known price when the cost was computed.", ()
        )
        self.consuming_budgets = self._gauge(
            "nodepools_nodes_consuming_budgets", "Nodes that use up a budget.", ("nodepool", "reason")
        )

    def _planning(self) -> None:
        self.scheduling = self._histogram(
            "scheduler_scheduling_duration_seconds", "Time to plan a batch.", ("controller",)
        )
        self.queue_depth = self._gauge("scheduler_queue_depth", "Pods in the batch.", ("controller", "scheduling_id"))
        self.unschedulable = self._gauge(
            "scheduler_unschedulable_pods_count", "Unschedulable pods of the last plan.", ("controller",)
        )
        self.unfinished_plans = self._gauge(
            "scheduler_unfinished_work_seconds", "Age of the plan that is being made.", ("controller", "scheduling_id")
        )
        self.ignored_pods = self._gauge("scheduler_ignored_pods_count", "Pods that no plan can consider.", ())
        self.plan_cost = self._gauge(
            "dovetail_plan_cost_dollars_per_hour", "Price of what the last plan launches.", ("controller",), prefix=""
        )
        self.plan_bound = self._gauge(
            "dovetail_plan_bound_dollars_per_hour", "Lower bound of the last plan's cost.", ("controller",), prefix=""
        )
        self.plan_gap = self._gauge(
            "dovetail_plan_gap_ratio", "The last plan's cost above its lower bound.", ("controller",), prefix=""
        )
        self.refused_plans = self._counter(
            "dovetail_refused_plans", "Plans that the verifier refused.", ("controller",), prefix=""
        )

    def _state(self) -> None:
        self.synced = self._gauge("cluster_state_synced", "Whether the cluster state is synced.", ())
        self.node_count = self._gauge("cluster_state_node_count", "Nodes in the cluster state.", ())
        self.unsynced_seconds = self._gauge(
            "cluster_state_unsynced_time_seconds", "How long the cluster state has been unsynced.", ()
        )
        self.view_age = self._gauge("dovetail_view_age_seconds", "How old the cluster state may be.", (), prefix="")
        self.safe_mode = self._gauge(
            "dovetail_safe_mode", "1 while voluntary disruption is stopped.", ("cause",), prefix=""
        )
        self.controller_failures = self._counter(
            "dovetail_controller_failures",
            "Errors that ended a controller, which was then restarted.",
            ("controller",),
            prefix="",
        )
        self.missing_rights = self._gauge(
            "dovetail_missing_rights",
            "1 for a right that Kubernetes denies and a feature is off for.",
            ("verb", "resource"),
            prefix="",
        )
        self.drift_stopped = self._gauge(
            "dovetail_drift_stopped",
            "1 while drift is stopped for a NodePool because it repeats.",
            ("nodepool",),
            prefix="",
        )
        self.cloud_seconds = self._histogram(
            "cloudprovider_duration_seconds", "Cloud calls.", ("controller", "method", "provider")
        )
        self.cloud_errors = self._counter(
            "cloudprovider_errors", "Failed cloud calls.", ("controller", "method", "provider", "error", "nodepool")
        )
        self._gauge("build_info", "What runs.", ("version", "goversion", "goarch", "commit")).labels(
            __version__, "", "", __version__
        ).set(1)

    def _disruption(self) -> None:
        labels = ("decision", "reason", "consolidation_type")
        self.disruption_evaluation = self._histogram(
            "voluntary_disruption_decision_evaluation_duration_seconds",
            "Time to choose nodes to disrupt.",
            ("reason", "consolidation_type"),
        )
        self.disruption_decisions = self._counter("voluntary_disruption_decisions", "Disruptions decided.", labels)
        self.disruption_by_pool = self._counter(
            "voluntary_disruption_decisions_by_nodepool", "Disruptions decided, by NodePool.", ("nodepool", *labels)
        )
        self.disruption_eligible = self._gauge(
            "voluntary_disruption_eligible_nodes", "Nodes that could be disrupted.", ("reason",)
        )
        timeouts = self._counter(
            "voluntary_disruption_consolidation_timeouts", "Searches that timed out.", ("consolidation_type",)
        )
        for kind in ("multi", "single"):
            timeouts.labels(kind)  # a search here ends with the best it has found
        self.terminated_first = self._counter(
            "voluntary_disruption_terminate_first_decisions",
            "Nodes that are terminated before their replacement is launched.",
            ("nodepool", "reason", "terminate_first_reason"),
        )
        self.reboots = self._counter("nodes_reboots", "Finished reboots, by result.", ("result",))
        self.reboot_duration = self._histogram(
            "nodes_reboot_duration_seconds", "From a reboot's request to its end.", ("result",), buckets=REBOOTS
        )
        self.reboot_recovery = self._histogram(
            "nodes_reboot_recovery_duration_seconds", "From a reboot's call to the node's return.", (), buckets=REBOOTS
        )
        self.disruption_failures = self._counter(
            "voluntary_disruption_queue_failures", "Disruptions that were rolled back.", labels
        )
        self.failed_validations = self._counter(
            "voluntary_disruption_failed_validations", "Commands that failed validation.", ("consolidation_type",)
        )

        balanced = ("decision", "nodepool", "policy")
        self.consolidation_moves = self._counter("consolidation_moves", "Moves scored by Balanced NodePools.", balanced)
        self.consolidation_score = self._histogram(
            "consolidation_score", "Scores of moves in Balanced NodePools.", balanced, buckets=SCORES
        )

    def _interruption(self) -> None:
        self.interruptions_received = self._counter(
            "interruption_received_messages", "Messages of the interruption queue.", ("message_type",)
        )
        self.interruptions_deleted = self._counter(
            "interruption_deleted_messages", "Messages deleted from the interruption queue.", ()
        )
        self.unhealthy_instances = self._counter(
            "interruption_instance_status_unhealthy", "Instances that the cloud reports as unhealthy.", ("category",)
        )
        self.interruption_latency = self._histogram(
            "interruption_message_queue_duration_seconds", "From the event to the receipt of its message.", ()
        )
        self.interruption_queue_failures = self._counter(
            "interruption_queue_failures",
            "Failed reads of the interruption queue, by reason.",
            ("reason",),
            prefix="dovetail_",
        )

    @contextmanager
    def planning(self, controller: str, decision: str, pods: int) -> Iterator[None]:
        """While a plan for so many pods is being made: its size and its age, removed once it is done."""
        began = self._clock.monotonic()
        self.queue_depth.labels(controller, decision).set(pods)
        self.unfinished_plans.labels(controller, decision).set_function(lambda: self._clock.monotonic() - began)
        try:
            yield
        finally:
            self.queue_depth.remove(controller, decision)
            self.unfinished_plans.remove(controller, decision)

    def _summary(self, name: str, text: str, labels: Sequence[str]) -> SummaryMetric:
        made = SummaryMetric(f"karpenter_{name}", text, labels, self._clock.monotonic)
        self.sources.append(made.pieces)
        return made

    def _counter(self, name: str, text: str, labels: Sequence[str], prefix: str = "karpenter_") -> Counter:
        return Counter(prefix + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Sequence[str], prefix: str = "karpenter_") -> Gauge:
        return Gauge(prefix + name, text, labels, registry=self.registry)

    def _histogram(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        prefix: str = "karpenter_",
        buckets: Sequence[float] = DURATIONS,
    ) -> Histogram:
        return Histogram(prefix + name, text, labels, registry=self.registry, buckets=buckets)


def snake(name: str) -> str:
    """A name of Kubernetes (`NetworkingReady`, `WhenEmpty`) as a label's value: `networking_ready`, `when_empty`."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()
