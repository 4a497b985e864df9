"""From use to replicas: the ratio of what is used to what should be, times the pods that were measured.

Pods that cannot be judged never push: while scaling up they count as idle, while scaling down as busy, and a
change of direction caused by such guesses is no change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from dovetail.autoscalers.hpa.readings import LARGEST, MetricSample, NoCount, Samples
from dovetail.autoscalers.hpa.spec import HpaFlags
from dovetail.model.meta import condition
from dovetail.model.pod_resources import quantities
from dovetail.model.pods import Pod
from dovetail.model.quantity import milli

MOST = (1 << 31) - 1
#: When a condition changed that does not say when: it has always been so.
_ALWAYS = datetime.min.replace(tzinfo=UTC)


class Tolerance(msgspec.Struct, frozen=True):
    """How far from the target is near enough, downwards and upwards."""

    down: float
    up: float

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class PodReadiness(msgspec.Struct, frozen=True):
    """Pods by what they are good for: `ready` is a number, the others are names."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


class Count(msgspec.Struct, frozen=True):
    """A number of replicas, the average use behind it, and its share of the requests in percent."""

    replicas: int
    average: int
    percent: int | None = None


#: Samples → the ratio to the target, the average use, the percentage if one is meant.
Measure = Callable[[Samples], tuple[float, int, int | None]]


def group(pods: Sequence[Pod], samples: Samples, resource: str, now: datetime, settings: HpaFlags) -> PodReadiness:
    """Only for CPU does a pod's start matter: a process that warms up says nothing about its load."""
    ready = 0
    unready, missing, ignored = set(), set(), set()
    for pod in pods:
        name = pod.metadata.name
        if pod.terminating or pod.status.phase == "Failed":
            ignored.add(name)
        elif pod.status.phase == "Pending":
            unready.add(name)
        elif name not in samples:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, samples[name], now, settings):
            unready.add(name)
        else:
            ready += 1
    return PodReadiness(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_starting(pod: Pod, sample: MetricSample, now: datetime, settings: HpaFlags) -> bool:
    ready, started = condition(pod.status.conditions, "Ready"), pod.status.start_time
    if ready is None or started is None:
        return True
    changed = ready.last_transition_time or _ALWAYS
    if started + timedelta(seconds=settings.cpu_initialization_period) > now:
        return ready.status == "False" or sample.at < changed + timedelta(seconds=sample.window)
    never = started + timedelta(seconds=settings.initial_readiness_delay) > changed
    return ready.status == "False" and never


def by_utilization(
    pods: Sequence[Pod],
    samples: Samples,
    groups: PodReadiness,
    target: int,
    current: int,
    tolerance: Tolerance,
    requested: Callable[[], Mapping[str, int]],
) -> Count:
    """Replicas so that pods use `target` percent of what they request."""
    kept = _kept(pods, samples, groups)
    requests = requested()

    def measure(samples_counted: Samples) -> tuple[float, int, int | None]:
        matched = [name for name in samples_counted if name in requests]
        total_request = sum(requests[name] for name in matched)
        if not total_request:
            raise NoCount("no metrics returned matched known pods")
        used = sum(samples_counted[name].value for name in matched)
        percent = used * 100 // total_request
        return percent / target, used // len(matched), percent

    return _count(kept, groups, current, tolerance, measure, lambda name: requests[name] * max(100, target) // 100)


def by_average(
    pods: Sequence[Pod], samples: Samples, groups: PodReadiness, target: int, current: int, tolerance: Tolerance
) -> Count:
    """Replicas so that pods use `target` thousandths each."""

    def measure(samples_counted: Samples) -> tuple[float, int, int | None]:
        average = sum(sample.value for sample in samples_counted.values()) // len(samples_counted)
        return average / target, average, None

    return _count(_kept(pods, samples, groups), groups, current, tolerance, measure, lambda name: target)


def _kept(pods: Sequence[Pod], samples: Samples, groups: PodReadiness) -> dict[str, MetricSample]:
    if not pods:
        raise NoCount("no pods returned by selector while calculating replica count")
    kept = {name: sample for name, sample in samples.items() if name not in groups.ignored | groups.unready}
    if not kept:
        raise NoCount("did not receive metrics for targeted pods (pods might be unready)")
    return kept


def _count(
    kept: dict[str, MetricSample],
    groups: PodReadiness,
    current: int,
    tolerance: Tolerance,
    measure: Measure,
    busy: Callable[[str], int],
) -> Count:
    ratio, average, percent = measure(kept)
    same = Count(current, average, percent)
    warming = bool(groups.unready) and ratio > 1.0
    if not warming and not groups.missing:
        if tolerance.covers(ratio):
            return same
        return Count(math.ceil(ratio * groups.ready), average, percent)
    guessed = dict(kept)
    if ratio < 1.0:
        guessed |= {name: _guess(busy(name)) for name in groups.missing}
    elif ratio > 1.0:
        guessed |= {name: _guess(0) for name in groups.missing}
    if warming:
        guessed |= {name: _guess(0) for name in groups.unready}
    again = measure(guessed)[0]
    if tolerance.covers(again) or (ratio < 1.0 < again) or (again < 1.0 < ratio):
        return same
    replicas = math.ceil(again * len(guessed))
    if (again < 1.0 and replicas > current) or (again > 1.0 and replicas < current):
        return same
    return Count(replicas, average, percent)


def _guess(value: int) -> MetricSample:
    return MetricSample(value, datetime.min, 0.0)


def by_value(used: int, target: int, current: int, tolerance: Tolerance, pods: Sequence[Pod]) -> Count:
    """Replicas so that one value of something outside is `target`, if it falls as pods are added."""
    ratio = used / target
    if not current:
        return Count(math.ceil(ratio), used)
    if tolerance.covers(ratio):
        return Count(current, used)
    if not pods:
        raise NoCount("unable to calculate ready pods: no pods returned by selector while calculating replica count")
    ready = sum(pod.status.phase == "Running" and _is_ready(pod) for pod in pods)
    return Count(min(MOST, math.ceil(ratio * ready)), used)


def by_value_per_pod(used: int, target: int, replicas: int, tolerance: Tolerance) -> Count:
    """Replicas so that each has `target` of one value of something outside."""
    ratio = used / (target * replicas) if replicas else math.inf if used else math.nan
    desired = replicas if tolerance.covers(ratio) else min(MOST, math.ceil(used / target))
    shown = LARGEST if used >= LARGEST or not replicas else math.ceil(used / replicas)
    return Count(desired, shown)


def _is_ready(pod: Pod) -> bool:
    ready = condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def requests(pods: Sequence[Pod], resource: str, container: str = "") -> dict[str, int]:
    """What every pod requests of a resource; one that does not say spoils the percentage for all."""
    return {pod.metadata.name: _request(pod, resource, container) for pod in pods}


def _request(pod: Pod, resource: str, container: str) -> int:
    name, level = pod.metadata.name, pod.spec.resources
    if level is not None and level.requests and not container:
        request = quantities(pod).get(resource)
        if request is None:
            raise NoCount(f"missing pod-level request for {resource} in Pod {name}")
        return request.milli
    sidecars = [
        init_container for init_container in pod.spec.init_containers if init_container.restart_policy == "Always"
    ]
    counted = [
        counted_container
        for counted_container in (*pod.spec.containers, *sidecars)
        if container in ("", counted_container.name)
    ]
    if container and not counted:
        raise NoCount(f"container {container} not found in Pod {name}")
    for counted_container in counted:
        if resource not in counted_container.resources.requests:
            raise NoCount(f"missing request for {resource} in container {counted_container.name} of Pod {name}")
    return sum(milli(counted_container.resources.requests[resource]) for counted_container in counted)
