"""Jobs, the deciding half: how many pods to run, when it is done, when it has failed, and the status."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.lab.controllers.deployment.status import find, without
from dovetail.lab.controllers.job.backoff import JobBackoff, ended_at
from dovetail.lab.controllers.job.index import enough, index_of, indexed, last_failed, limited, tries, valid
from dovetail.lab.controllers.job.policy import failed_by_rule, waits_for_end
from dovetail.lab.controllers.pods import active, terminating, victims
from dovetail.lab.controllers.pods import finished as ended
from dovetail.lab.controllers.timestamps import parse, stamp
from dovetail.lab.controllers.views import Json, PodFields

FINALIZER = "batch.kubernetes.io/job-tracking"

#: (type, reason, message) of the condition that ends a job.
End = tuple[str, str, str]
#: What a job is marked with before it ends, and as what it ends then.
MARKS = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


class Counts(msgspec.Struct, frozen=True):
    """The pods of a job by what became of them; finished pods that were counted before are in the tally."""

    pods: Sequence[PodFields]
    active: list[PodFields]
    terminating: int
    #: The uids of all of them.
    seen: frozenset[str]


class JobCounts(msgspec.Struct, frozen=True):
    """Pods that ended well and badly; of an Indexed job the indexes done, and those given up."""

    succeeded: int
    failed: int
    done: Set[int]
    lost: Set[int]
    backoff: JobBackoff = JobBackoff()


class JobDecision(msgspec.Struct, frozen=True):
    """`end` is of a job that is over. Pods in `delete` count as failed, those in `release` as never run."""

    end: End | None = None
    create: list[int | None] = []
    delete: list[PodFields] = []
    release: list[PodFields] = []
    again: float | None = None


def count(pods: Sequence[PodFields]) -> Counts:
    living = [pod for pod in pods if active(pod)]
    going = sum(terminating(pod) and not ended(pod) for pod in pods)
    return Counts(pods, living, going, frozenset(pod.metadata.uid for pod in pods))


def decide(job: Json, counts: Counts, tally: JobCounts, now: datetime) -> JobDecision:
    """What to do next."""
    late = _deadline(job, now)
    end = _end(job, counts, tally, late)
    if end is not None:
        return JobDecision(end, delete=counts.active)
    if job["spec"].get("suspend"):
        return JobDecision(release=counts.active)
    verdict = _size(job, counts, tally, now, late)
    left = len(counts.active) - len(verdict.release) + len(verdict.create)
    if left == 0 and tally.succeeded >= job["spec"].get("completions", 1):
        end = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
    return msgspec.structs.replace(verdict, end=end)


def _end(job: Json, counts: Counts, tally: JobCounts, late: float | None) -> End | None:
    """Why a job is over, though pods of it may still run: what was decided before comes first."""
    conditions = job.get("status", {}).get("conditions", [])
    for mark, kind in MARKS.items():
        condition = find(conditions, mark)
        if condition is not None and condition["status"] == "True":
            return kind, condition["reason"], condition["message"]
    text = failed_by_rule(job, counts.pods)
    if text is not None:
        return "Failed", "PodFailurePolicy", text
    if tally.failed > job["spec"].get("backoffLimit", 6) or _restarted_too_often(job, counts):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if late is not None and late <= 0:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    return _end_of_indexes(job, tally) if indexed(job) else None


def _end_of_indexes(job: Json, tally: JobCounts) -> End | None:
    spec = job["spec"]
    if len(tally.lost) > spec.get("maxFailedIndexes", len(tally.lost)):
        text = "Job has exceeded the specified maximal number of failed indexes"
        return "Failed", "MaxFailedIndexesExceeded", text
    if tally.lost and len(tally.lost) + len(tally.done) >= spec["completions"]:
        return "Failed", "FailedIndexes", "Job has failed indexes"
    met = enough(job, tally.done)
    return ("Complete", "SuccessPolicy", met) if met is not None else None


def _restarted_too_often(job: Json, counts: Counts) -> bool:
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return False
    running = [pod.status for pod in counts.pods if pod.status.phase in ("Running", "Pending")]
    containers = [
        container_status
        for status in running
        for container_status in (*status.container_statuses, *status.init_container_statuses)
    ]
    limit: int = job["spec"].get("backoffLimit", 6)
    return sum(container.restart_count for container in containers) >= max(1, limit)


def _deadline(job: Json, now: datetime) -> float | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    start = job.get("status", {}).get("startTime")
    if seconds is None or start is None or job["spec"].get("suspend"):
        return None
    return (parse(start) + timedelta(seconds=seconds) - now).total_seconds()


def _size(job: Json, counts: Counts, tally: JobCounts, now: datetime, late: float | None) -> JobDecision:
    spec, running = job["spec"], len(counts.active)
    parallel, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:
        desired = running if tally.succeeded > 0 else parallel
    else:
        desired = max(0, min(parallel, completions - tally.succeeded))
    surplus = _surplus(job, counts.active, max(0, running - desired), now)
    if surplus:
        return JobDecision(release=surplus, again=late)
    missing = desired - running - (counts.terminating if waits_for_end(job) else 0)
    if missing <= 0:
        return JobDecision(again=late)
    numbers, wait = _to_create(job, counts, tally, missing, now)
    waits = [value for value in (wait, late) if value]
    return JobDecision(create=numbers, again=min(waits) if waits else None)


def _surplus(job: Json, pods: Sequence[PodFields], least: int, now: datetime) -> list[PodFields]:
    """At least so many pods that are too many: of an index all but one, and all of no valid index."""
    extra: list[PodFields] = []
    if indexed(job):
        kept: set[int] = set()
        for pod in pods:
            if not valid(job, pod) or index_of(pod) in kept:
                extra.append(pod)
            kept.add(index_of(pod))
    rest = [pod for pod in pods if pod not in extra]
    return extra + victims(rest, max(0, least - len(extra)), {}, now)


def _to_create(
    job: Json, counts: Counts, tally: JobCounts, missing: int, now: datetime
) -> tuple[list[int | None], float]:
    """The indexes to run now (or as many pods without one), and the seconds until there are more."""
    if limited(job):
        waits = {index: _index_backoff(job, counts, index, now) for index in _pending(job, counts, tally)[:missing]}
        due: list[int | None] = [number for number, wait in waits.items() if wait <= 0]
        return due, 0.0 if due else min(waits.values(), default=0.0)
    wait = tally.backoff.left(now)
    if wait > 0:
        return [], wait
    return ([*_pending(job, counts, tally)[:missing]] if indexed(job) else [None] * missing), 0.0


def _pending(job: Json, counts: Counts, tally: JobCounts) -> list[int]:
    """The indexes without an active pod."""
    busy = [pod for pod in counts.pods if active(pod) or (terminating(pod) and waits_for_end(job))]
    taken = {*tally.done, *tally.lost, *map(index_of, busy)}
    return [number for number in range(job["spec"].get("completions") or 0) if number not in taken]


def _index_backoff(job: Json, counts: Counts, number: int, now: datetime) -> float:
    replaced = last_failed(job, counts.pods, number)
    return 0.0 if replaced is None else JobBackoff(tries(replaced) + 1, ended_at(replaced)).left(now)


def marked(status: Json) -> str | None:
    """The mark of a job that is about to end."""
    ends = (find(status.get("conditions", []), mark) for mark in MARKS)
    return next(
        (condition["type"] for condition in ends if condition is not None and condition["status"] == "True"), None
    )


def finished(job: Json) -> Json | None:
    """The condition that ended the job."""
    conditions = job.get("status", {}).get("conditions", [])
    for kind in ("Complete", "Failed"):
        finished = find(conditions, kind)
        if finished is not None and finished["status"] == "True":
            return finished
    return None


def condition(kind: str, status: str, reason: str, message: str, now: datetime) -> Json:
    item: dict[str, Any] = {
        "type": kind,
        "status": status,
        "lastProbeTime": stamp(now),
        "lastTransitionTime": stamp(now),
        "reason": reason,
        "message": message,
    }
    return item


def suspension(job: Json, now: datetime) -> tuple[list[Json], str | None]:
    """The conditions after suspending or resuming, and the event to tell."""
    conditions = job.get("status", {}).get("conditions", [])
    old = find(conditions, "Suspended")
    desired = bool(job["spec"].get("suspend"))
    held = old is not None and old["status"] == "True"
    if desired == held:
        return conditions, None
    if desired:
        fresh = condition("Suspended", "True", "JobSuspended", "Job suspended", now)
    else:
        fresh = condition("Suspended", "False", "JobResumed", "Job resumed", now)
    return [*without(conditions, "Suspended"), fresh], "Suspended" if desired else "Resumed"
