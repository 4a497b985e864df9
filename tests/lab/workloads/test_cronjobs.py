"""CronJobs in the lab."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import CRONJOBS, JOBS

Run = Callable[..., None]


def test_a_job_started_in_a_cron_jobs_name_is_told(lab_run: Run) -> None:
    async def body(living: Any) -> None:
        pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": pods}}}
        cron = await living.kube.create(CRONJOBS, {"metadata": {"name": "nightly"}, "spec": spec}, "default")
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": cron["metadata"]["uid"]}
        meta = {"name": "now", "ownerReferences": [owner | {"controller": True}]}
        await living.kube.create(JOBS, {"metadata": meta, "spec": {"template": pods}}, "default")
        await asyncio.sleep(1)
        text = "Saw a job that the controller did not create or forgot: now"
        assert await living.events("UnexpectedJob") == [text]

    lab_run(body, nodes=1)
