"""Jobs, the deciding half: how many pods to run, when it is done, when it has failed, and the status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from dovetail.lab.controllers.deployment.status import find, without
from dovetail.lab.controllers.instants import parse, stamp
from dovetail.lab.controllers.pods import active, ready, terminating
from dovetail.lab.controllers.views import Json, PodView

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FIRST_BACKOFF = 10.0
LONGEST_BACKOFF = 600.0


class Counts(msgspec.Struct, frozen=True):
    """The pods of a job by what became of them; finished pods that were counted before are in the status."""

    active: list[PodView]
    succeeded: list[PodView]
    failed: list[PodView]
    terminating: int = 0
    #: The uids of all of them.
    seen: frozenset[str] = frozenset()


class Verdict(msgspec.Struct, frozen=True):
    """`condition` is (type, reason, message) of a job that is over; else what to do."""

    condition: tuple[str, str, str] | None = None
    create: list[int | None] = []
    delete: list[PodView] = []
    again: float | None = None


def count(job: Json, pods: Sequence[PodView]) -> Counts:
    living = [pod for pod in pods if active(pod)]
    done = [pod for pod in pods if pod.status.phase == "Succeeded"]
    broken = [pod for pod in pods if pod.status.phase == "Failed"]
    broken += [pod for pod in pods if terminating(pod) and pod.status.phase not in ("Succeeded", "Failed")]
    going = sum(terminating(pod) and pod.status.phase not in ("Succeeded", "Failed") for pod in pods)
    return Counts(living, done, broken, going, frozenset(pod.metadata.uid for pod in pods))


def indexed(job: Json) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: PodView) -> int:
    text = pod.metadata.annotations.get(INDEX, "-1")
    return int(text) if text.isdigit() else -1


def parse_indexes(text: str) -> set[int]:
    """`0-2,5` → {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def format_indexes(numbers: set[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}{'-' if len(p) > 2 else ','}{p[-1]}" for p in parts)


def decide(job: Json, counts: Counts, succeeded: int, failed: int, done: set[int], now: datetime) -> Verdict:
    """`succeeded`, `failed` and `done` include what the status already counted."""
    spec = job["spec"]
    limit = spec.get("backoffLimit", 6)
    restarts = sum(
        status.restart_count
        for pod in counts.active
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    )
    on_failure = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
    if failed > limit or (on_failure and restarts > 0 and restarts >= limit):
        text = "Job has reached the specified backoff limit"
        return Verdict(("Failed", "BackoffLimitExceeded", text), delete=counts.active)
    late = _deadline(job, now)
    if late is not None and late <= 0:
        text = "Job was active longer than specified deadline"
        return Verdict(("Failed", "DeadlineExceeded", text), delete=counts.active)
    completions = spec.get("completions")
    complete = len(done) >= (completions or 0) if indexed(job) else _complete(completions, succeeded, counts)
    if complete:
        return Verdict(("Complete", "CompletionsReached", "Reached expected number of succeeded pods"))
    if spec.get("suspend"):
        return Verdict(delete=counts.active)
    return _size(job, counts, succeeded, done, now, late)


def _complete(completions: int | None, succeeded: int, counts: Counts) -> bool:
    if completions is None:
        return succeeded > 0 and not counts.active
    return succeeded >= completions


def _deadline(job: Json, now: datetime) -> float | None:
    seconds = job["spec"].get("activeDeadlineSeconds")
    start = job.get("status", {}).get("startTime")
    if seconds is None or start is None or job["spec"].get("suspend"):
        return None
    return (parse(start) + timedelta(seconds=seconds) - now).total_seconds()


def _size(job: Json, counts: Counts, succeeded: int, done: set[int], now: datetime, late: float | None) -> Verdict:
    spec = job["spec"]
    parallel = spec.get("parallelism", 1)
    completions = spec.get("completions")
    if completions is None:
        wanted = len(counts.active) if succeeded > 0 else parallel
    else:
        wanted = min(parallel, completions - (len(done) if indexed(job) else succeeded))
    excess = len(counts.active) - wanted
    if excess > 0:
        first = sorted(counts.active, key=lambda pod: (ready(pod), pod.metadata.creation_timestamp or ""))
        return Verdict(delete=first[:excess], again=late)
    wait = _backoff(counts, now)
    if excess == 0 or wait > 0:
        waits = [value for value in (wait if excess else 0, late) if value]
        return Verdict(again=min(waits) if waits else None)
    if not indexed(job):
        return Verdict(create=[None] * -excess, again=late)
    taken = done | {index_of(pod) for pod in counts.active}
    free = [number for number in range(completions or 0) if number not in taken]
    return Verdict(create=list(free[:-excess]), again=late)


def _backoff(counts: Counts, now: datetime) -> float:
    """Seconds to wait after failures: 10, 20, 40 … since the last pod failed."""
    failures = [pod for pod in counts.failed if not terminating(pod)]
    if not failures:
        return 0.0
    times = [_ended(pod) for pod in failures]
    last = max((instant for instant in times if instant is not None), default=None)
    newest_ok = max((t for t in (_ended(pod) for pod in counts.succeeded) if t is not None), default=None)
    if last is None:
        return 0.0
    streak = sum(t is not None and (newest_ok is None or t > newest_ok) for t in times)
    if streak == 0:
        return 0.0
    pause: float = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (streak - 1))
    return max(0.0, pause - (now - last).total_seconds())


def _ended(pod: PodView) -> datetime | None:
    condition = pod.status.condition("Ready")
    text = condition.last_transition_time if condition is not None else pod.metadata.creation_timestamp
    return parse(text) if text else None


def finished(job: Json) -> Json | None:
    """The condition that ended the job."""
    conditions = job.get("status", {}).get("conditions", [])
    for kind in ("Complete", "Failed"):
        found = find(conditions, kind)
        if found is not None and found["status"] == "True":
            return found
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
    wanted = bool(job["spec"].get("suspend"))
    held = old is not None and old["status"] == "True"
    if wanted == held:
        return conditions, None
    if wanted:
        fresh = condition("Suspended", "True", "JobSuspended", "Job suspended", now)
    else:
        fresh = condition("Suspended", "False", "JobResumed", "Job resumed", now)
    return [*without(conditions, "Suspended"), fresh], "Suspended" if wanted else "Resumed"
