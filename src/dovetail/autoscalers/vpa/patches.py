"""JSON patches: of pods on their way in, and of running pods that are resized in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from dovetail.autoscalers.vpa.api import (
    IN_PLACE_UPDATED,
    OBSERVED_CONTAINERS,
    OFF,
    REQUESTS_AND_LIMITS,
    UPDATES,
    Amounts,
    Pod,
    Resources,
    VerticalPodAutoscaler,
    amounts,
    container_policy,
    controlled_values,
    limits_of,
    requests_of,
    resources_of,
)
from dovetail.autoscalers.vpa.capping import NO_LIMITS, NamespaceLimits, fit
from dovetail.autoscalers.vpa.proportions import ZERO, proportional_limits
from dovetail.autoscalers.vpa.recommendation import of_container
from dovetail.autoscalers.vpa.startup_boost import (
    BOOST_PREFIX,
    boost_of,
    boosted_resources,
    expired_boosts,
    original_resources,
    read_original,
)
from dovetail.model.quantity import Quantity

Patch = dict[str, Any]


class ContainerResources(msgspec.Struct, kw_only=True):
    """Requests and limits to set on one container; empty where there is nothing to set."""

    requests: Amounts = msgspec.field(default_factory=dict)
    limits: Amounts = msgspec.field(default_factory=dict)
    notes: list[str] = msgspec.field(default_factory=list)


def container_resources(
    pod: Pod, vpa: VerticalPodAutoscaler, limits: NamespaceLimits = NO_LIMITS
) -> list[ContainerResources]:
    """What a VPA would set on each container of a pod, in the order of the pod's spec."""
    fitted = fit(vpa, pod, limits) if vpa.status.recommendation is not None else None
    items, notes = (fitted.items, fitted.notes) if fitted is not None else ([], {})
    policy = None if vpa.update_mode == OFF else vpa.spec.resource_policy
    defaults = (limits.container.default if limits.container is not None else None) or {}
    recommended = []
    for container in pod.spec.containers:
        item = of_container(container.name, items)
        own = ContainerResources(notes=list(notes.get(container.name, ())))
        recommended.append(own)
        if item is None:
            continue
        own.requests = {name: target for name, target in (item.target or {}).items() if name}
        if controlled_values(container.name, policy) == REQUESTS_AND_LIMITS:
            scaled, limit_notes = proportional_limits(
                limits_of(container.name, pod), requests_of(container.name, pod), own.requests, defaults
            )
            if scaled is not None:
                own.limits = scaled
                own.notes += limit_notes
    return recommended


def admission_patches(
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    limits: NamespaceLimits = NO_LIMITS,
    *,
    startup_boost: bool = False,
    max_cpu_boost: Quantity = ZERO,
) -> list[Patch]:
    """The patch of a new pod: resources, then the annotations that name the changes and the VPA."""
    patches: list[Patch] = []
    if pod.metadata.annotations is None:
        patches.append(_add("/metadata/annotations", {}))
    updates = []
    for index, (container, desired) in enumerate(
        zip(pod.spec.containers, container_resources(pod, vpa, limits), strict=True)
    ):
        if vpa.update_mode == OFF:
            desired = ContainerResources()
        if startup_boost:
            policy = container_policy(container.name, vpa.spec.resource_policy)
            if policy is not None and policy.mode == "Off":
                continue
            boost = boost_of(container.name, vpa)
            if boost is not None:
                desired.requests, desired.limits = boosted_resources(
                    container, vpa, desired.requests, desired.limits, boost, max_cpu_boost
                )
                patches.append(_annotate(BOOST_PREFIX + container.name, original_resources(container)))
        own = _container_patches(index, resources_of(container.name, pod), desired)
        if own:
            patches += own
            changes = [*desired.notes, *(f"{name} request" for name in desired.requests)]
            changes += [f"{name} limit" for name in desired.limits]
            updates.append(f"container {index}: " + ", ".join(changes))
    if updates:
        text = f"Pod resources updated by {vpa.metadata.name}: " + "; ".join(updates)
        patches.append(_annotate(UPDATES, text))
    names = ", ".join(container.name for container in pod.spec.containers)
    patches.append(_annotate(OBSERVED_CONTAINERS, names))
    return patches


def resize_patches(
    pod: Pod, vpa: VerticalPodAutoscaler, now: datetime, limits: NamespaceLimits = NO_LIMITS
) -> list[Patch]:
    """What the updater does to a running pod's `resize` subresource.

    A container whose boost is over gets its recommendation, or without one what it had before; one that is still
    boosted is left alone.
    """
    expired = expired_boosts(pod, vpa, now)
    off = vpa.update_mode == OFF
    recommended = [ContainerResources() for _ in pod.spec.containers] if off else container_resources(pod, vpa, limits)
    patches: list[Patch] = []
    for index, (container, desired) in enumerate(zip(pod.spec.containers, recommended, strict=True)):
        key = BOOST_PREFIX + container.name
        if key in expired:
            before = read_original(pod, container.name)
            if before is not None and not desired.requests and not desired.limits:
                desired = ContainerResources(requests=amounts(before.requests), limits=amounts(before.limits))
        elif key in pod.annotations or off:
            continue
        patches += _container_patches(index, container.resources, desired)
    return patches


def resize_annotation_patches(pod: Pod, vpa: VerticalPodAutoscaler, now: datetime) -> list[Patch]:
    """What the updater notes on a pod it has resized."""
    patches: list[Patch] = [] if pod.metadata.annotations is not None else [_add("/metadata/annotations", {})]
    patches.append(_annotate(IN_PLACE_UPDATED, "true"))
    for name in expired_boosts(pod, vpa, now):
        patches.append({"op": "remove", "path": f"/metadata/annotations/{_escaped(name)}", "value": None})
    return patches


def _container_patches(index: int, current: Resources, desired: ContainerResources) -> list[Patch]:
    """Values, after the maps that hold them where there are none."""
    patches = []
    base = f"/spec/containers/{index}/resources"
    if current.requests is None and current.limits is None:
        patches.append(_add(base, {}))
    for field, held, values in (
        ("requests", current.requests, desired.requests),
        ("limits", current.limits, desired.limits),
    ):
        if held is None and values:
            patches.append(_add(f"{base}/{field}", {}))
        patches += [_add(f"{base}/{field}/{_escaped(name)}", str(value)) for name, value in values.items()]
    return patches


def applied(patches: Sequence[Mapping[str, Any]]) -> bool:
    """Whether patches set a resource, not only annotations."""
    return any(str(patch["path"]).startswith("/spec/containers/") for patch in patches)


def _add(path: str, value: object) -> Patch:
    return {"op": "add", "path": path, "value": value}


def _annotate(name: str, value: str) -> Patch:
    return _add(f"/metadata/annotations/{_escaped(name)}", value)


def _escaped(segment: str) -> str:
    return segment.replace("~", "~0").replace("/", "~1")
