"""What the metrics APIs said: a value per pod, or one value of something else.

Values are thousandths throughout, memory included. A pod of which one container was not measured has no value
at all: a part would be taken for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from dovetail.model import duration
from dovetail.model.meta import Amount, ObjectMeta, View
from dovetail.model.quantity import milli

#: The window of a custom metric that does not name its own.
USUAL_WINDOW = 60.0
LARGEST = (1 << 63) - 1


class NoCount(Exception):
    """No number of replicas follows from a metric; the text says why, as users know it."""


class MetricSample(msgspec.Struct, frozen=True):
    """A pod's value, when it was taken, and over how many seconds."""

    value: int
    at: datetime
    window: float


Samples = Mapping[str, MetricSample]


class ContainerUse(View, frozen=True, kw_only=True):
    name: str = ""
    usage: Mapping[str, Amount] = {}


class PodUse(View, frozen=True, kw_only=True):
    """A PodMetrics of metrics.k8s.io."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: datetime
    window: str = "0s"
    containers: tuple[ContainerUse, ...] = ()


class ObjectName(View, frozen=True, kw_only=True):
    name: str = ""


class MetricValue(View, frozen=True, kw_only=True):
    """A value of custom.metrics.k8s.io or external.metrics.k8s.io."""

    described_object: ObjectName = ObjectName()
    timestamp: datetime | None = None
    window_seconds: int | None = None
    value: Amount = 0


def of_pods(uses: Iterable[PodUse], resource: str, container: str = "") -> dict[str, MetricSample]:
    """Each pod's use of a resource, in all its containers or in the named one."""
    samples = {}
    for use in uses:
        counted = [usage for usage in use.containers if not container or usage.name == container]
        if counted and all(resource in usage.usage for usage in counted):
            value = sum(milli(usage.usage[resource]) for usage in counted)
            samples[use.metadata.name] = MetricSample(value, use.timestamp, duration.parse(use.window).total_seconds())
    return samples


def of_objects(values: Iterable[MetricValue], now: datetime) -> dict[str, MetricSample]:
    """Each pod's value of a custom metric."""
    return {
        value.described_object.name: MetricSample(
            milli(value.value),
            value.timestamp or now,
            USUAL_WINDOW if value.window_seconds is None else float(value.window_seconds),
        )
        for value in values
    }


def total(values: Iterable[MetricValue]) -> int:
    """The sum of an external metric's values, as large as Kubernetes can count."""
    return min(LARGEST, sum(milli(value.value) for value in values))
