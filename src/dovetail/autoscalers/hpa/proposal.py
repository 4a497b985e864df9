"""One metric's proposal: how many replicas it wants, what it is called, and what the status shows of it.

A reading is what the metrics API said (`sources` asks it): samples of pods, one amount, or the error it gave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.autoscalers.hpa import count
from dovetail.autoscalers.hpa.count import Count, Tolerance
from dovetail.autoscalers.hpa.readings import NoCount, Samples
from dovetail.autoscalers.hpa.spec import HpaFlags, MetricSource, MetricSpec, ScaleView
from dovetail.model.meta import Amount
from dovetail.model.pods import Pod
from dovetail.model.quantity import BINARY, DECIMAL, Quantity, milli
from dovetail.model.selector import LabelSelector

Json = dict[str, Any]
#: Samples of pods, an amount in thousandths, or why there is neither.
Reading = Samples | int | NoCount


class ReplicaProposal(msgspec.Struct, frozen=True):
    """What one metric wants. `name` is how events speak of it."""

    replicas: int
    name: str
    status: Json


class MetricError(msgspec.Struct, frozen=True):
    """Why a metric proposes nothing: the reason and text of the event, and the text for the whole."""

    reason: str
    text: str
    summary: str


class MetricContext(msgspec.Struct, frozen=True, kw_only=True):
    """What every metric of an autoscaler is judged by."""

    namespace: str
    scale: ScaleView
    pods: Sequence[Pod]
    tolerance: Tolerance
    now: datetime
    settings: HpaFlags


def propose(metric: MetricSpec, reading: Reading, context: MetricContext) -> ReplicaProposal | MetricError:
    """What a metric wants, or why it wants nothing."""
    judge = _JUDGES.get(metric.type)
    if judge is None:
        text = f'unknown metric source type "{metric.type}"'
        return MetricError("InvalidMetricSourceType", text, text)
    try:
        return judge(metric, reading, context)
    except NoCount as problem:
        text = str(problem)
        return MetricError(f"FailedGet{metric.type}Metric", text, f"{_summary(metric)}: {text}")


def _summary(metric: MetricSpec) -> str:
    source, name, target = metric.source, metric.source.metric.name, metric.source.target
    shared = target.type == "AverageValue" if metric.type == "Object" else target.average_value is not None
    which = {
        "Resource": f"{source.name} resource metric value",
        "ContainerResource": f"{source.container} container metric value",
        "Pods": "pods metric value",
        "Object": "object metric value" + (f": failed to get {name} object metric" if shared else ""),
        "External": f"{name} external metric value: failed to get "
        + (f"{name} external metric" if shared else f"external metric {name}"),
    }
    return f"failed to get {which[metric.type]}"


def _resource(metric: MetricSpec, reading: Reading, context: MetricContext) -> ReplicaProposal:
    source = metric.source
    target = source.target
    used = target.average_value is not None
    try:
        if not used and target.average_utilization is None:
            raise NoCount(
                "invalid resource metric source: neither an average utilization target"
                " nor an average value (usage) target was set"
            )
        made = _resource_count(source, _samples(reading, f"unable to get metrics for resource {source.name}"), context)
    except NoCount as problem:
        what = "usage" if used else "utilization"
        invalid = not used and target.average_utilization is None
        raise NoCount(str(problem) if invalid else f"failed to get {source.name} {what}: {problem}") from problem
    current: Json = {"averageValue": _amount(source.name, made.average)}
    if made.percent is not None:
        current["averageUtilization"] = made.percent
    of_container = metric.type == "ContainerResource"
    name = f"{source.name} {'container ' if of_container and not used else ''}resource"
    name += "" if used else " utilization (percentage of request)"
    shown: Json = {"name": source.name, "current": current} | ({"container": source.container} if of_container else {})
    return ReplicaProposal(made.replicas, name, {"type": metric.type, _field(metric): shown})


def _resource_count(source: MetricSource, samples: Samples, context: MetricContext) -> Count:
    groups = count.group(context.pods, samples, source.name, context.now, context.settings)
    current, target = context.scale.spec.replicas, source.target
    if target.average_value is not None:
        return count.by_average(context.pods, samples, groups, milli(target.average_value), current, context.tolerance)
    return count.by_utilization(
        context.pods,
        samples,
        groups,
        target.average_utilization or 0,
        current,
        context.tolerance,
        lambda: count.requests(context.pods, source.name, source.container),
    )


def _pods(metric: MetricSpec, reading: Reading, context: MetricContext) -> ReplicaProposal:
    source = metric.source
    samples = _samples(reading, f"unable to get metric {source.metric.name}")
    groups = count.group(context.pods, samples, "", context.now, context.settings)
    target = milli(source.target.average_value or 0)
    made = count.by_average(context.pods, samples, groups, target, context.scale.spec.replicas, context.tolerance)
    return ReplicaProposal(made.replicas, f"pods metric {source.metric.name}", _status(metric, "averageValue", made))


def _object(metric: MetricSpec, reading: Reading, context: MetricContext) -> ReplicaProposal:
    source, about = metric.source, metric.source.described_object
    name, target = source.metric.name, source.target
    # The order of these words is Kubernetes' own.
    failure = f"unable to get metric {name}: {about.kind} on {context.namespace} {about.name}/"
    if target.type == "Value" and target.value is not None:
        made = _count_by_value(target.value, _known(reading, failure), context)
        return ReplicaProposal(made.replicas, f"{about.kind} metric {name}", _status(metric, "value", made))
    if target.type == "AverageValue" and target.average_value is not None:
        made = _per_pod(target.average_value, _known(reading, failure), context)
        spoken = f"external metric {name}({go_text(source.metric.selector)})"
        return ReplicaProposal(made.replicas, spoken, _status(metric, "averageValue", made))
    raise NoCount("invalid object metric source: neither a value target nor an average value target was set")


def _external(metric: MetricSpec, reading: Reading, context: MetricContext) -> ReplicaProposal:
    source = metric.source
    name, target, labels = source.metric.name, source.target, go_text(source.metric.selector)
    failure = f"unable to get external metric {context.namespace}/{name}/{labels}: "
    if target.average_value is not None:
        made, field = _per_pod(target.average_value, _known(reading, failure), context), "averageValue"
    elif target.value is not None:
        made, field = _count_by_value(target.value, _known(reading, failure), context), "value"
    else:
        raise NoCount("invalid external metric source: neither a value target nor an average value target was set")
    return ReplicaProposal(made.replicas, f"external metric {name}({labels})", _status(metric, field, made))


def _count_by_value(target: Amount, used: int, context: MetricContext) -> Count:
    return count.by_value(used, milli(target), context.scale.spec.replicas, context.tolerance, context.pods)


def _per_pod(target: Amount, used: int, context: MetricContext) -> Count:
    return count.by_value_per_pod(used, milli(target), context.scale.status.replicas, context.tolerance)


_JUDGES: dict[str, Callable[[MetricSpec, Reading, MetricContext], ReplicaProposal]] = {
    "Resource": _resource,
    "ContainerResource": _resource,
    "Pods": _pods,
    "Object": _object,
    "External": _external,
}


def _samples(reading: Reading, failure: str) -> Samples:
    if isinstance(reading, NoCount):
        raise NoCount(f"{failure}: {reading}") from reading
    assert not isinstance(reading, int)
    return reading


def _known(reading: Reading, failure: str) -> int:
    if isinstance(reading, NoCount):
        raise NoCount(f"{failure}{reading}") from reading
    assert isinstance(reading, int)
    return reading


def _status(metric: MetricSpec, field: str, made: Count) -> Json:
    source = metric.source
    shown: Json = {"metric": msgspec.to_builtins(source.metric), "current": {field: _amount("", made.average)}}
    if metric.type == "Object":
        shown["describedObject"] = msgspec.to_builtins(source.described_object)
    return {"type": metric.type, _field(metric): shown}


def _field(metric: MetricSpec) -> str:
    return metric.type[0].lower() + metric.type[1:]


def _amount(resource: str, thousandths: int) -> str:
    return str(Quantity(thousandths * 10**6, BINARY if resource == "memory" else DECIMAL))


def go_text(selector: LabelSelector | None) -> str:
    """A selector as it stands in the names of external metrics."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    rules = "".join(
        f"LabelSelectorRequirement{{Key:{rule.key},Operator:{rule.operator},Values:[{' '.join(rule.values)}],}},"
        for rule in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"
    )
