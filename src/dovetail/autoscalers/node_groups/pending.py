"""Pending pods: which of the cluster's pods are a reason to grow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from dovetail.autoscalers.node_groups.annotations import (
    NVIDIA_GPU,
    POD_SCALE_UP_DELAY,
    is_daemonset,
    is_mirror_pod,
    is_static,
)
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.model import duration
from dovetail.model.duration import DurationError
from dovetail.model.meta import condition
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod

#: Pods that are all younger than this wait one loop: more of them may follow.
NEW_POD_S = 2.0
NEW_GPU_POD_S = 30.0
#: A pod found unschedulable within this time starts a loop at once.
RECENT_S = 10.0


def is_unschedulable(pod: Pod) -> bool:
    """Whether the scheduler found no node for the pod, and none is nominated for it."""
    if pod.spec.node_name or pod.terminating or pod.finished or pod.status.nominated_node_name:
        return False
    scheduled = condition(pod.status.conditions, "PodScheduled")
    return scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable"


def is_unprocessed(pod: Pod, bypassed: frozenset[str]) -> bool:
    """Whether a scheduler whose verdict is not waited for has not looked at the pod yet."""
    if pod.spec.node_name or pod.terminating or pod.finished or pod.spec.scheduler_name not in bypassed:
        return False
    return condition(pod.status.conditions, "PodScheduled") is None


def is_recent(pod: Pod, now: datetime) -> bool:
    """Whether the pod became unschedulable a moment ago."""
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or not is_unschedulable(pod):
        return False
    since = scheduled.last_transition_time
    return since is None or since + timedelta(seconds=RECENT_S) >= now


def is_recreatable(pod: Pod) -> bool:
    """Whether a pod that is evicted comes again somewhere else."""
    return not (is_daemonset(pod) or is_mirror_pod(pod) or is_static(pod)) and pod.metadata.controller is not None


def schedulable_with_groups(pods: Iterable[Pod], cutoff: int) -> list[Pod]:
    """Pods that are neither expendable nor of a DaemonSet, the most important first."""
    kept = [pod for pod in pods if (pod.spec.priority or 0) >= cutoff and not is_daemonset(pod)]
    return sorted(kept, key=lambda pod: -(pod.spec.priority or 0))


def without_places(pods: Sequence[Pod], snapshot: ClusterSnapshot, hints: dict[str, str]) -> list[Pod]:
    """Place those that fit on nodes that are there or will come; the others are returned. Hints are renewed."""
    placed = snapshot.schedule(pods, None, hints)
    hints.clear()
    hints.update(placed)
    return [pod for pod in pods if (pod.metadata.uid or pod.metadata.key) not in placed]


def old_enough(pods: Iterable[Pod], delay_s: float, now: datetime) -> list[Pod]:
    """Pods older than the delay, or than the longer one that they ask for themselves."""
    kept: list[Pod] = []
    for pod in pods:
        wait = max(delay_s, _own_delay(pod))
        created = pod.metadata.creation_timestamp
        if created is None or (now - created).total_seconds() > wait or wait == 0:
            kept.append(pod)
    return kept


def _own_delay(pod: Pod) -> float:
    text = pod.metadata.annotations.get(POD_SCALE_UP_DELAY)
    if text is None:
        return 0.0
    try:
        return duration.parse(text).total_seconds()
    except DurationError:
        return 0.0


def all_new(pods: Sequence[Pod], now: datetime) -> bool:
    """Whether more pods are likely to follow these: all are very young, or the oldest that asks for a GPU is."""
    created = [pod.metadata.creation_timestamp for pod in pods if pod.metadata.creation_timestamp is not None]
    if not created:
        return False
    if min(created) + timedelta(seconds=NEW_POD_S) > now:
        return True
    gpu = [
        pod.metadata.creation_timestamp
        for pod in pods
        if pod.metadata.creation_timestamp is not None and requests(pod).get(NVIDIA_GPU)
    ]
    return bool(gpu) and min(gpu) + timedelta(seconds=NEW_GPU_POD_S) > now
