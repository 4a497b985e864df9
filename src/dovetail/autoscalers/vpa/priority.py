"""Which pods are worth an update, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dovetail.autoscalers.vpa.api import (
    OBSERVED_CONTAINERS,
    EvictionRequirement,
    Pod,
    VerticalPodAutoscaler,
    container_policy,
    requests_of,
)
from dovetail.autoscalers.vpa.recommendation import Recommendation, of_container
from dovetail.model.formats import label

#: Log lines by the reason for which a pod is not updated.
NOT_ACCEPTED: Mapping[str, str] = {
    "MissingStartTime": "Not updating pod, missing field pod.Status.StartTime",
    "WithinRangeAndShortLived": "Not updating a short-lived pod, request within recommended range",
    "ResourceDiffTooLow": "Not updating pod, resource diff too low",
    "ResourceWouldNotChange": "Not updating pod because resource would not change",
}
HIGHER, LOWER = "TargetHigherThanRequests", "TargetLowerThanRequests"


class UpdateThresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults are upstream's."""

    min_change: float = 0.1
    pod_lifetime_s: float = 12 * 3600.0
    evict_after_oom_s: float = 600.0
    #: Whether a VPA may say for itself how long after an OOM a pod is updated (gate PerVPAConfig).
    per_vpa_config: bool = False


class Priority(msgspec.Struct, frozen=True, kw_only=True):
    """How much an update of a pod would change."""

    outside_range: bool = False
    scale_up: bool = False
    resource_diff: float = 0.0

    @property
    def rank(self) -> tuple[bool, float]:
        """Higher is sooner: pods that want to grow before those that do not, then the larger change."""
        return self.scale_up, self.resource_diff


class UpdateDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pod is updated, and the reason code where it is not."""

    accepted: bool
    priority: Priority
    reason: str
    quick_oom: bool = False


def observed_containers(pod: Pod) -> set[str] | None:
    """The containers that the admission controller saw; None if it left no readable list."""
    text = pod.annotations.get(OBSERVED_CONTAINERS)
    if text is None:
        return None
    names = text.split(", ") if text else []
    return None if any(label(name) for name in names) else set(names)


def update_priority(pod: Pod, items: Sequence[Recommendation]) -> Priority:
    """How far the requests of a pod are from its recommendation. A missing request counts as outside the range."""
    outside = scale_up = False
    requested: dict[str, int] = {}
    recommended: dict[str, int] = {}
    observed = observed_containers(pod)
    for container in pod.spec.containers:
        item = of_container(container.name, list(items))
        if item is None or (observed is not None and container.name not in observed):
            continue
        requests = requests_of(container.name, pod)
        for name, target in (item.target or {}).items():
            recommended[name] = recommended.get(name, 0) + target.milli
            request = requests.get(name)
            if request is None:
                scale_up = outside = True
                continue
            requested[name] = requested.get(name, 0) + request.milli
            scale_up = scale_up or target.milli > request.milli
            lower, upper = (item.lower or {}).get(name), (item.upper or {}).get(name)
            if (lower is not None and request < lower) or (upper is not None and request > upper):
                outside = True
    diff = 0.0
    for name, total in recommended.items():
        base = max(float(requested.get(name, 0)), 1.0)
        diff += abs(base - total) / base
    return Priority(outside_range=outside, scale_up=scale_up, resource_diff=diff)


def is_quick_oom(pod: Pod, vpa: VerticalPodAutoscaler, now: datetime, thresholds: UpdateThresholds) -> bool:
    """Whether a container was killed for memory soon after its start, and not long ago."""
    policy = vpa.spec.update_policy
    seconds = policy.evict_after_oom_seconds if policy is not None and thresholds.per_vpa_config else None
    threshold = timedelta(seconds=thresholds.evict_after_oom_s if seconds is None else seconds)
    observed = observed_containers(pod)
    for status in pod.status.container_statuses:
        if observed is not None and status.name not in observed:
            continue
        own = container_policy(status.name, vpa.spec.resource_policy)
        if own is not None and own.mode == "Off":
            continue
        end = status.last_state.terminated
        if end is None or end.reason != "OOMKilled" or end.finished_at is None or end.started_at is None:
            continue
        if end.finished_at - end.started_at < threshold and now - end.finished_at < threshold:
            return True
    return False


def verdict(
    pod: Pod, vpa: VerticalPodAutoscaler, items: Sequence[Recommendation], now: datetime, thresholds: UpdateThresholds
) -> UpdateDecision:
    """Whether an update is due: outside the range, killed for memory lately, or old and far enough off."""
    priority = update_priority(pod, items)
    quick_oom = is_quick_oom(pod, vpa, now, thresholds)

    def say(accepted: bool, reason: str) -> UpdateDecision:
        return UpdateDecision(accepted=accepted, priority=priority, reason=reason, quick_oom=quick_oom)

    if not priority.outside_range and not quick_oom:
        if pod.status.start_time is None:
            return say(False, "MissingStartTime")
        if now < pod.status.start_time + timedelta(seconds=thresholds.pod_lifetime_s):
            return say(False, "WithinRangeAndShortLived")
        if priority.resource_diff < thresholds.min_change:
            return say(False, "ResourceDiffTooLow")
    if quick_oom and priority.resource_diff == 0:
        return say(False, "ResourceWouldNotChange")
    return say(True, "Accepted")


def meets_requirements(
    pod: Pod, items: Sequence[Recommendation], requirements: Sequence[EvictionRequirement] | None
) -> bool:
    """Whether some container meets all eviction requirements; one without a cpu or memory request does."""
    if requirements is None:
        return True
    for container in pod.spec.containers:
        item = of_container(container.name, list(items))
        if item is None:
            continue
        requests, target = requests_of(container.name, pod), item.target or {}
        if "cpu" not in requests or "memory" not in requests:
            return True
        if all(
            any(
                _changes(
                    requests[name].milli if name in requests else 0,
                    target[name].milli if name in target else 0,
                    requirement.change_requirement,
                )
                for name in requirement.resources
            )
            for requirement in requirements
        ):
            return True
    return False


def _changes(request: int, target: int, requirement: str) -> bool:
    if requirement == HIGHER:
        return target > request
    return requirement == LOWER and target < request
