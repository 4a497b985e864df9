"""A Deployment's status: counts, and the Available, Progressing and ReplicaFailure conditions in Kubernetes' words."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dovetail.lab.controllers.deployment.rollout import allowances, available, replicas
from dovetail.lab.controllers.timestamps import parse, stamp
from dovetail.lab.controllers.views import Json

NO_DEADLINE = 2147483647


def condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Json:
    return {
        "type": kind,
        "status": status,
        "lastUpdateTime": stamp(now),
        "lastTransitionTime": stamp(now),
        "reason": reason,
        "message": message,
    }


def find(conditions: Iterable[Json], kind: str) -> Json | None:
    return next((item for item in conditions if item["type"] == kind), None)


def without(conditions: Iterable[Json], kind: str) -> list[Json]:
    return [item for item in conditions if item["type"] != kind]


def put(conditions: list[Json], new: Json) -> list[Json]:
    """Set a condition: unchanged status and reason keep the old one, unchanged status keeps its transition time."""
    old = find(conditions, new["type"])
    if old is not None and old["status"] == new["status"] and old["reason"] == new["reason"]:
        return conditions
    if old is not None and old["status"] == new["status"]:
        new = {**new, "lastTransitionTime": old["lastTransitionTime"]}
    return [*without(conditions, new["type"]), new]


def has_deadline(deployment: Json) -> bool:
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    return deadline is not None and deadline != NO_DEADLINE


def counted(deployment: Json, new: Json | None, everything: list[Json], now: datetime) -> Json:
    """The status by counting; conditions but Available are carried over."""

    def total(field: str, sets: Iterable[Json]) -> int:
        return sum(int(rs.get("status", {}).get(field, 0)) for rs in sets)

    ready = sum(available(rs) for rs in everything)
    counts = {
        "replicas": total("replicas", everything),
        "updatedReplicas": total("replicas", [new] if new else []),
        "readyReplicas": total("readyReplicas", everything),
        "availableReplicas": ready,
        "unavailableReplicas": max(0, sum(replicas(rs) for rs in everything) - ready),
    }
    old = deployment.get("status", {})
    status: Json = {"observedGeneration": deployment["metadata"].get("generation", 0)}
    status |= {field: count for field, count in counts.items() if count}
    observed = [rs.get("status", {}) for rs in everything if rs.get("status", {}).get("observedGeneration")]
    if all("terminatingReplicas" in status for status in observed):
        status["terminatingReplicas"] = total("terminatingReplicas", everything)
    if "collisionCount" in old:
        status["collisionCount"] = old["collisionCount"]
    _, unavailable = allowances(deployment)
    if ready >= replicas(deployment) - unavailable:
        minimum = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        minimum = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    status["conditions"] = put(old.get("conditions", []), condition("Available", *minimum, now))
    return status


def complete(deployment: Json, status: Json) -> bool:
    desired = replicas(deployment)
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(status.get(field, 0) == desired for field in fields) and status.get(
        "observedGeneration", 0
    ) >= deployment["metadata"].get("generation", 0)


def _moved(old: Json, new: Json) -> bool:
    def outdated(status: Json) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    return (
        any(new.get(field, 0) > old.get(field, 0) for field in ("updatedReplicas", "readyReplicas"))
        or new.get("availableReplicas", 0) > old.get("availableReplicas", 0)
        or outdated(new) < outdated(old)
    )


def rolled(deployment: Json, new: Json | None, everything: list[Json], now: datetime) -> Json:
    """The status while rolling: with progress, completion or the missed deadline noted."""
    status = counted(deployment, new, everything, now)
    conditions: list[Json] = status["conditions"]
    if not has_deadline(deployment):
        conditions = without(conditions, "Progressing")
    else:
        conditions = _progress(deployment, new, status, conditions, now)
    failure = _failure(new, everything)
    conditions = put(conditions, failure) if failure else without(conditions, "ReplicaFailure")
    return {**status, "conditions": conditions}


def _progress(deployment: Json, new: Json | None, status: Json, conditions: list[Json], now: datetime) -> list[Json]:
    before = deployment.get("status", {})
    current = find(before.get("conditions", []), "Progressing")
    settled = status.get("replicas", 0) == status.get("updatedReplicas", 0)
    if settled and current is not None and current["reason"] == "NewReplicaSetAvailable":
        return conditions
    what = f'ReplicaSet "{new["metadata"]["name"]}"' if new else f'Deployment "{deployment["metadata"]["name"]}"'
    if complete(deployment, status):
        text = f"{what} has successfully progressed."
        return put(conditions, condition("Progressing", "True", "NewReplicaSetAvailable", text, now))
    if _moved(before, status):
        note = condition("Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.", now)
        if current is not None and current["status"] == "True":
            note["lastTransitionTime"] = current["lastTransitionTime"]
        return [*without(conditions, "Progressing"), note]
    if timed_out(deployment, conditions, now):
        text = f"{what} has timed out progressing."
        return put(conditions, condition("Progressing", "False", "ProgressDeadlineExceeded", text, now))
    return conditions


def timed_out(deployment: Json, conditions: list[Json], now: datetime) -> bool:
    current = find(conditions, "Progressing")
    if current is None or current["reason"] == "NewReplicaSetAvailable":
        return False
    return current["reason"] == "ProgressDeadlineExceeded" or deadline(deployment, current) < now


def deadline(deployment: Json, progressing: Json) -> datetime:
    return parse(progressing["lastUpdateTime"]) + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"])


def _failure(new: Json | None, everything: list[Json]) -> Json | None:
    for rs in ([new] if new else []) + everything:
        failure = find(rs.get("status", {}).get("conditions", []), "ReplicaFailure")
        if failure is not None:
            return {**failure, "lastUpdateTime": failure["lastTransitionTime"]}
    return None
