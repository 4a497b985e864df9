"""Facts about pods that every workload controller asks: active, ready, available, and which goes first.

The order of victims is Kubernetes' own: the pod whose loss hurts least is deleted first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key
from typing import Any, NamedTuple

from dovetail.kube.errors import NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import PODS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.timestamps import parse
from dovetail.lab.controllers.views import Json, PodFields

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def finished(pod: PodFields) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def terminating(pod: PodFields) -> bool:
    return pod.metadata.deletion_timestamp is not None


def active(pod: PodFields) -> bool:
    """Counts toward its owner: neither finished nor on its way out."""
    return not finished(pod) and not terminating(pod)


def ready(pod: PodFields) -> bool:
    condition = pod.status.condition("Ready")
    return condition is not None and condition.status == "True"


def ready_since(pod: PodFields) -> tuple[bool, str | None]:
    """Whether the pod is ready, and since when."""
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True":
        return False, None
    return True, condition.last_transition_time


def available_in(pod: PodFields, min_ready: int, now: datetime) -> float:
    """Seconds until the pod counts as available: 0 now, infinity while it is not ready."""
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True":
        return math.inf
    if min_ready == 0:
        return 0.0
    if condition.last_transition_time is None:
        return math.inf
    return max(0.0, min_ready - (now - parse(condition.last_transition_time)).total_seconds())


def controllers(kind: str, *pods: PodFields | None) -> Iterator[str]:
    """The keys of the objects of a kind that manage these pods."""
    for pod in pods:
        owner = pod.metadata.controller if pod is not None else None
        if pod is not None and owner is not None and owner.kind == kind:
            yield f"{pod.metadata.namespace}/{owner.name}"


def deletion_cost(pod: PodFields) -> int:
    if not pod.metadata.annotations:
        return 0
    text = pod.metadata.annotations.get(DELETION_COST, "0")
    return int(text) if text.lstrip("-").isdigit() else 0


def victims(pods: Sequence[PodFields], count: int, ranks: Mapping[str, int], now: datetime) -> list[PodFields]:
    """The `count` pods to delete first. `ranks`: pods of the same family on each node (doubling up goes first)."""
    if count >= len(pods):
        return list(pods)
    alike: dict[tuple[bool, int, bool, int, int], list[PodFields]] = {}
    for pod in pods:
        alike.setdefault(_first(pod, ranks), []).append(pod)
    chosen: list[PodFields] = []
    for first in sorted(alike):
        for age in _by_age(alike[first], now):
            chosen += age
            if len(chosen) >= count:
                return chosen[:count]
    return chosen


def _by_age(pods: Sequence[PodFields], now: datetime) -> Iterator[list[PodFields]]:
    """Pods that are alike at first, the magnitude of their readiness' age by magnitude, each in its order."""
    ages: dict[int, list[PodFields]] = {}
    age_by_stamp: dict[str | None, int] = {}
    for pod in pods:
        since = ready_since(pod)[1]
        if since not in age_by_stamp:
            age_by_stamp[since] = _log_age(since, now)
        ages.setdefault(age_by_stamp[since], []).append(pod)
    for age in sorted(ages):
        losses = [_Loss.of(pod, now) for pod in ages[age]]
        if len({(loss.restarts, loss.age) for loss in losses}) == 1:
            losses.sort(key=lambda loss: loss.uid)
        else:
            losses.sort(key=cmp_to_key(_compare))
        yield [loss.pod for loss in losses]


def _first(pod: PodFields, ranks: Mapping[str, int]) -> tuple[bool, int, bool, int, int]:
    """What is looked at before anything else."""
    node = pod.spec.node_name
    return (node != "", _PHASES.get(pod.status.phase, 0), ready(pod), deletion_cost(pod), -ranks.get(node, 0))


class _Loss(NamedTuple):
    """What decides among pods that are alike at first and ready for about as long, computed once a pod."""

    ready_since: str | None
    restarts: int
    created: str | None
    age: int
    uid: str
    pod: PodFields

    @classmethod
    def of(cls, pod: PodFields, now: datetime) -> _Loss:
        created = pod.metadata.creation_timestamp
        return cls(
            ready_since=ready_since(pod)[1],
            restarts=max((status.restart_count for status in pod.status.container_statuses), default=0),
            created=created,
            age=_log_age(created, now),
            uid=pod.metadata.uid,
            pod=pod,
        )


def _compare(first: _Loss, two: _Loss) -> int:
    if first.ready_since != two.ready_since:
        return _by_uid(first, two)
    if first.restarts != two.restarts:
        return two.restarts - first.restarts
    if first.created != two.created:
        return first.age - two.age or _by_uid(first, two)
    return _by_uid(first, two)


def _by_uid(first: _Loss, two: _Loss) -> int:
    return -1 if first.uid < two.uid else 1


def _log_age(instant: str | None, now: datetime) -> int:
    """Ages are compared by powers of two of nanoseconds, so that no pod is picked for being seconds younger."""
    if instant is None:
        return -1
    nanoseconds = (now - parse(instant)).total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


# Deleting the pods that a workload has too many of, with an event for each.


async def remove(context: ControllerContext, pods: Iterable[PodFields], about: InvolvedObject) -> None:
    """Delete pods that may be gone already, then wait until the shared store has seen it: else they go twice."""
    version = 0
    try:
        for pod in pods:
            try:
                answer = await context.kube.delete(PODS, pod.metadata.name, pod.metadata.namespace)
            except NotFound:
                continue
            version = max(version, int(answer.get("metadata", {}).get("resourceVersion", 0)))
            context.recorder.normal(about, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
    finally:
        await context.pods.seen(version)


# A pod from a template: labels, annotations and finalizers of the template, and a reference to its owner.


def pod_of(
    template: Json,
    owner_kind: tuple[str, str],
    owner_metadata: Json,
    *,
    name: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> Json:
    """`owner_kind` is (apiVersion, kind). Without a name the server makes one from the prefix."""
    given = template.get("metadata", {})
    metadata: dict[str, Any] = {
        "generateName": prefix(owner_metadata["name"]),
        "namespace": owner_metadata["namespace"],
        "ownerReferences": [owner(*owner_kind, owner_metadata)],
    }
    if name is not None:
        metadata["name"] = name
    all_labels = {**given.get("labels", {}), **(labels or {})}
    if all_labels:
        metadata["labels"] = all_labels
    all_annotations = {**given.get("annotations", {}), **(annotations or {})}
    if all_annotations:
        metadata["annotations"] = all_annotations
    if given.get("finalizers"):
        metadata["finalizers"] = list(given["finalizers"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**template.get("spec", {}), **(spec or {})},
    }


def prefix(owner_name: str) -> str:
    """The start of a generated name: the dash is left out where it would make the prefix too long to be valid."""
    return f"{owner_name}-" if len(owner_name) < 253 else owner_name
