"""What a HorizontalPodAutoscaler asks for, as far as the decision reads it (autoscaling/v2)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dovetail.model.meta import Amount, Condition, ObjectMeta, View
from dovetail.model.selector import LabelSelector


class TargetRef(View, frozen=True, kw_only=True):
    """The workload that is scaled, or the object a metric describes."""

    api_version: str = ""
    kind: str = ""
    name: str = ""

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0] if "/" in self.api_version else ""


class MetricTarget(View, frozen=True, kw_only=True):
    """Where a metric should be. One of the three amounts counts, by type."""

    type: str = ""
    value: Amount | None = None
    average_value: Amount | None = None
    average_utilization: int | None = None


class Identifier(View, frozen=True, kw_only=True):
    """A metric's name and the labels that narrow it."""

    name: str = ""
    selector: LabelSelector | None = None


class MetricSource(View, frozen=True, kw_only=True):
    """A metric of any type: each type fills the fields it has."""

    name: str = ""
    container: str = ""
    metric: Identifier = Identifier()
    described_object: TargetRef = TargetRef()
    target: MetricTarget = MetricTarget()


class MetricSpec(View, frozen=True, kw_only=True):
    """One of the metrics to scale by."""

    type: str = ""
    resource: MetricSource | None = None
    container_resource: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None
    external: MetricSource | None = None

    @property
    def source(self) -> MetricSource:
        """The source that its type names."""
        fields = {
            "Resource": self.resource,
            "ContainerResource": self.container_resource,
            "Pods": self.pods,
            "Object": self.object,
            "External": self.external,
        }
        return fields.get(self.type) or MetricSource()


class ScalingPolicy(View, frozen=True, kw_only=True):
    """At most so many pods, or so many percent, within a period."""

    type: str = ""
    value: int = 0
    period_seconds: int = 0


class Rules(View, frozen=True, kw_only=True):
    """How one direction of scaling behaves."""

    stabilization_window_seconds: int | None = None
    select_policy: str = "Max"
    policies: tuple[ScalingPolicy, ...] = ()
    tolerance: Amount | None = None


class Behavior(View, frozen=True, kw_only=True):
    """Both directions. An API server fills in what is left out, once any of it is there."""

    scale_up: Rules = Rules(stabilization_window_seconds=0)
    scale_down: Rules = Rules()


class HpaSpec(View, frozen=True, kw_only=True):
    scale_target_ref: TargetRef = TargetRef()
    min_replicas: int | None = None
    max_replicas: int = 0
    metrics: tuple[MetricSpec, ...] = ()
    behavior: Behavior | None = None

    @property
    def least(self) -> int:
        return 1 if self.min_replicas is None else self.min_replicas

    @property
    def outward(self) -> bool:
        """Whether anything outside the pods is measured: without that, nothing could ever wake them from zero."""
        return any(metric.type in ("Object", "External") for metric in self.metrics)


class HpaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the last look came to."""

    last_scale_time: datetime | None = None
    current_replicas: int = 0
    desired_replicas: int = 0
    current_metrics: tuple[dict[str, Any], ...] | None = None
    conditions: tuple[Condition, ...] = ()


class HorizontalPodAutoscaler(View, frozen=True, kw_only=True):
    """A HorizontalPodAutoscaler."""

    metadata: ObjectMeta = ObjectMeta()
    spec: HpaSpec = HpaSpec()
    status: HpaStatus = HpaStatus()


class ScaleSpec(View, frozen=True, kw_only=True):
    replicas: int = 0


class ScaleStatus(View, frozen=True, kw_only=True):
    replicas: int = 0
    selector: str = ""


class ScaleView(View, frozen=True, kw_only=True):
    """A workload as a number of replicas."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class HpaFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The controller manager's flags of the same names, in seconds, and the one feature gate that matters."""

    sync_period: float = 15.0
    tolerance: float = 0.1
    downscale_stabilization: float = 300.0
    cpu_initialization_period: float = 300.0
    initial_readiness_delay: float = 30.0
    scale_to_zero: bool = False
