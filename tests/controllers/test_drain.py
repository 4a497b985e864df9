"""The drain's order, its deadlines and what protects a pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.controllers.node.termination import do_not_disrupt, drain
from dovetail.model.pods import Pod

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pod(name: str, *, owner: str = "ReplicaSet", priority: str = "", **more: Any) -> Pod:
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "ownerReferences": [{"kind": owner, "name": "o", "uid": "o", "apiVersion": "apps/v1", "controller": True}],
        **more.pop("metadata", {}),
    }
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 30, **more.pop("spec", {})}
    status = {"phase": "Running", "startTime": "2026-01-01T11:00:00Z", **more}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Pod)


def names(pods: Any) -> list[str]:
    return [pod.metadata.name for pod in pods]


def test_pods_leave_in_four_tiers_each_done_before_the_next() -> None:
    tiers = [
        pod("plain"),
        pod("daemon", owner="DaemonSet"),
        pod("critical", priority="system-cluster-critical"),
        pod("critical-daemon", owner="DaemonSet", priority="system-node-critical"),
    ]
    order = []
    while tiers:
        found = drain.decide(tiers, NOW, None)
        order += names(found.evict)
        tiers = [each for each in tiers if each not in found.evict]
    assert order == ["plain", "daemon", "critical", "critical-daemon"]
    assert drain.decide([], NOW, None).done


def test_a_terminating_pod_is_waited_for_and_not_evicted_again() -> None:
    leaving = pod("leaving", metadata={"deletionTimestamp": "2026-01-01T12:00:20Z"})
    found = drain.decide([leaving, pod("daemon", owner="DaemonSet")], NOW, None)
    assert not found.evict and names(found.waiting) == ["leaving", "daemon"]


def test_a_pod_stuck_beyond_its_end_is_not_waited_for() -> None:
    stuck = pod("stuck", metadata={"deletionTimestamp": "2026-01-01T11:58:00Z"})
    assert drain.decide([stuck], NOW, None).done


@pytest.mark.parametrize(
    "stays",
    [
        pod("mirror-pod", owner="Node"),
        pod("finished", phase="Succeeded"),
        pod("content", spec={"tolerations": [{"operator": "Exists"}]}),
    ],
)
def test_pods_that_are_not_drained_do_not_hold_the_drain(stays: Pod) -> None:
    assert drain.decide([stays], NOW, None).done


def test_with_a_date_pods_are_deleted_in_time_whatever_their_tier_and_protection() -> None:
    held = pod("held", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}})
    critical = pod("critical", priority="system-node-critical")
    early = drain.decide([held, critical], NOW, NOW + timedelta(seconds=60))
    assert not early.force and names(early.protected) == ["held"]
    late = drain.decide([held, critical], NOW, NOW + timedelta(seconds=20))
    assert [(each.pod.metadata.name, each.grace) for each in late.force] == [("held", 20), ("critical", 20)]


@pytest.mark.parametrize(
    ("text", "kind", "holds"),
    [
        ("true", do_not_disrupt.ProtectionKind.FOREVER, True),
        ("false", do_not_disrupt.ProtectionKind.NONE, False),
        ("90m", do_not_disrupt.ProtectionKind.UNTIL, True),
        ("30m", do_not_disrupt.ProtectionKind.UNTIL, False),
        ("-5m", do_not_disrupt.ProtectionKind.INVALID, False),
        ("soon", do_not_disrupt.ProtectionKind.INVALID, False),
    ],
)
def test_a_pod_is_protected_for_ever_for_a_while_or_not(
    text: str, kind: do_not_disrupt.ProtectionKind, holds: bool
) -> None:
    found = do_not_disrupt.of(pod("p", metadata={"annotations": {"karpenter.sh/do-not-disrupt": text}}))
    assert (found.kind, found.holds(NOW)) == (kind, holds)


def test_protection_begins_with_the_pod() -> None:
    waiting = pod("p", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "1m"}}, startTime=None)
    assert do_not_disrupt.of(waiting).holds(NOW + timedelta(days=1))
