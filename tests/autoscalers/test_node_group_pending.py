"""Which pods are a reason to grow, row by row: how they are found, left out, and waited for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.autoscalers.node_groups import pending
from dovetail.model.meta import Condition
from dovetail.model.pods import Pod
from tests.autoscalers.node_group_objects import NOW, pod

GPU = {"nvidia.com/gpu": "1"}
DELAY = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"


def unscheduled(
    name: str, *, status: str = "False", reason: str = "Unschedulable", nominated: str = "", **fields: Any
) -> Pod:
    made = pod(name, **fields)
    scheduled = Condition(type="PodScheduled", status=status, reason=reason, last_transition_time=NOW)
    return replace(made, status=replace(made.status, conditions=(scheduled,), nominated_node_name=nominated))


@pytest.mark.parametrize(
    ("candidate", "counts"),
    [
        (unscheduled("refused"), True),
        (unscheduled("gated", reason="SchedulingGated"), False),
        (unscheduled("scheduled", status="True", reason=""), False),
        (pod("unseen"), False),
        (unscheduled("nominated", nominated="n"), False),
        (unscheduled("bound", on="n"), False),
        (unscheduled("ending", deleted=NOW), False),
        (unscheduled("ended", phase="Failed"), False),
    ],
)
def test_which_pods_are_unschedulable(candidate: Pod, counts: bool) -> None:
    assert pending.is_unschedulable(candidate) is counts


@pytest.mark.parametrize(("age_s", "recent"), [(0.0, True), (10.0, True), (10.5, False)])
def test_a_pod_that_was_refused_a_moment_ago_starts_a_loop(age_s: float, recent: bool) -> None:
    assert pending.is_recent(unscheduled("p"), NOW + timedelta(seconds=age_s)) is recent
    assert not pending.is_recent(pod("unseen"), NOW)


def test_pods_of_a_bypassed_scheduler_count_before_it_has_looked_at_them() -> None:
    own = {"schedulerName": "own"}
    assert pending.is_unprocessed(pod("p", spec=own), frozenset({"own"}))
    assert not pending.is_unprocessed(pod("p", spec=own), frozenset())
    assert not pending.is_unprocessed(unscheduled("p", spec=own), frozenset({"own"}))


def test_expendable_pods_and_those_of_daemonsets_are_left_out_and_priorities_come_first() -> None:
    pods = [
        pod("plain"),
        pod("cutoff", spec={"priority": -10}),
        pod("expendable", spec={"priority": -11}),
        pod("urgent", spec={"priority": 1000}),
        pod("daemon", owner="DaemonSet/d"),
        pod("like-daemon", annotations={"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"}),
    ]
    kept = [found.metadata.name for found in pending.schedulable_with_groups(pods, -10)]
    assert kept == ["urgent", "plain", "cutoff"]


@pytest.mark.parametrize(
    ("flag_s", "annotation", "age_s", "counts"),
    [
        (0.0, None, 0, True),
        (60.0, None, 60, False),
        (60.0, None, 61, True),
        (0.0, "90s", 60, False),
        (0.0, "90s", 91, True),
        (60.0, "30s", 45, False),  # the flag is the least
        (60.0, "2m", 100, False),
        (60.0, "soon", 61, True),  # what is no duration asks for nothing
    ],
)
def test_pods_wait_for_the_flag_or_for_their_own_delay(
    flag_s: float, annotation: str | None, age_s: int, counts: bool
) -> None:
    annotations = {} if annotation is None else {DELAY: annotation}
    candidate = pod("p", created=NOW - timedelta(seconds=age_s), annotations=annotations)
    assert pending.old_enough([candidate], flag_s, NOW) == ([candidate] if counts else [])


@pytest.mark.parametrize(
    ("ages_s", "gpu_ages_s", "wait"),
    [
        ((1,), (), True),
        ((1, 1), (), True),
        ((1, 2), (), False),  # one of them is old enough
        ((100,), (29,), True),  # a fresh pod with a GPU holds all back
        ((100,), (30,), False),
        ((100,), (5, 31), False),
        ((), (), False),
    ],
)
def test_more_pods_may_follow_very_young_ones(ages_s: tuple[int, ...], gpu_ages_s: tuple[int, ...], wait: bool) -> None:
    plain = [pod(f"p{age}", created=NOW - timedelta(seconds=age)) for age in ages_s]
    with_gpu = [pod(f"g{age}", created=NOW - timedelta(seconds=age), requests=GPU) for age in gpu_ages_s]
    assert pending.all_new([*plain, *with_gpu], NOW) is wait
