"""A recommendation fitted to one pod: to LimitRanges, to the policy, and to the pod's own limits.

The order is upstream's: pod LimitRange (upper bound, target, lower bound), container LimitRange, policy, and for
RequestsOnly at last the container's limit. Only changes of the target are noted.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dovetail.autoscalers.vpa.api import (
    REQUESTS_ONLY,
    Amounts,
    Pod,
    ResourcePolicy,
    VerticalPodAutoscaler,
    amounts,
    container_policy,
    controlled_values,
    limits_of,
    requests_of,
)
from dovetail.autoscalers.vpa.proportions import ZERO, LimitBounds, boundary_requests, proportional_limit, scaled
from dovetail.autoscalers.vpa.recommendation import (
    Recommendation,
    lowered_to,
    of_container,
    raised_to,
    recommendations,
)
from dovetail.model.quantity import Quantity

TO_MIN_ALLOWED = "capped to minAllowed"
TO_MAX_ALLOWED = "capped to maxAllowed"
TO_LIMIT = "capped to container limit"
TO_RANGE_MAX = "capped to fit Max in container LimitRange"
TO_RANGE_MIN = "capped to fit Min in container LimitRange"


class NamespaceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the LimitRanges of a namespace say."""

    container: LimitBounds | None = None
    pod: LimitBounds | None = None


NO_LIMITS = NamespaceLimits()


class FittedRecommendation(msgspec.Struct, frozen=True):
    """The recommendation for one pod, and notes by container on what changed the target."""

    items: list[Recommendation]
    notes: dict[str, list[str]]


def fit(vpa: VerticalPodAutoscaler, pod: Pod, limits: NamespaceLimits = NO_LIMITS) -> FittedRecommendation | None:
    """The recommendation of a VPA fitted to a pod; None where there is neither recommendation nor policy."""
    policy = vpa.spec.resource_policy
    if vpa.status.recommendation is None and policy is None:
        return None
    items = _fit_to_pod_range(recommendations(vpa.status.recommendation), pod, limits.pod)
    fitted: list[Recommendation] = []
    notes: dict[str, list[str]] = {}
    names = {container.name for container in pod.spec.containers}
    for item in items:
        if item.container not in names:
            continue
        capped, item_notes = _fit_to_container(item, pod, policy, limits.container)
        if item_notes:
            notes[item.container] = item_notes
        fitted.append(capped)
    return FittedRecommendation(fitted, notes)


def _fit_to_container(
    item: Recommendation, pod: Pod, policy: ResourcePolicy | None, bounds: LimitBounds | None
) -> tuple[Recommendation, list[str]]:
    capped, notes = item.copy(), []
    requests, limits = requests_of(item.container, pod), limits_of(item.container, pod)
    for part in (capped.target, capped.lower, capped.upper):
        if part is None:
            continue
        part_notes = _apply_range(part, requests, limits, bounds)
        part_notes += _apply_policy(part, item.container, policy)
        if controlled_values(item.container, policy) == REQUESTS_ONLY:
            part_notes += _apply_limit(part, limits)
        if part is capped.target:
            notes = part_notes
    return capped, notes


def _apply_range(
    part: Amounts, requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], bounds: LimitBounds | None
) -> list[str]:
    """The requests at which limits reach the range; the least request also may not be below the range's min."""
    if bounds is None:
        return []
    most = boundary_requests(requests, limits, bounds.max, bounds.default)
    least = boundary_requests(requests, limits, bounds.min, bounds.default)
    for name in ("cpu", "memory"):
        raw = (bounds.min or {}).get(name, ZERO)
        if raw > least.get(name, ZERO):
            least[name] = raw
    return _between(part, least, most, TO_RANGE_MIN, TO_RANGE_MAX)


def _apply_policy(part: Amounts, container: str, policy: ResourcePolicy | None) -> list[str]:
    own = container_policy(container, policy)
    if own is None:
        return []
    return _between(part, amounts(own.min_allowed), amounts(own.max_allowed), TO_MIN_ALLOWED, TO_MAX_ALLOWED)


def _between(
    part: Amounts, least: Mapping[str, Quantity], most: Mapping[str, Quantity], low_note: str, high_note: str
) -> list[str]:
    notes = []
    for name in part:
        part[name], raised = raised_to(part[name], name, least)
        if raised:
            notes.append(f"{name} {low_note}")
        part[name], lowered = lowered_to(part[name], name, most)
        if lowered:
            notes.append(f"{name} {high_note}")
    return notes


def _apply_limit(part: Amounts, limits: Mapping[str, Quantity]) -> list[str]:
    notes = []
    for name, limit in limits.items():
        if name in part and part[name].milli > limit.milli:
            part[name] = limit
            notes.append(f"{name} {TO_LIMIT}")
    return notes


def _fit_to_pod_range(items: list[Recommendation], pod: Pod, bounds: LimitBounds | None) -> list[Recommendation]:
    if bounds is None:
        return items
    fitted = [item.copy() for item in items]
    for container in pod.spec.containers:
        requests = requests_of(container.name, pod)
        if requests and of_container(container.name, items) is None:
            fitted.append(Recommendation(container=container.name, target=requests))
    for part in ("upper", "target", "lower"):
        for name in ("cpu", "memory"):
            _apply_pod_range(fitted, part, name, pod, bounds)
    return fitted


def _apply_pod_range(items: list[Recommendation], part: str, name: str, pod: Pod, bounds: LimitBounds) -> None:
    """Scale one resource of all containers until the sums of requests and limits lie within the pod's range."""
    least, most, default = ((side or {}).get(name, ZERO) for side in (bounds.min, bounds.max, bounds.default))
    limit_sum = recommended_sum = ZERO
    holders: list[tuple[Recommendation, Quantity]] = []
    for container in pod.spec.containers:
        request = requests_of(container.name, pod).get(name, ZERO)
        item = of_container(container.name, items)
        recommended = request if item is None else _part(item, part).get(name, ZERO)
        own = limits_of(container.name, pod).get(name, ZERO)
        limit, _ = proportional_limit(name, own, request, recommended, default)
        limit_sum = limit_sum + (limit or ZERO)
        recommended_sum = recommended_sum + recommended
        if item is not None:
            holders.append((item, recommended))
    within = least <= limit_sum and least <= recommended_sum and (not most or most >= limit_sum)
    if within or not limit_sum:
        return
    if least > recommended_sum:
        base, goal, up = recommended_sum, least, True
    else:
        base, goal, up = limit_sum, most if most and most < limit_sum else least, False
    if not base.milli:
        return  # nothing is recommended, so there is nothing to scale
    for item, recommended in holders:
        if name in _part(item, part):
            _part(item, part)[name] = scaled(name, recommended, base, goal, up=up)[0]


def _part(item: Recommendation, part: str) -> Amounts:
    held: Amounts | None = getattr(item, part)
    return held or {}
