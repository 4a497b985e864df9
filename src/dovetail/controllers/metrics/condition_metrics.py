"""Condition transitions, how long conditions lasted, and how long terminations take.

Each kind has metrics of its own, with the labels of its objects; Karpenter's kinds are counted once more under the
names that all kinds share, which older alerts use.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from dovetail.controllers.metrics.condition_kinds import CLAIMS, CLASSES, NODES, POOLS, ConditionKind

BUCKETS = tuple(0.5 * 2**n for n in range(15))


class ConditionMetrics:
    """Counters and histograms of transitions and terminations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._own = {
            kind: _Families(registry, f"operator_{kind.name}", kind.called, buckets)
            for kind, buckets in (
                (CLAIMS, BUCKETS),
                (POOLS, BUCKETS),
                (NODES, BUCKETS),
                (CLASSES, Histogram.DEFAULT_BUCKETS),
            )
        }
        self._all = _Families(registry, "operator", ("kind", "group"), Histogram.DEFAULT_BUCKETS)

    def count_transition(
        self, kind: ConditionKind, values: Sequence[str], condition: str, status: str, reason: str
    ) -> None:
        for families, labels in self._with_general(kind, values):
            families.transitions.labels(condition, status, reason, *labels).inc()

    def observe_duration(
        self, kind: ConditionKind, values: Sequence[str], condition: str, statuses: tuple[str, str], seconds: float
    ) -> None:
        """A condition changed from one status to another (`turn`) after so long."""
        for families, labels in self._with_general(kind, values):
            families.durations.labels(condition, *statuses, *labels).observe(seconds)

    def observe_termination(self, kind: ConditionKind, values: Sequence[str], seconds: float) -> None:
        for families, labels in self._with_general(kind, values):
            terminations = families.terminations.labels(*labels) if labels else families.terminations
            terminations.observe(seconds)

    def _with_general(self, kind: ConditionKind, values: Sequence[str]) -> list[tuple[_Families, Sequence[str]]]:
        own: list[tuple[_Families, Sequence[str]]] = [(self._own[kind], values)]
        return [*own, (self._all, (kind.resource.kind, kind.resource.group))] if kind.general else own


class _Families:
    def __init__(
        self, registry: CollectorRegistry, prefix: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> None:
        condition = f"{prefix}_status_condition"
        self.transitions = Counter(
            f"{condition}_transitions",
            "Condition transitions.",
            ("type", "status", "reason", *labels),
            registry=registry,
        )
        self.durations = Histogram(
            f"{condition}_transition_seconds",
            "How long a condition lasted.",
            ("type", "status", "to_status", *labels),
            registry=registry,
            buckets=buckets,
        )
        self.terminations = Histogram(
            f"{prefix}_termination_duration_seconds",
            "From the deletion of an object to its removal.",
            labels,
            registry=registry,
            buckets=buckets,
        )
