"""CronJobs: a Job at every turn of a schedule."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.kube.events import InvolvedObject
from dovetail.kube.resources import CRONJOBS, JOBS
from dovetail.lab.controllers.context import ControllerContext
from dovetail.lab.controllers.deployment.revision import owner
from dovetail.lab.controllers.job.decide import finished
from dovetail.lab.controllers.timestamps import parse, stamp
from dovetail.lab.controllers.views import Json
from dovetail.lab.controllers.worker import KeyWorker
from dovetail.model.cron import CronError
from dovetail.model.cron import parse as parse_schedule

_KIND = ("batch/v1", "CronJob")
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def schedule_text(cron: Json) -> str:
    zone = cron["spec"].get("timeZone")
    text = str(cron["spec"]["schedule"])
    return f"TZ={zone} {text}" if zone else text


def turns(cron: Json, now: datetime) -> tuple[datetime | None, datetime | None]:
    """(the latest missed turn, the next one)."""
    schedule = parse_schedule(schedule_text(cron))
    last = cron.get("status", {}).get("lastScheduleTime")
    since = parse(last or cron["metadata"]["creationTimestamp"])
    deadline = cron["spec"].get("startingDeadlineSeconds")
    if deadline is not None:
        since = max(since, now - timedelta(seconds=deadline))
    missed: datetime | None = None
    turn = schedule.next(since)
    for _ in range(100):
        if turn is None or turn > now:
            break
        missed = turn
        turn = schedule.next(turn)
    return missed, schedule.next(now)


class CronJobs:
    """Starts Jobs by the clock."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._crons = context.store(CRONJOBS)
        self._jobs = context.store(JOBS)
        self.worker = KeyWorker("cronjob", self._reconcile)
        self._crons.listen(self._changed)
        self._jobs.listen(self._job_changed)

    def _changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            self.worker.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

    def _job_changed(self, old: Json | None, new: Json | None) -> None:
        job = new or old
        assert job is not None
        for ref in job["metadata"].get("ownerReferences", ()):
            if ref["kind"] == "CronJob" and ref.get("controller"):
                self.worker.add(f"{job['metadata']['namespace']}/{ref['name']}")

    async def _reconcile(self, key: str) -> float | None:
        cron = self._crons.get(key)
        if cron is None or "deletionTimestamp" in cron["metadata"]:
            return None
        jobs = self._jobs.by("owner", cron["metadata"]["uid"])
        self._note_strangers(cron, jobs)
        cron = await self._note_finished(cron, jobs)
        await self._trim(cron, jobs)
        if cron["spec"].get("suspend"):
            return None
        now = self._context.now()
        try:
            missed, upcoming = turns(cron, now)
        except CronError as problem:
            text = f'unparseable schedule: "{cron["spec"]["schedule"]}" : {problem}'
            self._context.recorder.warning(InvolvedObject.of(*_KIND, cron["metadata"]), "UnparseableSchedule", text)
            return None
        if missed is not None:
            await self._start(cron, jobs, missed)
        return None if upcoming is None else max(0.0, (upcoming - now).total_seconds()) + 0.01

    def _note_strangers(self, cron: Json, jobs: list[Json]) -> None:
        """Running Jobs of this CronJob that another client created."""
        uids = {ref["uid"] for ref in cron.get("status", {}).get("active", ())}
        for job in jobs:
            if job["metadata"]["uid"] not in uids and finished(job) is None:
                text = f"Saw a job that the controller did not create or forgot: {job['metadata']['name']}"
                self._context.recorder.warning(InvolvedObject.of(*_KIND, cron["metadata"]), "UnexpectedJob", text)

    async def _note_finished(self, cron: Json, jobs: list[Json]) -> Json:
        by_uid = {job["metadata"]["uid"]: job for job in jobs}
        status = dict(cron.get("status", {}))
        kept = []
        for ref in status.get("active", []):
            job = by_uid.get(ref["uid"])
            end = finished(job) if job is not None else None
            if job is not None and end is None:
                kept.append(ref)
            elif job is not None and end is not None:
                text = f"Saw completed job: {ref['name']}, condition: {end['type']}"
                self._context.recorder.normal(InvolvedObject.of(*_KIND, cron["metadata"]), "SawCompletedJob", text)
                if end["type"] == "Complete":
                    status["lastSuccessfulTime"] = job["status"].get("completionTime", stamp(self._context.now()))
        if kept == status.get("active", []):
            return cron
        status["active"] = kept
        if not kept:
            del status["active"]
        return await self._put({**cron, "status": status})

    async def _put(self, cron: Json) -> Json:
        written = await self._context.kube.update(CRONJOBS, cron, subresource="status")
        await self._crons.seen(written["metadata"]["resourceVersion"])
        return written

    async def _trim(self, cron: Json, jobs: list[Json]) -> None:
        spec = cron["spec"]
        limits = (
            ("Complete", spec.get("successfulJobsHistoryLimit", 3)),
            ("Failed", spec.get("failedJobsHistoryLimit", 1)),
        )
        for kind, limit in limits:
            over = [job for job in jobs if (end := finished(job)) is not None and end["type"] == kind]
            over.sort(key=lambda job: job["status"].get("startTime", ""))
            for job in over[: max(0, len(over) - limit)]:
                await self._drop(cron, job)

    async def _drop(self, cron: Json, job: Json) -> None:
        name = job["metadata"]["name"]
        try:
            await self._context.kube.delete(JOBS, name, job["metadata"]["namespace"], propagation="Background")
        except NotFound:
            return
        about = InvolvedObject.of(*_KIND, cron["metadata"])
        self._context.recorder.normal(about, "SuccessfulDelete", f"Deleted job {name}")

    async def _start(self, cron: Json, jobs: list[Json], turn: datetime) -> None:
        about = InvolvedObject.of(*_KIND, cron["metadata"])
        policy = cron["spec"].get("concurrencyPolicy", "Allow")
        running = [job for job in jobs if finished(job) is None]
        if policy == "Forbid" and running:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._context.recorder.normal(about, "JobAlreadyActive", text)
            return
        if policy == "Replace":
            for job in running:
                await self._drop(cron, job)
        status: dict[str, Any] = {**cron.get("status", {}), "lastScheduleTime": stamp(turn)}
        try:
            made = await self._context.kube.create(JOBS, self._job(cron, turn))
        except AlreadyExists:
            await self._put({**cron, "status": status})
            return
        await self._jobs.seen(made["metadata"]["resourceVersion"])
        self._context.recorder.normal(about, "SuccessfulCreate", f"Created job {made['metadata']['name']}")
        reference = {
            "kind": "Job",
            "namespace": made["metadata"]["namespace"],
            "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"],
            "apiVersion": "batch/v1",
            "resourceVersion": made["metadata"]["resourceVersion"],
        }
        status["active"] = [*status.get("active", []), reference]
        await self._put({**cron, "status": status})

    def _job(self, cron: Json, turn: datetime) -> Json:
        template = cron["spec"]["jobTemplate"]
        given = template.get("metadata", {})
        metadata: dict[str, Any] = {
            "name": f"{cron['metadata']['name']}-{int(turn.timestamp()) // 60}",
            "namespace": cron["metadata"]["namespace"],
            "ownerReferences": [owner(*_KIND, cron["metadata"])],
            "annotations": {**given.get("annotations", {}), SCHEDULED: stamp(turn)},
        }
        if given.get("labels"):
            metadata["labels"] = dict(given["labels"])
        return {"metadata": metadata, "spec": template["spec"]}
