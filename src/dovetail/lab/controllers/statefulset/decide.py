"""StatefulSets, the deciding half: which numbered pod to make or take away next, and the status."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dovetail.lab.controllers.controller_revisions import HASH_LABEL
from dovetail.lab.controllers.deployment.rollout import replicas
from dovetail.lab.controllers.pods import available_in, finished, ready, terminating
from dovetail.lab.controllers.views import Json, PodFields

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


class Create(NamedTuple):
    """Make the pod of this ordinal, of the current revision or of the new one."""

    ordinal: int
    updated: bool


class DeletePod(NamedTuple):
    """Take the pod away; `rolled` if only to have it back at the new revision."""

    pod: PodFields
    rolled: bool = False


Step = Create | DeletePod


def ordinal(set_name: str, pod_name: str) -> int:
    """The pod's number; -1 if its name is not of this set."""
    parent, dash, number = pod_name.rpartition("-")
    return int(number) if dash and parent == set_name and number.isdigit() else -1


def first_ordinal(workload: Json) -> int:
    return int((workload["spec"].get("ordinals") or {}).get("start", 0))


def burst(workload: Json) -> bool:
    return bool(workload["spec"].get("podManagementPolicy") == "Parallel")


def _rolling(workload: Json) -> bool:
    return bool(workload["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") == "RollingUpdate")


def partition(workload: Json) -> int:
    rolling = workload["spec"].get("updateStrategy", {}).get("rollingUpdate") or {}
    return int(rolling.get("partition", 0) or 0)


def steps(workload: Json, pods: Sequence[PodFields], updated: str, now: datetime) -> list[Step]:
    """What to do now. One step at a time unless pods are managed in parallel. `updated` names the new revision."""
    if "deletionTimestamp" in workload["metadata"]:
        return []
    name = workload["metadata"]["name"]
    start, count = first_ordinal(workload), replicas(workload)
    by_number = {ordinal(name, pod.metadata.name): pod for pod in pods}
    numbers = range(start, start + count)
    step = _fill(workload, by_number, numbers, updated, now)
    if step is not None and (step or not burst(workload)):
        return step
    condemned = [
        by_number[number] for number in sorted(by_number, reverse=True) if number >= 0 and number not in numbers
    ]
    gone = _delete_condemned(workload, condemned, by_number, numbers, now)
    if gone is not None:
        return gone
    if not _rolling(workload):
        return []
    return _update(workload, by_number, numbers, updated, now)


def _fill(
    workload: Json, by_number: Mapping[int, PodFields], numbers: range, updated: str, now: datetime
) -> list[Step] | None:
    """Steps to have every replica; an empty list waits; None means all are well."""
    made: list[Step] = []
    waits = False
    for number in numbers:
        pod = by_number.get(number)
        if pod is None:
            made.append(Create(number, _born_updated(workload, number, by_number, updated)))
        elif finished(pod) and not terminating(pod):
            made.append(DeletePod(pod))
        elif _available(workload, pod, now) and not terminating(pod):
            continue
        else:
            waits = True
        if not burst(workload):
            return made
    return made if made or waits else None


def _born_updated(workload: Json, number: int, by_number: Mapping[int, PodFields], updated: str) -> bool:
    """Below the partition, and while a rollout has not come down to it, a pod is made as it was."""
    status = workload.get("status", {})
    if status.get("currentRevision", updated) == updated:
        return True
    if not _rolling(workload):
        return True
    has_partition = workload["spec"].get("updateStrategy", {}).get("rollingUpdate") is not None
    kept = partition(workload) if has_partition else int(status.get("currentReplicas", 0))
    return number >= first_ordinal(workload) + kept


def _delete_condemned(
    workload: Json, condemned: list[PodFields], by_number: Mapping[int, PodFields], numbers: range, now: datetime
) -> list[Step] | None:
    if not condemned:
        return None
    if burst(workload):
        return [DeletePod(pod) for pod in condemned if not terminating(pod)] or None
    members = [by_number[number] for number in numbers if number in by_number]
    sick = next((pod for pod in (*members, *reversed(condemned)) if not _available(workload, pod, now)), None)
    pod = condemned[0]
    if terminating(pod) or (not _available(workload, pod, now) and pod is not sick):
        return []
    return [DeletePod(pod)]


def _update(
    workload: Json, by_number: Mapping[int, PodFields], numbers: range, updated: str, now: datetime
) -> list[Step]:
    """Roll from the highest number down, one pod at a time; wait for each that is rolled to be available."""
    for number in reversed(numbers[partition(workload) :]):
        pod = by_number[number]
        if pod.metadata.labels.get(HASH_LABEL) != updated and not terminating(pod):
            return [DeletePod(pod, rolled=True)]
        if not _available(workload, pod, now):
            return []
    return []


def _available(workload: Json, pod: PodFields, now: datetime) -> bool:
    return pod.status.phase == "Running" and not terminating(pod) and _seconds_to(workload, pod, now) <= 0


def _seconds_to(workload: Json, pod: PodFields, now: datetime) -> float:
    """Seconds until the pod counts as available."""
    return available_in(pod, int(workload["spec"].get("minReadySeconds", 0)), now)


def next_available(workload: Json, pods: Sequence[PodFields], now: datetime) -> float | None:
    """Seconds until the next pod that is ready becomes available, if one is to."""
    waits = [_seconds_to(workload, pod, now) for pod in pods]
    return min((wait for wait in waits if 0 < wait < math.inf), default=None)


def status_of(workload: Json, pods: Sequence[PodFields], updated: str, now: datetime, rolled: int = 0) -> Json:
    """What the controller saw before it acted, less the pods that it has since rolled."""
    old = workload.get("status", {})
    current = old.get("currentRevision") or updated
    mine = [pod for pod in pods if ordinal(workload["metadata"]["name"], pod.metadata.name) >= 0]
    healthy = [pod for pod in mine if pod.status.phase == "Running" and ready(pod)]
    fresh = [pod for pod in mine if not terminating(pod)]
    at_new = sum(pod.metadata.labels.get(HASH_LABEL) == updated for pod in fresh)
    at_old = sum(pod.metadata.labels.get(HASH_LABEL) == current for pod in fresh) - rolled
    if _rolling(workload) and at_new == len(healthy) == len(mine) == replicas(workload):
        current, at_old = updated, at_new
    status: Json = {"observedGeneration": workload["metadata"].get("generation", 0), "replicas": len(mine)}
    counts = {
        "readyReplicas": len(healthy),
        "currentReplicas": at_old,
        "updatedReplicas": at_new,
    }
    status |= {field: count for field, count in counts.items() if count}
    status["availableReplicas"] = sum(_seconds_to(workload, pod, now) <= 0 for pod in healthy)
    status |= {"currentRevision": current, "updateRevision": updated}
    status["collisionCount"] = int(old.get("collisionCount", 0) or 0)
    return status
