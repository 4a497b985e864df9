"""Metrics under the names that dashboards of Cluster Autoscaler read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dovetail.autoscalers.node_groups.annotations import is_being_deleted
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState
from dovetail.autoscalers.node_groups.quotas import node_amounts
from dovetail.model.nodes import Node

_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600, 900)


class ClusterAutoscalerMetrics:
    """Every family is made once, here."""

    def __init__(self, *, per_group: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.per_group = per_group
        gauge, counter = self._gauge, self._counter
        self.safe_to_autoscale = gauge("cluster_safe_to_autoscale", "Whether the cluster is healthy enough to scale.")
        self.nodes_count = gauge("nodes_count", "Nodes by state.", "state")
        self.node_groups_count = gauge("node_groups_count", "Node groups by kind.", "node_group_type")
        self.unschedulable_pods = gauge("unschedulable_pods_count", "Pods that do not fit anywhere.", "type")
        self.max_nodes = gauge("max_nodes_count", "Nodes that all groups together may have.")
        self.cpu_cores = gauge("cluster_cpu_current_cores", "Cores of all nodes.")
        self.memory_bytes = gauge("cluster_memory_current_bytes", "Memory of all nodes.")
        self.cpu_limits = gauge("cpu_limits_cores", "Least and most cores of the cluster.", "direction")
        self.memory_limits = gauge("memory_limits_bytes", "Least and most memory of the cluster.", "direction")
        self.last_activity = gauge("last_activity", "When each part of the loop last ran.", "activity")
        self.duration = Histogram(
            "function_duration_seconds",
            "How long parts of the loop take.",
            ("function",),
            namespace="cluster_autoscaler",
            registry=self.registry,
            buckets=_BUCKETS,
        )
        self.errors = counter("errors_total", "Failed loops by kind.", "type")
        self.scaled_up_nodes = counter("scaled_up_nodes_total", "Nodes asked for.")
        self.failed_scale_ups = counter("failed_scale_ups_total", "Scale-ups that failed.", "reason")
        self.scaled_down_nodes = counter("scaled_down_nodes_total", "Nodes removed.", "reason")
        self.evicted_pods = counter("evicted_pods_total", "Pods evicted.", "eviction_result")
        self.unneeded_nodes = gauge("unneeded_nodes_count", "Nodes that could go.")
        self.unremovable_nodes = gauge("unremovable_nodes_count", "Nodes that stay, by reason.", "reason")
        self.in_cooldown = gauge("scale_down_in_cooldown", "Whether scale-down waits.")
        self.old_unregistered_removed = counter(
            "old_unregistered_nodes_removed_count", "Instances removed that never became nodes."
        )
        self.skipped_scale_events = counter(
            "skipped_scale_events_count", "Scaling that a limit stopped.", "direction", "reason"
        )
        self.group_min = gauge("node_group_min_count", "Minimum of each group.", "node_group")
        self.group_max = gauge("node_group_max_count", "Maximum of each group.", "node_group")
        self.group_target = gauge("node_group_target_count", "Target of each group.", "node_group")
        self.group_healthy = gauge("node_group_healthiness", "Whether each group may scale.", "node_group")
        self.group_backoff = gauge("node_group_backoff_status", "Whether each group backs off.", "node_group", "reason")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, namespace="cluster_autoscaler", registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace="cluster_autoscaler", registry=self.registry)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)


def measure(
    metrics: ClusterAutoscalerMetrics,
    state: GroupClusterState,
    nodes: Sequence[Node],
    max_nodes_total: int,
    now: datetime,
) -> None:
    """What a loop finds, before it acts."""
    total, groups = state.total, list(state.groups.values())
    metrics.safe_to_autoscale.set(state.is_cluster_healthy())
    for kind, names in (
        ("ready", total.ready),
        ("unready", total.unready),
        ("notStarted", total.not_started),
        ("longUnregistered", total.long_unregistered),
        ("unregistered", total.unregistered),
    ):
        metrics.nodes_count.labels(kind).set(len(names))
    metrics.node_groups_count.labels("autoscaled").set(len(groups))
    most = sum(group.max_size for group in groups)
    metrics.max_nodes.set(min(max_nodes_total, most) if max_nodes_total > 0 else most)
    amounts = [node_amounts(node) for node in nodes if not is_being_deleted(node, now)]
    metrics.cpu_cores.set(sum(amount["cpu"] for amount in amounts))
    metrics.memory_bytes.set(sum(amount["memory"] for amount in amounts))
    if not metrics.per_group:
        return
    for group in groups:
        metrics.group_min.labels(group.id).set(group.min_size)
        metrics.group_max.labels(group.id).set(group.max_size)
        metrics.group_target.labels(group.id).set(group.target_size)
        safety = state.safety(group.id, now)
        metrics.group_healthy.labels(group.id).set(safety.healthy)
        code = safety.backoff.error.code if safety.backoff else ""
        metrics.group_backoff.labels(group.id, code).set(safety.backoff is not None)
