"""Metrics of a dry run: what would have been launched, disrupted and saved."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ShadowMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"dovetail_shadow_{name}", text, labels, registry=registry)

        self.launches = counter("launches", "Nodes that would have been launched.", ("nodepool",))
        self.planned = counter("planned_dollars_per_hour", "Price of the nodes that would have been launched.")
        self.actual = counter(
            "actual_dollars_per_hour", "Price of the nodes that the cluster's autoscaler launched for the same pods."
        )
        self.differences = counter(
            "differences", "Decisions for which the cluster's autoscaler launched other nodes.", ("outcome",)
        )
        self.removals = counter("removals", "Nodes that would have been removed.", ("reason",))
        self.evictions = counter("evictions", "Pods that would have been evicted.")
        self.saving = Gauge(
            "dovetail_shadow_saving_dollars_per_hour", "What disruption would save now.", registry=registry
        )
        self.saved = counter("saved_dollars", "What disruption would have saved until now.")
