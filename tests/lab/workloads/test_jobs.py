"""Jobs that fail: pod failure policy, backoff and completion."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dovetail.kube.resources import JOBS, PODS
from tests.lab.workloads.manifests import job

Run = Callable[..., None]
FAILING = ["sh", "-c", "exit 42"]


async def ended(workload_lab: Any, manifest: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The job's status after a while."""
    await workload_lab.kube.create(JOBS, manifest)
    await asyncio.sleep(seconds)
    status: dict[str, Any] = (await workload_lab.kube.get(JOBS, manifest["metadata"]["name"], "default"))["status"]
    return status


def with_rule(action: str, **spec: Any) -> dict[str, Any]:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}
    return job("j", FAILING, podFailurePolicy={"rules": [rule]}, **spec)


def test_a_failure_that_the_policy_names_ends_the_job_at_once(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        status = await ended(workload_lab, with_rule("FailJob", backoffLimit=5), 20)
        (pod,) = await workload_lab.pods()
        text = f"Container c for pod default/{pod['metadata']['name']} failed with exit code 42 "
        assert [(each["type"], each["reason"]) for each in status["conditions"]] == [
            ("FailureTarget", "PodFailurePolicy"),
            ("Failed", "PodFailurePolicy"),
        ]
        assert status["conditions"][1]["message"] == text + "matching FailJob rule at index 0"
        assert status["failed"] == 1

    lab_run(body)


def test_a_failure_that_is_ignored_costs_nothing_but_time(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        status = await ended(workload_lab, with_rule("Ignore", backoffLimit=0), 60)
        assert "failed" not in status and "conditions" not in status
        assert len(await workload_lab.pods()) == 3  # after 10 and 20 seconds

    lab_run(body)


def test_a_pod_that_a_late_job_cuts_off_has_failed_however_it_ends(lab_run: Run) -> None:
    """Counted when it is deleted: that it takes the signal well and exits with 0 comes too late."""

    async def body(workload_lab: Any) -> None:
        manifest = job("j", [], activeDeadlineSeconds=6, podReplacementPolicy="Failed")
        notes = {"lab.dovetail.dev/run-seconds": "30", "lab.dovetail.dev/exit-code": "0"}
        manifest["spec"]["template"]["metadata"] = {"annotations": notes}
        status = await ended(workload_lab, manifest, 60)
        assert status["conditions"][-1]["reason"] == "DeadlineExceeded"
        assert status["failed"] == 1 and "succeeded" not in status

    lab_run(body)


def test_an_index_is_given_up_alone(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        more = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1}
        status = await ended(workload_lab, job("j", ["sh", "-c", "exit 1"], **more), 60)
        assert status["failedIndexes"] == "0,1"
        assert status["conditions"][-1]["reason"] == "FailedIndexes"
        counts = [
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"]
            for pod in await workload_lab.pods()
        ]
        assert sorted(counts) == ["0", "0", "1", "1"]

    lab_run(body)


def test_enough_is_what_the_success_policy_says(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        manifest = job("j", ["sleep", "5"], completions=4, parallelism=1, completionMode="Indexed")
        manifest["spec"]["successPolicy"] = {"rules": [{"succeededIndexes": "1-3", "succeededCount": 1}]}
        status = await ended(workload_lab, manifest, 60)
        assert status["completedIndexes"] == "0,1"
        assert status["conditions"][-1]["message"] == "Matched rules at index 0"

    lab_run(body)


def test_a_job_that_is_marked_as_failed_starts_nothing_more(lab_run: Run) -> None:
    """A pod that restarts too often is stopped; while it stops it is not replaced."""

    async def body(workload_lab: Any) -> None:
        manifest = job("j", ["sh", "-c", "exit 1"], backoffLimit=1)
        manifest["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
        status = await ended(workload_lab, manifest, 90)
        assert status["failed"] == 1
        assert len(await workload_lab.events("SuccessfulCreate")) == 1

    lab_run(body)


@pytest.mark.parametrize("change", [{"suspend": True}, {"parallelism": 1}])
def test_pods_that_a_job_takes_away_itself_did_not_fail(lab_run: Run, change: dict[str, Any]) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(JOBS, job("j", ["sleep", "1000"], parallelism=3, completions=3))
        await asyncio.sleep(10)
        await workload_lab.kube.patch(JOBS, "j", {"spec": change}, "default")
        await asyncio.sleep(60)
        assert "failed" not in (await workload_lab.kube.get(JOBS, "j", "default"))["status"]

    lab_run(body)


def test_a_pod_that_was_deleted_is_replaced_after_the_pause_of_a_failure(lab_run: Run) -> None:
    async def body(workload_lab: Any) -> None:
        await workload_lab.kube.create(JOBS, job("j", ["sleep", "1000"]))
        await asyncio.sleep(5)
        (pod,) = await workload_lab.pods()
        await workload_lab.kube.delete(PODS, pod["metadata"]["name"], "default")
        await asyncio.sleep(8)
        assert len(await workload_lab.events("SuccessfulCreate")) == 1
        await asyncio.sleep(4)
        assert len(await workload_lab.events("SuccessfulCreate")) == 2

    lab_run(body)
