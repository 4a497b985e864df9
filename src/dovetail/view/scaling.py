"""HPAs over time, as far as this process has seen them: their replicas, and every metric beside its target."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dovetail.kube.reflector import CacheChange
from dovetail.model.quantity import QuantityError, milli

MAX_POINTS_PER_HPA = 500
MAX_HPAS = 2000
Json = Mapping[str, Any]


class ScalingPoint(msgspec.Struct, frozen=True):
    """`time` is in seconds since 1970; `metrics` are what is used and the target, by name. Unknown is None."""

    time: float
    replicas: int | None
    desired: int | None
    metrics: Mapping[str, tuple[float | None, float | None]]


def source_of(metric: Json) -> Json:
    """The part of a metric that its type names: `resource` of a Resource metric."""
    kind = str(metric.get("type", ""))
    return metric.get(kind[:1].lower() + kind[1:]) or {}


def metric_name(metric: Json) -> str:
    source = source_of(metric)
    named = source.get("name") or (source.get("metric") or {}).get("name") or metric.get("type", "")
    container = source.get("container")
    return f"{named} ({container})" if container else str(named)


def number(value: Json) -> float | None:
    """A target or a measured value: a percentage as its number, a quantity as it counts."""
    if value.get("averageUtilization") is not None:
        return float(value["averageUtilization"])
    quantity = value.get("averageValue") or value.get("value")
    try:
        return milli(str(quantity)) / 1000 if quantity is not None else None
    except QuantityError:
        return None


def point(hpa: Json, seconds: float) -> ScalingPoint:
    spec, status = hpa.get("spec") or {}, hpa.get("status") or {}
    measured = {metric_name(metric): source_of(metric) for metric in status.get("currentMetrics") or () if metric}
    metrics = {}
    for metric in spec.get("metrics") or ():
        name = metric_name(metric)
        used = (measured.get(name) or {}).get("current") or {}
        metrics[name] = number(used), number(source_of(metric).get("target") or {})
    replicas, desired = status.get("currentReplicas"), status.get("desiredReplicas")
    if not status.get("conditions"):  # the zeros of an HPA that no controller has looked at yet say nothing
        replicas, desired = replicas or None, desired or None
    return ScalingPoint(seconds, replicas, desired, metrics)


class ScalingLog:
    """The points of every HPA by its key, oldest first; a change that changes no figure is no point."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, list[ScalingPoint]] = OrderedDict()

    def take(self, change: CacheChange[dict[str, Any]], seconds: float) -> None:
        if change.new is None:
            self._of.pop(change.key, None)
            return
        points = self._of.setdefault(change.key, [])
        new = point(change.new, seconds)
        if not points or msgspec.structs.replace(points[-1], time=seconds) != new:
            points.append(new)
        if len(points) > MAX_POINTS_PER_HPA:
            half = MAX_POINTS_PER_HPA // 2
            points[:half] = points[:half:2]
        self._of.move_to_end(change.key)
        if len(self._of) > MAX_HPAS:
            self._of.popitem(last=False)

    def of(self, key: str) -> Sequence[ScalingPoint]:
        return self._of.get(key, ())
