"""The indexes of an Indexed job: how they are written, how often each has failed, and when enough are done."""

from __future__ import annotations

from collections.abc import Iterable, Set

from dovetail.lab.controllers.job.policy import fails, pod_failure_decision
from dovetail.lab.controllers.views import Json, PodFields

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def indexed(job: Json) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def index_of(pod: PodFields) -> int:
    """The pod's index; -1 if it has none."""
    return _number(pod, INDEX, -1)


def valid(job: Json, pod: PodFields) -> bool:
    """Whether the pod's index is one of the job's."""
    return 0 <= index_of(pod) < (job["spec"].get("completions") or 0)


def parse_indexes(text: str) -> set[int]:
    """`0-2,5` → {0, 1, 2, 5}."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return indexes


def format_indexes(numbers: set[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}{'-' if len(p) > 2 else ','}{p[-1]}" for p in parts)


def limited(job: Json) -> bool:
    """Whether every index has a back-off limit of its own."""
    return indexed(job) and "backoffLimitPerIndex" in job["spec"]


def is_lost(job: Json, pod: PodFields) -> bool:
    """Whether a pod's failure is one too many for its index."""
    if not fails(job, pod):
        return False
    ruling = pod_failure_decision(job, pod)
    if ruling.action == "FailIndex":
        return True
    return ruling.counts and _number(pod, FAILURES, 0) >= job["spec"]["backoffLimitPerIndex"]


def last_failed(job: Json, pods: Iterable[PodFields], number: int) -> PodFields | None:
    """The pod that a new one of this index replaces."""
    broken = [pod for pod in pods if index_of(pod) == number and fails(job, pod)]
    return max(broken, key=tries, default=None)


def tries(pod: PodFields) -> int:
    """How many pods of its index failed before it."""
    return _number(pod, FAILURES, 0) + _number(pod, IGNORED, 0)


def marks(job: Json, replaced: PodFields | None) -> dict[str, str]:
    """The annotations by which a pod remembers the failures of its index."""
    failures, ignored = 0, 0
    if replaced is not None:
        counts = pod_failure_decision(job, replaced).counts
        failures = _number(replaced, FAILURES, 0) + counts
        ignored = _number(replaced, IGNORED, 0) + (not counts)
    return {FAILURES: str(failures)} | ({IGNORED: str(ignored)} if ignored else {})


def enough(job: Json, done: Set[int]) -> str | None:
    """What the success policy says to the indexes that are done."""
    for index, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules", ())):
        meant = parse_indexes(rule["succeededIndexes"]) if "succeededIndexes" in rule else None
        reached = done if meant is None else done & meant
        needed = rule.get("succeededCount", len(meant or ()))
        if reached and len(reached) >= needed:
            return f"Matched rules at index {index}"
    return None


def _number(pod: PodFields, annotation: str, default: int) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isdigit() else default
