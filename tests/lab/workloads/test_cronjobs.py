"""CronJobs in the lab."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube.resources import CRONJOBS, JOBS

Run = Callable[..., None]


def test_a_job_created_for_a_cronjob_by_another_client_gets_an_event(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
        spec = {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": pods}}}
        cron = await workload_lab.kube.create(CRONJOBS, {"metadata": {"name": "nightly"}, "spec": spec}, "default")
        owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": cron["metadata"]["uid"]}
        meta = {"name": "now", "ownerReferences": [owner | {"controller": True}]}
        await workload_lab.kube.create(JOBS, {"metadata": meta, "spec": {"template": pods}}, "default")
        await asyncio.sleep(1)
        text = "Saw a job that the controller did not create or forgot: now"
        assert await workload_lab.events("UnexpectedJob") == [text]

    lab_run(body, nodes=1)
