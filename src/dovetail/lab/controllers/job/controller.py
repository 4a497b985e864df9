"""Jobs, the acting half. A finished pod keeps a finalizer until it is counted, so none is counted twice or lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from dovetail.kube.errors import ApiError, Conflict, Invalid, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import JOBS, PODS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.job.backoff import JobBackoff
from dovetail.lab.controllers.job.decide import (
    FINALIZER,
    MARKS,
    Counts,
    End,
    JobCounts,
    JobDecision,
    condition,
    count,
    decide,
    finished,
    marked,
    suspension,
)
from dovetail.lab.controllers.job.index import (
    INDEX,
    format_indexes,
    index_of,
    indexed,
    is_lost,
    last_failed,
    limited,
    marks,
    parse_indexes,
    valid,
)
from dovetail.lab.controllers.job.policy import fails, pod_failure_decision
from dovetail.lab.controllers.pods import pod_of, ready, remove
from dovetail.lab.controllers.timestamps import parse, stamp
from dovetail.lab.controllers.views import Json, PodFields
from dovetail.lab.controllers.worker import KeyWorker

_KIND = ("batch/v1", "Job")
#: Seconds in which what becomes of a job's pods is gathered into one look.
TOGETHER = 1.0
#: Seconds until a job whose pods cannot be made is tried again: at first, and at most.
_PAUSES = (1.0, 60.0)


class Jobs:
    """Runs Jobs to their end."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._jobs = context.store(JOBS)
        self._backoffs: dict[str, JobBackoff] = {}
        self.worker = KeyWorker("job", self._reconcile, gather=0.02, pauses=_PAUSES)
        self._jobs.listen(self._changed)
        context.listen_to_pods_of("Job", self._pod_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            is_changed = old is None or old["metadata"].get("generation") != new["metadata"].get("generation")
            self.worker.add_after(
                f"{new['metadata']['namespace']}/{new['metadata']['name']}", 0 if is_changed else TOGETHER
            )
        elif old is not None:
            self._backoffs.pop(old["metadata"]["uid"], None)
            for pod in self._context.pods.by("owner", old["metadata"]["uid"]):
                self.worker.add(f"orphan:{pod.metadata.key}")

    def _pod_changed(self, old: PodFields | None, new: PodFields | None) -> None:
        for pod in (old, new):
            owner = pod.metadata.controller if pod is not None else None
            if pod is None or owner is None or owner.kind != "Job":
                continue
            key = f"{pod.metadata.namespace}/{owner.name}"
            job = self._jobs.get(key)
            if job is not None and job["metadata"]["uid"] == owner.uid:
                self.worker.add_after(key, TOGETHER)
            elif new is not None and FINALIZER in new.metadata.finalizers and self._jobs.synced.is_set():
                self.worker.add(f"orphan:{new.metadata.key}")

    async def _reconcile(self, key: str) -> float | None:
        if key.startswith("orphan:"):
            pod = self._context.pods.get(key.removeprefix("orphan:"))
            if pod is not None and FINALIZER in pod.metadata.finalizers:
                await self._strip([pod])
            return None
        job = self._jobs.get(key)
        if job is None:
            return None
        if job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
            return None
        if finished(job) is not None:
            return await self._after(job)
        return await self._advance(job)

    def _pods(self, job: Json) -> list[PodFields]:
        return self._context.pods.by("owner", job["metadata"]["uid"])

    async def _after(self, job: Json) -> float | None:
        """The job is over: release its pods, and delete it when its time to live is up."""
        await self._strip([pod for pod in self._pods(job) if FINALIZER in pod.metadata.finalizers])
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        over = finished(job)
        if ttl is None or over is None or "deletionTimestamp" in job["metadata"]:
            return None
        left = ttl - (self._context.now() - parse(over["lastTransitionTime"])).total_seconds()
        if left > 0:
            return float(left)
        try:
            await self._context.kube.delete(
                JOBS, job["metadata"]["name"], job["metadata"]["namespace"], propagation="Foreground"
            )
        except NotFound:
            return None
        return None

    async def _advance(self, job: Json) -> float | None:
        now = self._context.now()
        status: dict[str, Any] = dict(job.get("status", {}))
        if "startTime" not in status and not job["spec"].get("suspend"):
            status["startTime"] = stamp(now)
        conditions, transition = suspension({**job, "status": status}, now)
        if conditions:
            status["conditions"] = conditions
        if transition is not None:
            status.pop("startTime", None)
            if transition == "Resumed":
                status["startTime"] = stamp(now)
        pods = self._pods(job)
        job, tally = await self._count(job, status, pods)
        counts = count(pods)
        verdict = decide(job, counts, tally, now)
        error = await self._act(job, counts, verdict)
        if transition is not None:
            self._record_event(job, transition, f"Job {transition.lower()}")
        open_ends = _open_ends(job, pods) if verdict.end is not None and error is None else []
        await self._save(job, counts, verdict, error, open_ends)
        await self._strip(open_ends)
        if error is not None:
            raise error
        return verdict.again

    async def _count(self, job: Json, status: dict[str, Any], pods: Sequence[PodFields]) -> tuple[Json, JobCounts]:
        """Count pods that finished since the last time; returns the job as written, and all that was ever counted."""
        noted = status.get("uncountedTerminatedPods", {})
        succeeded = {*noted.get("succeeded", []), *noted.get("failed", [])}
        over = marked(status)
        waiting = [
            pod
            for pod in pods
            if FINALIZER in pod.metadata.finalizers and (over or pod.status.phase == "Succeeded" or fails(job, pod))
        ]
        fresh = [pod for pod in waiting if pod.metadata.uid not in succeeded and (valid(job, pod) or not indexed(job))]
        good = [pod for pod in fresh if pod.status.phase == "Succeeded"]
        lost = over == "FailureTarget"
        bad = [
            pod
            for pod in fresh
            if (lost or fails(job, pod)) and pod not in good and pod_failure_decision(job, pod).counts
        ]
        done, given_up = _indexes(job, status, good, fresh)
        if good and not indexed(job):
            status["succeeded"] = status.get("succeeded", 0) + len(good)
        if bad:
            status["failed"] = status.get("failed", 0) + len(bad)
        uncounted = (("succeeded", [] if indexed(job) else good), ("failed", bad))
        status["uncountedTerminatedPods"] = {
            field: [pod.metadata.uid for pod in ended] for field, ended in uncounted if ended
        }
        if waiting:
            job = await self._put({**job, "status": status})
            await self._strip(waiting)
            status = dict(job["status"])
            status["uncountedTerminatedPods"] = {}
        broken = [pod for pod in fresh if fails(job, pod)]
        backoff = self._backoffs.get(job["metadata"]["uid"], JobBackoff()).after(good, broken)
        self._backoffs[job["metadata"]["uid"]] = backoff
        tally = JobCounts(status.get("succeeded", 0), status.get("failed", 0), done, given_up, backoff)
        return {**job, "status": status}, tally

    async def _strip(self, pods: Sequence[PodFields]) -> None:
        version = 0
        for pod in pods:
            rest = [name for name in pod.metadata.finalizers if name != FINALIZER]
            body = {"metadata": {"uid": pod.metadata.uid, "finalizers": rest or None}}
            try:
                written = await self._context.kube.patch(
                    PODS, pod.metadata.name, body, pod.metadata.namespace, type=PodFields
                )
            except (NotFound, Invalid, Conflict):
                continue
            version = max(version, int(written.metadata.resource_version))
        await self._context.pods.seen(version)

    async def _act(self, job: Json, counts: Counts, verdict: JobDecision) -> ApiError | None:
        about = InvolvedObject.of(*_KIND, job["metadata"])
        version = 0
        try:
            await self._strip(verdict.release)
            await remove(self._context, [*verdict.delete, *verdict.release], about)
            for number in verdict.create:
                made = await self._context.kube.create(PODS, self._pod(job, number, counts.pods), type=PodFields)
                version = max(version, int(made.metadata.resource_version))
                self._context.recorder.normal(about, "SuccessfulCreate", f"Created pod: {made.metadata.name}")
        except ApiError as error:
            self._context.recorder.warning(about, "FailedCreate", f"Error creating: {error.message}")
            return error
        finally:
            await self._context.pods.seen(version)
        return None

    def _pod(self, job: Json, number: int | None, pods: Sequence[PodFields]) -> Json:
        template = job["spec"]["template"]
        if number is None:
            body = pod_of(template, _KIND, job["metadata"])
        else:
            name = job["metadata"]["name"]
            env = {
                "name": "JOB_COMPLETION_INDEX",
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
            }
            containers = [
                {**container, "env": [*container.get("env", []), env]} for container in template["spec"]["containers"]
            ]
            notes = {INDEX: str(number)} | (marks(job, last_failed(job, pods, number)) if limited(job) else {})
            body = pod_of(
                template,
                _KIND,
                job["metadata"],
                labels={INDEX: str(number)},
                annotations=notes,
                spec={"containers": containers, "hostname": f"{name}-{number}"},
            )
            body["metadata"]["generateName"] = f"{name}-{number}-"
        body["metadata"]["finalizers"] = [*body["metadata"].get("finalizers", []), FINALIZER]
        return body

    async def _save(
        self, job: Json, counts: Counts, verdict: JobDecision, error: ApiError | None, open_ends: Sequence[PodFields]
    ) -> None:
        """Pods that ended while we acted are counted next time: one look, one truth. Those that a failed job leaves
        running have failed."""
        now = self._context.now()
        status = dict(job["status"])
        if verdict.end is not None and verdict.end[0] == "Failed":
            lost = [
                pod
                for pod in open_ends
                if (valid(job, pod) or not indexed(job)) and pod_failure_decision(job, pod).counts
            ]
            status |= {"failed": status.get("failed", 0) + len(lost)} if lost else {}
        removed = {pod.metadata.uid for pod in (*verdict.delete, *verdict.release)}
        active = [pod for pod in counts.active if pod.metadata.uid not in removed]
        made = sum(pod.metadata.uid not in counts.seen for pod in self._pods(job))
        terminating = counts.terminating + len(counts.active) - len(active)
        status |= {"active": len(active) + made, "terminating": terminating, "ready": sum(map(ready, active))}
        if not status["active"]:
            del status["active"]
        if verdict.end is not None and error is None:
            status = self._close(job, status, verdict.end, terminating > 0 or bool(active), now)
        stored = self._jobs.get(f"{job['metadata']['namespace']}/{job['metadata']['name']}")
        if stored is None or status != stored.get("status"):
            await self._put({**job, "status": status})

    def _close(self, job: Json, status: dict[str, Any], end: End, busy: bool, now: datetime) -> dict[str, Any]:
        kind, reason, message = end
        first = next(mark for mark, final in MARKS.items() if final == kind)
        conditions = list(status.get("conditions", []))
        if not any(item["type"] == first for item in conditions):
            conditions.append(condition(first, "True", reason, message, now))
        if not busy:
            conditions.append(condition(kind, "True", reason, message, now))
            if kind == "Complete":
                status["completionTime"] = stamp(now)
                self._record_event(job, "Completed", "Job completed")
            else:
                about = InvolvedObject.of(*_KIND, job["metadata"])
                self._context.recorder.warning(about, reason, message)
        return {**status, "conditions": conditions}

    async def _put(self, job: Json) -> Json:
        try:
            written = await self._context.kube.update(JOBS, job, subresource="status")
        except NotFound:
            return job
        await self._jobs.seen(written["metadata"]["resourceVersion"])
        return written

    def _record_event(self, job: Json, reason: str, message: str) -> None:
        self._context.recorder.normal(InvolvedObject.of(*_KIND, job["metadata"]), reason, message)


def _open_ends(job: Json, pods: Sequence[PodFields]) -> list[PodFields]:
    """The pods that are still going when their job is decided: their outcome no longer counts."""
    if marked(job["status"]):
        return []
    return [
        pod
        for pod in pods
        if FINALIZER in pod.metadata.finalizers and pod.status.phase != "Succeeded" and not fails(job, pod)
    ]


def _indexes(
    job: Json, status: dict[str, Any], good: Sequence[PodFields], fresh: Sequence[PodFields]
) -> tuple[set[int], set[int]]:
    """The indexes done and those given up, written into the status."""
    if not indexed(job):
        return set(), set()
    done = parse_indexes(status.get("completedIndexes", "")) | {index_of(pod) for pod in good}
    if done:
        status["completedIndexes"] = format_indexes(done)
        status["succeeded"] = len(done)
    given_up: set[int] = set()
    if limited(job):
        given_up = parse_indexes(status.get("failedIndexes", ""))
        given_up |= {index_of(pod) for pod in fresh if is_lost(job, pod)}
        status["failedIndexes"] = format_indexes(given_up)
    return done, given_up
