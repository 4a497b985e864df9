"""Which pods go first, and how long a pod may stay on a tainted node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from dovetail.lab.controllers.interning import share_pod
from dovetail.lab.controllers.pods import victims
from dovetail.lab.controllers.replicaset import status_of
from dovetail.lab.controllers.replicaset_index import ReplicaSetIndex
from dovetail.lab.controllers.tainteviction import toleration_seconds
from dovetail.lab.controllers.views import PodFields, Taint, Toleration

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(
    name: str, node: str = "n", phase: str = "Running", ready: str | None = "2026-01-01T11:00:00Z", **extra: Any
) -> PodFields:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}] if ready else []
    metadata: dict[str, Any] = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T10:00:00Z"}
    metadata |= (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": extra["cost"]}} if "cost" in extra else {}
    )
    statuses = [{"name": "c", "restartCount": extra.get("restarts", 0)}]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node}, "status": status}, PodFields)


def order(*pods: PodFields, ranks: dict[str, int] | None = None) -> list[str]:
    return [each.metadata.name for each in victims([*pods, pod("zz", cost="9999")], len(pods), ranks or {}, NOW)]


def test_unplaced_then_pending_then_unready_pods_go_first() -> None:
    pods = [pod("ready"), pod("unready", ready=None), pod("pending", phase="Pending", ready=None), pod("free", node="")]
    assert order(*pods) == ["free", "pending", "unready", "ready"]


def test_a_lower_deletion_cost_goes_before_a_crowded_node() -> None:
    pods = [pod("crowded", node="a"), pod("cheap", node="b", cost="-5"), pod("alone", node="b")]
    assert order(*pods, ranks={"a": 3, "b": 1}) == ["cheap", "crowded", "alone"]


def test_the_younger_goes_first_by_powers_of_two() -> None:
    young, old = pod("young", ready="2026-01-01T11:59:50Z"), pod("old", ready="2026-01-01T11:00:00Z")
    assert order(old, young) == ["young", "old"]


def test_equal_ages_are_ordered_by_uid() -> None:
    one, two = pod("b", ready="2026-01-01T11:00:00Z"), pod("a", ready="2026-01-01T11:00:01Z")
    assert order(one, two) == ["a", "b"]


def test_more_restarts_go_first_among_equals() -> None:
    assert order(pod("calm"), pod("restless", restarts=4)) == ["restless", "calm"]


def test_a_pod_is_evicted_after_its_shortest_toleration() -> None:
    taints = [Taint(key="a", effect="NoExecute"), Taint(key="b", effect="NoExecute")]
    stays = [
        Toleration(key="a", operator="Exists", effect="NoExecute", toleration_seconds=300),
        Toleration(key="b", operator="Exists", effect="NoExecute", toleration_seconds=30),
    ]
    assert toleration_seconds(stays, taints) == 30
    assert toleration_seconds(stays[:1], taints) == 0
    assert toleration_seconds([Toleration(operator="Exists")], taints) is None


def test_a_set_counts_its_living_ready_available_and_going_pods() -> None:
    going = msgspec.convert({"metadata": {"name": "g", "deletionTimestamp": "2026-01-01T11:59:00Z"}}, PodFields)
    fresh = pod("fresh", ready="2026-01-01T11:59:50Z")
    pods = [pod("a"), pod("b"), fresh, pod("unready", ready=None), pod("done", phase="Succeeded"), going]
    rs = {"metadata": {"generation": 3}, "spec": {"minReadySeconds": 30, "template": {"metadata": {"labels": {}}}}}
    status, wait = status_of(rs, ReplicaSetIndex(pods), None, NOW)
    assert status == {
        "replicas": 4,
        "fullyLabeledReplicas": 4,
        "readyReplicas": 3,
        "availableReplicas": 2,
        "terminatingReplicas": 1,
        "observedGeneration": 3,
    }
    assert wait == 20


def test_what_pods_have_in_common_is_kept_once_and_nothing_is_mixed_up() -> None:
    labels = {"metadata": {"labels": {"a": "b"}}}
    one, other = (share_pod(msgspec.convert(labels, PodFields)) for _ in range(2))
    assert one == msgspec.convert(labels, PodFields) and one.metadata.labels is other.metadata.labels
    assert share_pod(PodFields()) == PodFields()
