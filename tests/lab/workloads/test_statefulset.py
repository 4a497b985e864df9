"""StatefulSets, the pure decision: the status during deletion, and which pod is rolled next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.lab.controllers.statefulset.decide import Create, DeletePod, next_available, status_of, steps
from dovetail.lab.controllers.views import PodFields

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")


def workload(replicas: int = 2, status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    rolling = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}
    return {
        "metadata": {"name": "db", "generation": 1},
        "spec": {"replicas": replicas, **rolling, **spec},
        "status": {"currentRevision": "old", "currentReplicas": replicas, **(status or {})},
    }


def pod(number: int, revision: str = "old", phase: str = "Running", going: bool = False, since: int = 100) -> PodFields:
    metadata: dict[str, Any] = {"name": f"db-{number}", "labels": {"controller-revision-hash": revision}}
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ready = datetime.fromtimestamp(NOW.timestamp() - since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = "True" if phase == "Running" else "False"
    condition = {"type": "Ready", "status": status, "lastTransitionTime": ready}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase, "conditions": [condition]}}, PodFields)


def counts(status: dict[str, Any]) -> tuple[int, ...]:
    return tuple(status.get(field, 0) for field in COUNTS)


def test_the_status_tells_what_was_there_before_the_pod_was_rolled() -> None:
    pods = [pod(0), pod(1)]
    assert steps(workload(), pods, "new", NOW) == [DeletePod(pods[1], rolled=True)]
    assert counts(status_of(workload(), pods, "new", NOW, rolled=1)) == (2, 2, 2, 1, 0)


def test_a_pod_that_goes_counts_while_it_is_ready_and_is_there_until_it_has_gone() -> None:
    assert counts(status_of(workload(), [pod(0), pod(1, going=True)], "new", NOW)) == (2, 2, 2, 1, 0)
    ended = pod(1, going=True, phase="Succeeded")
    assert counts(status_of(workload(), [pod(0), ended], "new", NOW)) == (2, 1, 1, 1, 0)
    assert steps(workload(), [pod(0), ended], "new", NOW) == []


def test_pods_managed_in_parallel_are_rolled_though_a_lower_one_is_unwell() -> None:
    parallel = workload(podManagementPolicy="Parallel")
    pods = [pod(0, phase="Pending"), pod(1)]
    assert steps(parallel, pods, "new", NOW) == [DeletePod(pods[1], rolled=True)]
    both = [pod(0), pod(1, revision="new", phase="Pending")]
    assert steps(parallel, both, "new", NOW) == []


def test_where_pods_are_updated_on_deletion_a_new_one_is_of_the_new_revision() -> None:
    by_hand = workload(updateStrategy={"type": "OnDelete"})
    assert steps(by_hand, [pod(0)], "new", NOW) == [Create(1, updated=True)]
    done = [pod(0, "new"), pod(1, "new")]
    assert status_of(by_hand, done, "new", NOW)["currentRevision"] == "old"
    assert status_of(workload(), done, "new", NOW)["currentRevision"] == "new"


def test_a_set_is_looked_at_again_when_its_next_pod_becomes_available() -> None:
    patient = workload(minReadySeconds=30)
    assert next_available(patient, [pod(0), pod(1, since=10)], NOW) == 20
    assert next_available(patient, [pod(0), pod(1, phase="Pending")], NOW) is None
