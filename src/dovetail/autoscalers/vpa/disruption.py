"""How many pods of a group the updater may disrupt in one loop, and what becomes of a pod being resized.

A group is the pods of one direct controller (a ReplicaSet, not its Deployment). Every loop counts anew: a pod
whose replacement still waits lowers the number of running pods, and through that the allowance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from dovetail.autoscalers.vpa.api import (
    IN_PLACE,
    IN_PLACE_OR_RECREATE,
    Pod,
    PodRecommendation,
    VerticalPodAutoscaler,
)
from dovetail.autoscalers.vpa.recommendation import Recommendation, recommendations
from dovetail.autoscalers.vpa.startup_boost import is_boosted
from dovetail.model.meta import Condition, condition

#: A resize that the kubelet deferred for longer becomes an eviction, in mode InPlaceOrRecreate.
DEFERRED_RESIZE_TIMEOUT_S = 300.0
#: The same for a resize in progress.
RESIZE_IN_PROGRESS_TIMEOUT_S = 3600.0

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
ResizeStatus = Literal["None", "Deferred", "Infeasible", "InProgress", "Error", "Unknown"]
InPlaceDecision = Literal["Approved", "Deferred", "Evict", "Infeasible", "InfeasibleCached"]


class GroupKey(msgspec.Struct, frozen=True):
    """The controller of a pod."""

    namespace: str
    kind: str
    name: str


class ControllerPods(msgspec.Struct, kw_only=True):
    """The pods of one controller, and what this loop did to them."""

    key: GroupKey
    configured: int
    tolerance: int
    running: int = 0
    pending: int = 0
    evicted: int = 0
    resized: int = 0
    #: Only in-place updates are allowed: there are too few pods to evict any.
    below_min_replicas: bool = False

    @property
    def is_disruptable(self) -> bool:
        alive = self.running - self.evicted - self.resized
        untouched = self.evicted == 0 and self.resized == 0
        return alive > self.configured - self.tolerance or (
            self.configured == self.running and self.tolerance == 0 and untouched
        )


class TooFewReplicas(msgspec.Struct, frozen=True):
    """A group that is left alone because it is smaller than required."""

    key: GroupKey
    live: int
    required: int


class UnknownSize(msgspec.Struct, frozen=True):
    """A group whose controller is missing or wants no pods, so that no allowance can be computed."""

    key: GroupKey
    live: int


class DisruptionGroups(msgspec.Struct, frozen=True):
    """The groups that may be touched, the group of each of their pods by key, and the groups left alone."""

    by_key: dict[GroupKey, ControllerPods]
    of_pod: dict[str, ControllerPods]
    skipped: list[TooFewReplicas | UnknownSize]


class DisruptionSettings(msgspec.Struct, frozen=True, kw_only=True):
    min_replicas: int = 2
    tolerance_fraction: float = 0.5
    in_place_skips_budget: bool = False


def group_key(pod: Pod) -> GroupKey | None:
    owner = pod.metadata.controller
    return None if owner is None else GroupKey(pod.metadata.namespace, owner.kind, owner.name)


def group_pods(
    pods: Iterable[Pod],
    vpa: VerticalPodAutoscaler,
    sizes: Mapping[GroupKey, int | None],
    settings: DisruptionSettings,
) -> DisruptionGroups:
    """Sort the live pods of a VPA into groups.

    `sizes` has the configured number of pods of ReplicationControllers, ReplicaSets, StatefulSets and DaemonSets;
    None where that is unknown or 0. A Job's size is its live pods; any other kind counts as 0.
    """
    members: dict[GroupKey, list[Pod]] = {}
    for pod in pods:
        key = group_key(pod)
        if key is not None:
            members.setdefault(key, []).append(pod)
    policy = vpa.spec.update_policy
    own = policy.min_replicas if policy is not None else None
    required = settings.min_replicas if own is None else own
    in_place_only = settings.in_place_skips_budget and vpa.update_mode in (IN_PLACE, IN_PLACE_OR_RECREATE)
    groups = DisruptionGroups({}, {}, [])
    for key, live in members.items():
        below = len(live) < required
        if below and not in_place_only and not any(is_boosted(pod) for pod in live):
            groups.skipped.append(TooFewReplicas(key, len(live), required))
            continue
        configured = len(live) if key.kind == "Job" else sizes.get(key, 0)
        if configured is None:
            groups.skipped.append(UnknownSize(key, len(live)))
            continue
        pending = sum(pod.status.phase == "Pending" for pod in live)
        group = ControllerPods(
            key=key,
            configured=configured,
            tolerance=int(configured * settings.tolerance_fraction),
            running=len(live) - pending,
            pending=pending,
            below_min_replicas=below and in_place_only,
        )
        groups.by_key[key] = group
        groups.of_pod.update((pod.metadata.key, group) for pod in live)
    return groups


def is_resizing(pod: Pod) -> bool:
    """Whether the first resize condition of a pod is True."""
    for item in pod.status.conditions:
        if item.type in (RESIZE_PENDING, RESIZE_IN_PROGRESS):
            return item.status == "True"
    return False


def resize_status(pod: Pod) -> ResizeStatus:
    if not is_resizing(pod):
        return "None"
    pending = _condition(pod, RESIZE_PENDING)
    if pending is not None:
        if pending.reason == "Deferred":
            return "Deferred"
        return "Infeasible" if pending.reason == "Infeasible" else "Unknown"
    progress = _condition(pod, RESIZE_IN_PROGRESS)
    if progress is not None:
        if not progress.reason and not progress.message:
            return "InProgress"
        if progress.reason == "Error":
            return "Error"
    return "Unknown"


def may_evict_resizing(pod: Pod, group: ControllerPods, resizing_for_s: float) -> bool:
    """Whether a pod being resized is evicted instead: the resize failed, or takes too long."""
    if not is_resizing(pod) or not group.is_disruptable:
        return False
    status = resize_status(pod)
    if status == "Deferred":
        return resizing_for_s > DEFERRED_RESIZE_TIMEOUT_S
    if status == "InProgress":
        return resizing_for_s > RESIZE_IN_PROGRESS_TIMEOUT_S
    return True


def may_evict(pod: Pod, groups: DisruptionGroups, resizing_for_s: float = 0.0) -> bool:
    """Whether the eviction rules allow it. A pod that waits for a node may always go if its group is known."""
    group = groups.of_pod.get(pod.metadata.key)
    if group is None:
        return False
    if pod.status.phase == "Pending":
        return True
    if group.below_min_replicas:
        return False
    return may_evict_resizing(pod, group, resizing_for_s) if is_resizing(pod) else group.is_disruptable


def in_place_decision(
    pod: Pod,
    vpa: VerticalPodAutoscaler,
    groups: DisruptionGroups,
    settings: DisruptionSettings,
    *,
    resizing_for_s: float = 0.0,
    infeasible: PodRecommendation | None = None,
    in_place_gate: bool = False,
) -> InPlaceDecision:
    """What to do with a pod that shall be resized in place. `infeasible` is what its node last had no room for."""
    mode = vpa.update_mode
    group = groups.of_pod.get(pod.metadata.key)
    if (
        (mode == IN_PLACE and not in_place_gate)
        or group is None
        or pod.status.phase == "Pending"
        or vpa.status.recommendation is None
    ):
        return "Deferred"
    recommended = recommendations(vpa.status.recommendation)
    if mode == IN_PLACE and infeasible is not None and not asks_less(recommended, infeasible):
        return "InfeasibleCached"
    status = resize_status(pod)
    if status != "None":
        if mode == IN_PLACE:
            return "Infeasible" if status == "Infeasible" else "Deferred"
        return "Evict" if may_evict_resizing(pod, group, resizing_for_s) else "Deferred"
    if settings.in_place_skips_budget and not restarts_on_resize(pod):
        return "Approved"
    return "Approved" if group.is_disruptable else "Deferred"


def restarts_on_resize(pod: Pod) -> bool:
    """Whether a container asks to be restarted when its resources change."""
    return any(
        policy.restart_policy == "RestartContainer"
        for container in pod.spec.containers
        for policy in container.resize_policy
    )


def asks_less(items: Iterable[Recommendation], old: PodRecommendation) -> bool:
    """Whether some target is lower than it was: then a resize that did not fit may fit now."""
    before = {item.container: item.target or {} for item in recommendations(old)}
    return any(
        name in before.get(item.container, {}) and target < before[item.container][name]
        for item in items
        for name, target in (item.target or {}).items()
    )


def _condition(pod: Pod, kind: str) -> Condition | None:
    return condition(pod.status.conditions, kind)
