"""StatefulSets, the deciding half: which numbered pod to make or take away next, and the status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dovetail.lab.controllers.deployment.rollout import replicas
from dovetail.lab.controllers.history import HASH_LABEL
from dovetail.lab.controllers.pods import available_in, finished, ready, terminating
from dovetail.lab.controllers.views import Json, PodView

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"


class Create(NamedTuple):
    """Make the pod of this ordinal, of the current revision or of the new one."""

    ordinal: int
    updated: bool


class Delete(NamedTuple):
    pod: PodView


Step = Create | Delete


def ordinal(set_name: str, pod_name: str) -> int:
    """The pod's number; -1 if its name is not of this set."""
    parent, dash, number = pod_name.rpartition("-")
    return int(number) if dash and parent == set_name and number.isdigit() else -1


def first_ordinal(workload: Json) -> int:
    return int((workload["spec"].get("ordinals") or {}).get("start", 0))


def burst(workload: Json) -> bool:
    return bool(workload["spec"].get("podManagementPolicy") == "Parallel")


def partition(workload: Json) -> int:
    rolling = workload["spec"].get("updateStrategy", {}).get("rollingUpdate") or {}
    return int(rolling.get("partition", 0) or 0)


def steps(workload: Json, pods: Sequence[PodView], updated: str, now: datetime) -> list[Step]:
    """What to do now. One step at a time unless pods are managed in parallel. `updated` names the new revision."""
    if "deletionTimestamp" in workload["metadata"]:
        return []
    name = workload["metadata"]["name"]
    start, count = first_ordinal(workload), replicas(workload)
    by_number = {ordinal(name, pod.metadata.name): pod for pod in pods}
    wanted = range(start, start + count)
    found = _fill(workload, by_number, wanted, updated, now)
    if found is not None and (found or not burst(workload)):
        return found
    condemned = [
        by_number[number] for number in sorted(by_number, reverse=True) if number >= 0 and number not in wanted
    ]
    gone = _condemn(workload, condemned, by_number, wanted, now)
    if gone is not None:
        return gone
    if workload["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") != "RollingUpdate":
        return []
    return _update(workload, by_number, wanted, updated, now)


def _fill(
    workload: Json, by_number: Mapping[int, PodView], wanted: range, updated: str, now: datetime
) -> list[Step] | None:
    """Steps to have every replica; an empty list waits; None means all are well."""
    made: list[Step] = []
    waits = False
    for number in wanted:
        pod = by_number.get(number)
        if pod is None:
            made.append(Create(number, _born_updated(workload, number, by_number, updated)))
        elif finished(pod) and not terminating(pod):
            made.append(Delete(pod))
        elif _available(workload, pod, now) and not terminating(pod):
            continue
        else:
            waits = True
        if not burst(workload):
            return made
    return made if made or waits else None


def _born_updated(workload: Json, number: int, by_number: Mapping[int, PodView], updated: str) -> bool:
    """Below the partition, and while a rollout has not come down to it, a pod is made as it was."""
    status = workload.get("status", {})
    if status.get("currentRevision", updated) == updated:
        return True
    if workload["spec"].get("updateStrategy", {}).get("type", "RollingUpdate") != "RollingUpdate":
        return number - first_ordinal(workload) >= int(status.get("currentReplicas", 0))
    rolling = workload["spec"].get("updateStrategy", {}).get("rollingUpdate")
    start = first_ordinal(workload)
    if rolling is None:
        return number >= start + int(status.get("currentReplicas", 0))
    return number >= start + partition(workload)


def _condemn(
    workload: Json, condemned: list[PodView], by_number: Mapping[int, PodView], wanted: range, now: datetime
) -> list[Step] | None:
    if not condemned:
        return None
    if burst(workload):
        return [Delete(pod) for pod in condemned if not terminating(pod)] or None
    members = [by_number[number] for number in wanted if number in by_number]
    sick = next((pod for pod in (*members, *reversed(condemned)) if not _available(workload, pod, now)), None)
    pod = condemned[0]
    if terminating(pod) or (not _available(workload, pod, now) and pod is not sick):
        return []
    return [Delete(pod)]


def _update(workload: Json, by_number: Mapping[int, PodView], wanted: range, updated: str, now: datetime) -> list[Step]:
    """Roll from the highest number down; wait for each to be available."""
    rolling = workload["spec"].get("updateStrategy", {}).get("rollingUpdate") or {}
    unavailable = rolling.get("maxUnavailable")
    allowed = max(1, unavailable) if isinstance(unavailable, int) else 1
    missing = sum(number not in by_number or not _available(workload, by_number[number], now) for number in wanted)
    chosen: list[Step] = []
    for number in reversed(wanted):
        if number < wanted.start + partition(workload):
            break
        pod = by_number[number]
        if pod.metadata.labels.get(HASH_LABEL) != updated and not terminating(pod):
            healthy = _available(workload, pod, now)
            if healthy and missing + len(chosen) >= allowed:
                break
            chosen.append(Delete(pod))
            if len(chosen) >= allowed:
                break
        elif not _available(workload, pod, now) and allowed == 1:
            break
    return chosen


def _available(workload: Json, pod: PodView, now: datetime) -> bool:
    if pod.status.phase != "Running" or terminating(pod):
        return False
    return available_in(pod, int(workload["spec"].get("minReadySeconds", 0)), now) <= 0


def status_of(workload: Json, pods: Sequence[PodView], updated: str, now: datetime) -> Json:
    old = workload.get("status", {})
    current = old.get("currentRevision") or updated
    mine = [pod for pod in pods if ordinal(workload["metadata"]["name"], pod.metadata.name) >= 0]
    created = [pod for pod in mine if not finished(pod)]
    healthy = [pod for pod in created if pod.status.phase == "Running" and ready(pod)]
    fresh = [pod for pod in created if not terminating(pod)]
    at_new = sum(pod.metadata.labels.get(HASH_LABEL) == updated for pod in fresh)
    at_old = sum(pod.metadata.labels.get(HASH_LABEL) == current for pod in fresh)
    done = at_new == replicas(workload) == len([pod for pod in healthy if not terminating(pod)])
    if done and at_new == len(mine):
        current, at_old = updated, at_new
    status: Json = {"observedGeneration": workload["metadata"].get("generation", 0), "replicas": len(created)}
    counts = {
        "readyReplicas": len(healthy),
        "currentReplicas": at_old,
        "updatedReplicas": at_new,
    }
    status |= {field: count for field, count in counts.items() if count}
    status["availableReplicas"] = sum(_available(workload, pod, now) for pod in healthy)
    status |= {"currentRevision": current, "updateRevision": updated}
    status["collisionCount"] = int(old.get("collisionCount", 0) or 0)
    return status
