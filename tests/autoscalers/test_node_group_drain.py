"""Drain rules, disruption budgets and deletion budgets of the Cluster Autoscaler."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dovetail.autoscalers.node_groups.annotations import SAFE_TO_EVICT, SAFE_TO_EVICT_LOCAL_VOLUMES
from dovetail.autoscalers.node_groups.budgets import Allowed, GroupNodes, crop
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import (
    REMEDIES,
    BlockingReason,
    Controllers,
    DrainabilityOutcome,
    DrainContext,
    DrainRules,
    drainability,
    pods_to_move,
)
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import NOW, group, pdb, pod

CONTROLLERS = Controllers(
    {
        ("ReplicaSet", "default", "rs"): 5,
        ("ReplicaSet", "kube-system", "rs"): 5,
        ("ReplicationController", "default", "rc"): 5,
        ("DaemonSet", "default", "ds"): 0,
        ("StatefulSet", "default", "ss"): 3,
        ("Job", "default", "job"): 0,
    }
)
EMPTY_DIR = {"volumes": [{"name": "scratch", "emptyDir": {"medium": ""}}, {"name": "other", "emptyDir": {}}]}
KUBE_DNS = {"k8s-app": "kube-dns"}


DAEMONSET_POD = "cluster-autoscaler.kubernetes.io/daemonset-pod"


def verdict(of: Pod, rules: DrainRules | None = None, *budgets: Any, controllers: Any = CONTROLLERS) -> Any:
    return drainability(of, rules or DrainRules(), DrainContext(NOW, RemainingPdbs(budgets), controllers))


@pytest.mark.parametrize(
    ("of", "outcome"),
    [
        (pod("static", owner=None, annotations={"kubernetes.io/config.mirror": "x"}), DrainabilityOutcome.SKIP),
        (pod("gone", owner=None, deleted=NOW - timedelta(minutes=2)), DrainabilityOutcome.SKIP),
        (pod("going", deleted=NOW - timedelta(seconds=40)), DrainabilityOutcome.UNDEFINED),
        (
            pod("slow", deleted=NOW - timedelta(minutes=2), spec={"terminationGracePeriodSeconds": 600}),
            DrainabilityOutcome.UNDEFINED,
        ),
        (pod("daemon", owner="DaemonSet/ds"), DrainabilityOutcome.DRAIN),
        (pod("marked", owner=None, annotations={SAFE_TO_EVICT: "true"}), DrainabilityOutcome.DRAIN),
        (pod("failed", owner=None, phase="Failed"), DrainabilityOutcome.DRAIN),
        (pod("done", owner=None, phase="Succeeded", spec={"restartPolicy": "Never"}), DrainabilityOutcome.DRAIN),
        (pod("retried", owner=None, phase="Succeeded", spec={"restartPolicy": "OnFailure"}), DrainabilityOutcome.DRAIN),
        (pod("last", owner=None, annotations={SAFE_TO_EVICT: "on-completion"}), DrainabilityOutcome.WAIT),
        (pod("replica"), DrainabilityOutcome.UNDEFINED),
        (pod("controlled", owner="ReplicationController/rc"), DrainabilityOutcome.UNDEFINED),
        (pod("stateful", owner="StatefulSet/ss"), DrainabilityOutcome.UNDEFINED),
        (pod("batch", owner="Job/job"), DrainabilityOutcome.UNDEFINED),
        (
            pod("scratch", spec={"volumes": [{"name": "a", "emptyDir": {"medium": "Memory"}}]}),
            DrainabilityOutcome.UNDEFINED,
        ),
        (
            pod("listed", spec=EMPTY_DIR, annotations={SAFE_TO_EVICT_LOCAL_VOLUMES: "scratch,other"}),
            DrainabilityOutcome.UNDEFINED,
        ),
        (pod("old", namespace="kube-system", created=NOW - timedelta(hours=2)), DrainabilityOutcome.UNDEFINED),
    ],
    ids=lambda value: value.metadata.name if isinstance(value, Pod) else value.name,
)
def test_pods_that_do_not_keep_their_node(of: Pod, outcome: DrainabilityOutcome) -> None:
    assert verdict(of).outcome is outcome


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (pod("bare", owner=None), BlockingReason.NOT_REPLICATED),
        (pod("running", owner=None, phase="Running"), BlockingReason.NOT_REPLICATED),
        (pod("completed", owner=None, phase="Succeeded"), BlockingReason.NOT_REPLICATED),
        (pod("custom", owner="Rollout/web"), BlockingReason.NOT_REPLICATED),
        (pod("orphan", owner="ReplicaSet/lost"), BlockingReason.CONTROLLER_NOT_FOUND),
        (pod("lonely", owner="DaemonSet/lost"), BlockingReason.CONTROLLER_NOT_FOUND),
        (pod("jobless", owner="Job/lost"), BlockingReason.CONTROLLER_NOT_FOUND),
        (pod("kept", annotations={SAFE_TO_EVICT: "false"}), BlockingReason.NOT_SAFE_TO_EVICT),
        (pod("disk", spec=EMPTY_DIR), BlockingReason.LOCAL_STORAGE_REQUESTED),
        (
            pod("half", spec=EMPTY_DIR, annotations={SAFE_TO_EVICT_LOCAL_VOLUMES: "scratch"}),
            BlockingReason.LOCAL_STORAGE_REQUESTED,
        ),
        (
            pod("host", spec={"volumes": [{"name": "a", "hostPath": {"path": "/x"}}]}),
            BlockingReason.LOCAL_STORAGE_REQUESTED,
        ),
        (
            pod("dns", namespace="kube-system", created=NOW - timedelta(minutes=30)),
            BlockingReason.UNMOVABLE_SYSTEM_POD,
        ),
    ],
    ids=lambda value: value.metadata.name if isinstance(value, Pod) else value.name,
)
def test_pods_that_keep_their_node(of: Pod, reason: BlockingReason) -> None:
    found = verdict(of)
    assert (found.outcome, found.reason) == (DrainabilityOutcome.BLOCK, reason)
    assert of.metadata.name in found.message
    assert REMEDIES[reason]


def test_flags_open_what_they_name() -> None:
    """Each of the skip flags, set to false, lets the pods go that it speaks of."""
    assert (
        verdict(pod("x", spec=EMPTY_DIR), DrainRules(skip_local_storage=False)).outcome is DrainabilityOutcome.UNDEFINED
    )
    assert (
        verdict(pod("x", namespace="kube-system"), DrainRules(skip_system_pods=False)).outcome
        is DrainabilityOutcome.UNDEFINED
    )
    custom = DrainRules(skip_custom_controller_pods=False)
    assert verdict(pod("x", owner="Rollout/web"), custom).outcome is DrainabilityOutcome.UNDEFINED
    assert verdict(pod("x", owner="ReplicaSet/lost"), custom).outcome is DrainabilityOutcome.UNDEFINED
    few = verdict(pod("x"), DrainRules(min_replica_count=6))
    assert few.reason is BlockingReason.MIN_REPLICAS_REACHED


def test_a_daemonset_of_another_group_is_not_looked_up() -> None:
    other = pod("x", owner="DaemonSet/lost")
    owner = other.metadata.owner_references[0]
    assert owner.api_version == "apps/v1"
    import msgspec

    meta = msgspec.structs.replace(
        other.metadata, owner_references=(msgspec.structs.replace(owner, api_version="crd/v1"),)
    )
    assert verdict(msgspec.structs.replace(other, metadata=meta)).outcome is DrainabilityOutcome.DRAIN


def test_budgets_block_and_excuse() -> None:
    covered = pod("a", labels=KUBE_DNS, namespace="kube-system")
    assert verdict(covered, None, pdb("dns", 1, KUBE_DNS, "kube-system")).outcome is DrainabilityOutcome.UNDEFINED
    blocked = verdict(covered, None, pdb("dns", 0, KUBE_DNS, "kube-system"))
    assert blocked.reason is BlockingReason.NOT_ENOUGH_PDB
    assert verdict(covered, None, pdb("dns", 1, KUBE_DNS)).reason is BlockingReason.UNMOVABLE_SYSTEM_POD


def test_a_blocking_pod_stops_the_whole_node() -> None:
    context = DrainContext(NOW, RemainingPdbs(), CONTROLLERS)
    found = pods_to_move([pod("a"), pod("bare", owner=None), pod("d", owner="DaemonSet/ds")], DrainRules(), context)
    assert found.blocking is not None and found.blocking.pod.metadata.name == "bare"
    assert not found.pods
    free = pods_to_move([pod("a"), pod("d", owner="DaemonSet/ds")], DrainRules(), context)
    assert [each.metadata.name for each in free.pods] == ["a"]
    assert [each.metadata.name for each in free.daemonset_pods] == ["d"]


def test_remaining_budgets_count_down() -> None:
    budgets = RemainingPdbs([pdb("one", 1, {"app": "web"}), pdb("two", 3, {"app": "web", "tier": "a"})])
    first, second = pod("a", labels={"app": "web"}), pod("b", labels={"app": "web", "tier": "a"})
    assert budgets.can_remove([first]) == (True, True, None)
    assert budgets.can_remove([first, second]) == (True, False, second)
    budgets.remove([first])
    assert budgets.can_remove([second]) == (False, False, second)
    assert budgets.can_remove([pod("c")]) == (True, True, None)


def sizes(allowed: Allowed) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    def reported(groups: Any) -> list[tuple[str, int]]:
        return [(entry.group.id, len(entry.nodes)) for entry in groups]

    return reported(allowed.empty), reported(allowed.drain)


def some(name: str, count: int, *, whole: bool = False) -> GroupNodes:
    return GroupNodes(group(name, 0, 100, 50, zero_or_max=whole), tuple(f"{name}-{n}" for n in range(count)))


@pytest.mark.parametrize(
    ("empty", "drain", "in_progress", "expected"),
    [
        ([], [], (0, 0), ([], [])),
        ([some("g", 10)], [], (0, 0), ([("g", 10)], [])),
        ([some("g", 11)], [], (0, 0), ([("g", 10)], [])),
        ([], [some("g", 7)], (0, 0), ([], [("g", 5)])),
        ([some("g", 5)], [some("g", 5)], (0, 0), ([("g", 5)], [("g", 5)])),
        ([some("g", 9)], [some("g", 5)], (0, 0), ([("g", 9)], [("g", 1)])),
        ([some("g", 5)], [some("g", 5)], (6, 2), ([("g", 2)], [])),
        ([some("g", 5)], [some("g", 5)], (1, 4), ([("g", 5)], [])),
        ([some("g", 5)], [some("g", 5)], (10, 0), ([], [])),
        ([some("a", 20, whole=True)], [], (0, 0), ([("a", 20)], [])),
        ([some("a", 10, whole=True), some("b", 2, whole=True)], [some("c", 3)], (0, 0), ([("a", 10)], [])),
        ([some("a", 4, whole=True), some("b", 12, whole=True)], [], (0, 0), ([("a", 4)], [])),
        ([some("g", 8)], [some("a", 8, whole=True)], (0, 0), ([("g", 2)], [("a", 8)])),
        ([some("a", 8, whole=True)], [some("b", 8, whole=True)], (0, 0), ([("a", 8)], [])),
        ([some("a", 3), some("b", 9)], [], (0, 0), ([("a", 3), ("b", 7)], [])),
    ],
)
def test_deletion_budgets(empty: Any, drain: Any, in_progress: tuple[int, int], expected: Any) -> None:
    """Ten deletions at once, five of them draining; whole groups first, and the first of those may exceed."""
    allowed = crop(
        empty,
        drain,
        empty_in_progress=in_progress[0],
        drain_in_progress=in_progress[1],
        max_parallelism=10,
        max_drain_parallelism=5,
    )
    assert sizes(allowed) == expected


def test_an_annotation_does_not_hide_that_a_replication_controller_is_gone() -> None:
    marked = {DAEMONSET_POD: "true"}
    orphan = pod("orphan", owner="ReplicationController/missing", annotations=marked)
    assert verdict(orphan).reason is BlockingReason.CONTROLLER_NOT_FOUND
    assert (
        verdict(pod("kept", owner="ReplicationController/rc", annotations=marked)).outcome is DrainabilityOutcome.DRAIN
    )
