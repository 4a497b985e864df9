"""Drain rules and deletion budgets, row by row, for the cases that Cluster Autoscaler's own tests fix.

Each rule is asked alone and in the whole chain; what a row expects is upstream's verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from dovetail.autoscalers.node_groups.annotations import SAFE_TO_EVICT, SAFE_TO_EVICT_LOCAL_VOLUMES
from dovetail.autoscalers.node_groups.budgets import GroupNodes, crop
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import (
    RULES,
    BlockingReason,
    Controllers,
    DrainabilityOutcome,
    DrainabilityStatus,
    DrainContext,
    DrainRules,
    drainability,
    pods_to_move,
)
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import NOW, group, pdb, pod

DRAIN, SKIP, WAIT, BLOCK, UNDEFINED = (
    DrainabilityOutcome.DRAIN,
    DrainabilityOutcome.SKIP,
    DrainabilityOutcome.WAIT,
    DrainabilityOutcome.BLOCK,
    DrainabilityOutcome.UNDEFINED,
)
STATIC_POD = {"kubernetes.io/config.mirror": "x"}
DAEMONSET_POD = {"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}
SAFE, UNSAFE, LAST = ({SAFE_TO_EVICT: value} for value in ("true", "false", "on-completion"))
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
ALONE = {rule.__name__.removeprefix("_"): rule for rule in RULES}
CONTROLLERS = Controllers(
    {
        ("ReplicationController", "default", "rc"): 5,
        ("ReplicationController", "kube-system", "rc"): 5,
        ("ReplicaSet", "default", "rs"): 5,
        ("DaemonSet", "default", "ds"): 0,
        ("StatefulSet", "default", "ss"): 0,
        ("Job", "default", "job"): 0,
    }
)


def of(owner: str | None, api: str = "", **about: Any) -> Pod:
    return pod("p", owner=owner, owner_api=api, on="node", **about)


def verdict(
    rule: str,
    asked: Pod,
    *budgets: Any,
    rules: DrainRules | None = None,
    controllers: Controllers | None = None,
) -> DrainabilityStatus:
    found = ALONE[rule](asked, rules or DrainRules(), DrainContext(NOW, RemainingPdbs(budgets), controllers))
    return found or DrainabilityStatus(UNDEFINED)


@pytest.mark.parametrize(
    ("owner", "api", "annotations", "lost"),
    [
        ("ReplicationController/rc", "core/v1", {}, False),
        ("ReplicationController/missing", "core/v1", {}, True),
        ("DaemonSet/ds", "apps/v1", {}, False),
        ("DaemonSet/missing", "apps/v1", {}, True),
        ("DaemonSet/ds", "crd/v1", {}, False),
        ("DaemonSet/missing", "crd/v1", {}, False),
        ("CustomDaemonSet/ds", "crd/v1", DAEMONSET_POD, False),
        ("CustomDaemonSet/missing", "crd/v1", DAEMONSET_POD, False),
        ("Job/job", "batch/v1", {}, False),
        ("Job/missing", "batch/v1", {}, True),
        ("StatefulSet/ss", "apps/v1", {}, False),
        ("StatefulSet/missing", "apps/v1", {}, True),
        ("StatefulSet/ss", "kruise/v1", {}, False),
        ("StatefulSet/missing", "kruise/v1", {}, False),
        ("ReplicaSet/rs", "apps/v1", {}, False),
        ("ReplicaSet/missing", "apps/v1", {}, True),
        (None, "", {}, False),
        ("FooController/Foo", "apps/v1", {}, False),
    ],
)
@pytest.mark.parametrize("deleted", [None, NOW - HOUR], ids=["lives", "deleted"])
def test_a_controller_that_is_gone_keeps_the_node(
    owner: str | None, api: str, annotations: dict[str, str], lost: bool, deleted: Any
) -> None:
    found = verdict("replica_count", of(owner, api, annotations=annotations, deleted=deleted), controllers=CONTROLLERS)
    assert found.reason is (BlockingReason.CONTROLLER_NOT_FOUND if lost else None)
    assert verdict("replica_count", of(owner, api, annotations=annotations)).outcome is UNDEFINED  # nothing to look in


@pytest.mark.parametrize(
    ("owner", "minimum", "blocks"),
    [
        ("ReplicaSet/rs", 5, False),
        ("ReplicaSet/rs", 6, True),
        ("ReplicationController/rc", 5, False),
        ("ReplicationController/rc", 6, True),
        ("StatefulSet/ss", 6, False),
        ("Job/job", 6, False),
    ],
)
def test_the_minimum_of_replicas_counts_for_replica_sets_and_replication_controllers(
    owner: str, minimum: int, blocks: bool
) -> None:
    found = verdict("replica_count", of(owner), rules=DrainRules(min_replica_count=minimum), controllers=CONTROLLERS)
    assert found.reason is (BlockingReason.MIN_REPLICAS_REACHED if blocks else None)


@pytest.mark.parametrize("custom_blocks", [True, False], ids=["skip-custom", "custom"])
@pytest.mark.parametrize(
    ("owner", "api", "blocks", "blocks_as_custom"),
    [
        ("ReplicationController/rc", "core/v1", False, False),
        ("Job/job", "batch/v1", False, False),
        ("StatefulSet/ss", "apps/v1", False, False),
        ("ReplicaSet/rs", "apps/v1", False, False),
        ("DaemonSet/ds", "apps/v1", False, True),  # of the rule alone: the DaemonSet rule speaks before it
        ("CustomDaemonSet/ds", "crd/v1", False, True),
        ("FooController/Foo", "apps/v1", False, True),
        (None, "", True, True),
    ],
)
def test_pods_without_a_known_controller_keep_the_node(
    owner: str | None, api: str, blocks: bool, blocks_as_custom: bool, custom_blocks: bool
) -> None:
    rules = DrainRules(skip_custom_controller_pods=custom_blocks)
    found = verdict("replicated", of(owner, api), rules=rules)
    assert (found.reason is BlockingReason.NOT_REPLICATED) is (blocks_as_custom if custom_blocks else blocks)


@pytest.mark.parametrize(
    ("rule", "asked", "outcome"),
    [
        ("mirror_pod", of(None, annotations=STATIC_POD), SKIP),
        ("mirror_pod", of(None), UNDEFINED),
        ("daemonset", of("DaemonSet/ds"), DRAIN),
        ("daemonset", of("DaemonSet/ds", "crd/v1"), DRAIN),
        ("daemonset", of("CustomDaemonSet/ds", "crd/v1", annotations=DAEMONSET_POD), DRAIN),
        ("daemonset", of("CustomDaemonSet/ds", "crd/v1"), UNDEFINED),
        ("daemonset", of(None), UNDEFINED),
        ("safe_to_evict", of(None, annotations=SAFE), DRAIN),
        ("safe_to_evict", of(None, annotations=UNSAFE), UNDEFINED),
        ("safe_to_evict", of(None, annotations=LAST), UNDEFINED),
        ("safe_to_evict", of(None), UNDEFINED),
        ("terminal", of(None), UNDEFINED),
        ("terminal", of(None, phase="Succeeded", spec={"restartPolicy": "OnFailure"}), DRAIN),
        ("terminal", of(None, phase="Succeeded", spec={"restartPolicy": "Never"}), DRAIN),
        ("terminal", of(None, phase="Succeeded", spec={"restartPolicy": "Always"}), UNDEFINED),
        ("terminal", of(None, phase="Failed", spec={"restartPolicy": "Never"}), DRAIN),
        ("terminal", of(None, phase="Failed", spec={"restartPolicy": "Always"}), DRAIN),
        ("on_completion", of(None, annotations=LAST), WAIT),
        ("on_completion", of(None, annotations=SAFE), UNDEFINED),
        ("on_completion", of(None), UNDEFINED),
        ("not_safe_to_evict", of(None, namespace="kube-system", annotations=SAFE), UNDEFINED),
        ("not_safe_to_evict", of("ReplicationController/rc"), UNDEFINED),
        ("not_safe_to_evict", of("ReplicationController/rc", annotations=UNSAFE), BLOCK),
        ("not_safe_to_evict", of("Job/job"), UNDEFINED),
        ("not_safe_to_evict", of("Job/job", annotations=UNSAFE), BLOCK),
    ],
)
def test_what_a_rule_alone_says(rule: str, asked: Pod, outcome: DrainabilityOutcome) -> None:
    assert verdict(rule, asked).outcome is outcome


@pytest.mark.parametrize(
    ("grace_s", "deleted", "outcome"),
    [
        (None, None, UNDEFINED),
        (0, NOW + 15 * SECOND, UNDEFINED),
        (0, NOW - 15 * SECOND, UNDEFINED),
        (0, NOW - 60 * SECOND, SKIP),
        (None, NOW - 59 * SECOND, UNDEFINED),
        (None, NOW - 90 * SECOND, SKIP),
        (360, NOW + 180 * SECOND, UNDEFINED),
        (360, NOW - 180 * SECOND, UNDEFINED),
        (360, NOW - 720 * SECOND, SKIP),
    ],
)
def test_pods_that_should_have_ended(grace_s: int | None, deleted: Any, outcome: DrainabilityOutcome) -> None:
    spec = {} if grace_s is None else {"terminationGracePeriodSeconds": grace_s}
    assert verdict("long_terminating", of(None, deleted=deleted, spec=spec)).outcome is outcome


def with_volumes(*names: str, listed: str | None = None, source: Any = None) -> Pod:
    kind = source or {"emptyDir": {"medium": ""}}
    return of(
        "ReplicationController/rc",
        annotations={} if listed is None else {SAFE_TO_EVICT_LOCAL_VOLUMES: listed},
        spec={"volumes": [{"name": name, **kind} for name in names]},
    )


@pytest.mark.parametrize(
    ("asked", "blocks"),
    [
        (with_volumes(), False),
        (with_volumes("scratch"), True),
        (with_volumes("scratch", listed="scratch"), False),
        (with_volumes("scratch", listed=""), True),
        (with_volumes("one", listed="two"), True),
        (with_volumes("a", "b", "c", listed="a,b,c"), False),
        (with_volumes("a", "b", "c", listed="a,b,e"), True),
        (with_volumes("a", "b", "c", listed="a,b"), True),
        (with_volumes("a", "b", "c", listed=","), True),
        (with_volumes("a", source={"hostPath": {"path": "/x"}}), True),
        (with_volumes("a", listed="a", source={"hostPath": {"path": "/x"}}), False),
        (with_volumes("a", source={"emptyDir": {"medium": "Memory"}}), False),
        (with_volumes("a", source={"gitRepo": {"repository": "x"}}), False),
        (with_volumes("a", source={"persistentVolumeClaim": {"claimName": "x"}}), False),
    ],
)
def test_local_storage(asked: Pod, blocks: bool) -> None:
    found = verdict("local_storage", asked)
    assert found.reason is (BlockingReason.LOCAL_STORAGE_REQUESTED if blocks else None)


SYSTEM = of("ReplicationController/rc", namespace="kube-system", labels={"k8s-app": "bar"})
PLAIN = of("ReplicationController/rc", labels={"label": "true"})
SYSTEM_PDB = pdb("own", 1, {"k8s-app": "bar"}, "kube-system")


@pytest.mark.parametrize(
    ("asked", "budgets", "blocks"),
    [
        (PLAIN, (), False),
        (PLAIN, (pdb("empty", 0, {}, ""),), False),
        (SYSTEM, (SYSTEM_PDB,), False),
        (SYSTEM, (pdb("other", 1, {"k8s-app": "foo"}, "kube-system"),), True),
        (PLAIN, (SYSTEM_PDB,), False),
        (SYSTEM, (pdb("elsewhere", 1, {"k8s-app": "bar"}),), True),
        (SYSTEM, (), True),
    ],
)
def test_system_pods_need_a_budget(asked: Pod, budgets: Any, blocks: bool) -> None:
    found = verdict("system", asked, *budgets)
    assert found.reason is (BlockingReason.UNMOVABLE_SYSTEM_POD if blocks else None)


@pytest.mark.parametrize(
    ("age_s", "timeout_s", "blocks"), [(3599, 3600, True), (3601, 3600, False), (61, 60, False), (99999, 0, True)]
)
def test_system_pods_block_for_so_long(age_s: int, timeout_s: float, blocks: bool) -> None:
    asked = of("ReplicationController/rc", namespace="kube-system", created=NOW - age_s * SECOND)
    found = verdict("system", asked, rules=DrainRules(system_pod_timeout_s=timeout_s))
    assert (found.outcome is BLOCK) is blocks


@pytest.mark.parametrize(
    ("budgets", "blocks"),
    [
        ((), False),
        ((pdb("a", 0, {"label": "true"}, "bad"), pdb("b", 0, {"label": "false"})), False),
        (
            (pdb("a", 0, {"label": "true"}, "bad"), pdb("b", 0, {"label": "true"}), pdb("c", 0, {"label": "false"})),
            True,
        ),
        ((pdb("a", 1, {"label": "true"}), pdb("b", 0, {"label": "true"})), True),
        ((pdb("a", 1, {"label": "true"}),), False),
    ],
)
def test_disruption_budgets(budgets: Any, blocks: bool) -> None:
    found = verdict("budget", PLAIN, *budgets)
    assert found.reason is (BlockingReason.NOT_ENOUGH_PDB if blocks else None)


REPLICA, DAEMON, STATIC = (
    of("ReplicaSet/rs"),
    of("DaemonSet/ds"),
    of(None, annotations=STATIC_POD, namespace="kube-system"),
)
GOING, GONE = of("ReplicaSet/rs", deleted=NOW + 30 * SECOND), of("ReplicaSet/rs", deleted=NOW - 90 * SECOND)
CRITICAL = of("ReplicaSet/rs", labels={"critical": "true"})
EMPTY_DIR = {"volumes": [{"name": "scratch", "emptyDir": {}}]}


@pytest.mark.parametrize(
    ("pods", "budgets", "moved", "daemonset_pods", "reason"),
    [
        ([of(None)], (), 0, 0, BlockingReason.NOT_REPLICATED),
        ([REPLICA], (), 1, 0, None),
        ([STATIC], (), 0, 0, None),
        ([REPLICA, STATIC, DAEMON], (), 1, 1, None),
        ([of("ReplicaSet/rs", namespace="kube-system")], (), 0, 0, BlockingReason.UNMOVABLE_SYSTEM_POD),
        ([of("ReplicaSet/rs", spec=EMPTY_DIR)], (), 0, 0, BlockingReason.LOCAL_STORAGE_REQUESTED),
        ([with_volumes("a", source={"gitRepo": {"repository": "x"}})], (), 1, 0, None),
        ([CRITICAL], (pdb("p", 0, {"critical": "true"}),), 0, 0, BlockingReason.NOT_ENOUGH_PDB),
        ([CRITICAL], (pdb("p", 1, {"critical": "true"}),), 1, 0, None),
        ([REPLICA, GONE, GOING], (), 2, 0, None),
        ([of("ReplicationController/rc")], (), 1, 0, None),
        ([DAEMON], (), 0, 1, None),
        ([of("CustomDaemonSet/ds", "crd/v1", annotations=DAEMONSET_POD)], (), 0, 1, None),
        ([of("Job/job")], (), 1, 0, None),
        ([of("StatefulSet/ss")], (), 1, 0, None),
        ([of("ReplicaSet/rs", deleted=NOW - HOUR)], (), 0, 0, None),
        ([with_volumes("a", "b", "c", listed="a,b,c")], (), 1, 0, None),
        ([of(None, phase="Failed", spec={"restartPolicy": "Never"})], (), 1, 0, None),
        ([of(None, phase="Failed", spec={"restartPolicy": "Always"})], (), 1, 0, None),
        ([of(None, phase="Succeeded", spec={"restartPolicy": "OnFailure"})], (), 1, 0, None),
        ([of(None, annotations=SAFE)], (), 1, 0, None),
        ([of(None, annotations=SAFE, namespace="kube-system")], (), 1, 0, None),
        ([of(None, annotations=SAFE, spec=EMPTY_DIR)], (), 1, 0, None),
        ([PLAIN], (pdb("empty", 0, {}, ""),), 1, 0, None),
        ([SYSTEM], (SYSTEM_PDB,), 1, 0, None),
        ([SYSTEM], (pdb("x", 1, {"k8s-app": "foo"}, "kube-system"),), 0, 0, BlockingReason.UNMOVABLE_SYSTEM_POD),
        ([PLAIN], (SYSTEM_PDB,), 1, 0, None),
        ([SYSTEM], (pdb("x", 1, {"k8s-app": "bar"}),), 0, 0, BlockingReason.UNMOVABLE_SYSTEM_POD),
    ],
)
@pytest.mark.parametrize("controllers", [None, CONTROLLERS], ids=["unknown", "known"])
def test_pods_to_move(
    pods: Sequence[Pod],
    budgets: Any,
    moved: int,
    daemonset_pods: int,
    reason: BlockingReason | None,
    controllers: Controllers | None,
) -> None:
    if controllers is not None and any(asked.metadata.namespace == "kube-system" for asked in pods):
        controllers = Controllers({**CONTROLLERS.replicas, ("ReplicaSet", "kube-system", "rs"): 1})
    found = pods_to_move(pods, DrainRules(), DrainContext(NOW, RemainingPdbs(budgets), controllers))
    assert (len(found.pods), len(found.daemonset_pods)) == (moved, daemonset_pods)
    assert (found.blocking.reason if found.blocking else None) is reason


def test_the_first_rule_that_speaks_decides() -> None:
    """In upstream's order: a static pod needs no controller, a marked one no budget, a lost controller comes first."""
    none_left = DrainContext(NOW, RemainingPdbs([pdb("p", 0, {"label": "true"})]), CONTROLLERS)
    for asked, outcome, reason in (
        (of(None, annotations={**STATIC_POD, **UNSAFE}), SKIP, None),
        (of(None, annotations=SAFE, labels={"label": "true"}), DRAIN, None),
        (of("ReplicaSet/missing", annotations=SAFE), BLOCK, BlockingReason.CONTROLLER_NOT_FOUND),
        (of("DaemonSet/ds", annotations=UNSAFE), DRAIN, None),
        (of(None, annotations=LAST, spec=EMPTY_DIR), WAIT, None),
        (of(None, namespace="kube-system"), BLOCK, BlockingReason.NOT_REPLICATED),
        (SYSTEM, BLOCK, BlockingReason.UNMOVABLE_SYSTEM_POD),
        (of("ReplicaSet/rs", annotations=UNSAFE, spec=EMPTY_DIR), BLOCK, BlockingReason.NOT_SAFE_TO_EVICT),
        (
            of("ReplicaSet/rs", labels={"label": "true"}, spec=EMPTY_DIR),
            BLOCK,
            BlockingReason.LOCAL_STORAGE_REQUESTED,
        ),
    ):
        found = drainability(asked, DrainRules(), none_left)
        assert (found.outcome, found.reason) == (outcome, reason)


# Deletion budgets: ten at once, five of them draining. "ng3" is three single nodes, "atomic3" a whole group of three;
# two numbers are the range of the group's nodes.


def nodes(text: str) -> list[GroupNodes]:
    made: list[GroupNodes] = []
    for word in text.split():
        name, _, taken = word.partition(":")
        first, _, last = taken.rpartition("-")
        size = int(name.removeprefix("atomic")) if name.startswith("atomic") else 50
        made.append(
            GroupNodes(
                group(name, 0, 10000, size, zero_or_max=name.startswith("atomic")),
                tuple(f"{name}-{number}" for number in range(int(first or 0), int(last))),
            )
        )
    return made


def shown(groups: Sequence[GroupNodes]) -> list[tuple[str, tuple[str, ...]]]:
    return [(entry.group.id, entry.nodes) for entry in groups]


@pytest.mark.parametrize(
    ("in_progress", "empty", "drain", "empty_allowed", "drain_allowed"),
    [
        ((0, 0), "", "", "", ""),
        ((0, 0), "ng:10", "", "ng:10", ""),
        ((0, 0), "ng:11", "", "ng:10", ""),
        ((0, 0), "atomic11:11", "", "atomic11:11", ""),
        ((0, 0), "ng:8 atomic3:3", "", "atomic3:3 ng:7", ""),
        ((0, 0), "ng:3 atomic8:8 atomic3:3", "", "atomic8:8 ng:2", ""),
        ((1, 1), "ng:8", "", "ng:8", ""),
        ((1, 1), "ng:10", "", "ng:8", ""),
        ((3, 3), "atomic8:8", "", "atomic8:8", ""),
        ((5, 5), "ng:10", "", "", ""),
        ((5, 5), "atomic3:3", "", "", ""),
        ((50, 50), "ng:10", "", "", ""),
        ((50, 50), "atomic3:3", "", "", ""),
        ((0, 0), "", "ng:5", "", "ng:5"),
        ((0, 0), "", "ng:5 other:5", "", "ng:5"),
        ((0, 0), "", "ng:6", "", "ng:5"),
        ((0, 0), "", "atomic8:8", "", "atomic8:8"),
        ((0, 0), "", "ng:3 atomic3:3", "", "atomic3:3 ng:2"),
        ((0, 0), "", "ng:3 atomic3:3 atomic4:4", "", "atomic3:3 ng:2"),
        ((1, 2), "", "ng:3", "", "ng:3"),
        ((1, 2), "", "ng:5", "", "ng:3"),
        ((1, 2), "", "atomic4:4", "", "atomic4:4"),
        ((1, 5), "", "ng:5", "", ""),
        ((1, 5), "", "atomic4:4", "", ""),
        ((1, 50), "", "ng:5", "", ""),
        ((7, 1), "", "ng:4", "", "ng:2"),
        ((10, 0), "", "ng:4", "", ""),
        ((50, 0), "", "ng:4", "", ""),
        ((0, 0), "ng:5", "other:5", "ng:5", "other:5"),
        ((0, 0), "atomic3:3", "atomic4:4", "atomic3:3", "atomic4:4"),
        ((0, 0), "ng:8", "other:8", "ng:8", "other:2"),
        ((0, 0), "atomic8:8", "atomic4:4", "atomic8:8", ""),
        ((0, 0), "atomic8:5", "atomic8:5-8", "atomic8:5", "atomic8:5-8"),
        ((0, 0), "atomic11:8", "atomic11:8-11", "atomic11:8", "atomic11:8-11"),
        ((0, 0), "atomic8:2", "atomic8:2-8", "atomic8:2", "atomic8:2-8"),
        ((0, 0), "atomic4:4", "atomic8:8", "atomic4:4", ""),
        ((0, 0), "ng:5 atomic3:3", "atomic8:8", "atomic3:3 ng:5", ""),
        ((0, 0), "ng:5 atomic11:8", "atomic11:8-11", "atomic11:8", "atomic11:8-11"),
        ((0, 0), "ng:5 atomic8:5 atomic11:8", "atomic11:8-11 atomic8:5-8", "atomic8:5 ng:2", "atomic8:5-8"),
        ((0, 0), "atomic3:3 atomic4:2 atomic11:11", "atomic4:2-4", "atomic3:3 atomic4:2", "atomic4:2-4"),
        ((0, 0), "ng:5", "atomic8:8", "ng:2", "atomic8:8"),
        ((0, 0), "ng:2", "other:8", "ng:2", "other:5"),
        ((10, 0), "ng:5", "other:5", "", ""),
        ((10, 0), "atomic4:4", "atomic3:3", "", ""),
        ((10, 0), "atomic8:4", "atomic8:4-8", "", ""),
        ((50, 0), "ng:5", "other:5", "", ""),
        ((0, 5), "ng:5", "other:5", "ng:5", ""),
        ((0, 5), "atomic4:4", "atomic3:3", "atomic4:4", ""),
        ((0, 9), "ng:5", "other:5", "ng:1", ""),
        ((5, 3), "ng:5", "other:2", "ng:2", ""),
        ((5, 3), "ng:1", "other:2", "ng:1", "other:1"),
        ((1, 3), "ng:4", "other:5", "ng:4", "other:2"),
        ((5, 2), "atomic4:4", "atomic3:3", "atomic4:4", ""),
        ((5, 2), "atomic3:2", "atomic3:2-3", "atomic3:2", "atomic3:2-3"),
        ((5, 2), "atomic8:6", "atomic8:6-8", "atomic8:6", "atomic8:6-8"),
        ((2, 2), "atomic5:1", "atomic5:1-5", "atomic5:1", "atomic5:1-5"),
        ((5, 2), "ng:4 atomic4:4", "other:4 atomic3:3", "atomic4:4", ""),
        ((5, 2), "ng:4 atomic4:2", "other:4 atomic4:2-4", "atomic4:2", "atomic4:2-4"),
        ((2, 2), "ng:4 atomic4:2", "other:4 atomic4:2-4", "atomic4:2 ng:2", "atomic4:2-4"),
    ],
)
def test_deletion_budgets(
    in_progress: tuple[int, int], empty: str, drain: str, empty_allowed: str, drain_allowed: str
) -> None:
    allowed = crop(
        nodes(empty),
        nodes(drain),
        empty_in_progress=in_progress[0],
        drain_in_progress=in_progress[1],
        max_parallelism=10,
        max_drain_parallelism=5,
    )
    assert shown(allowed.empty) == shown(nodes(empty_allowed))
    assert shown(allowed.drain) == shown(nodes(drain_allowed))
