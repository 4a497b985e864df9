"""Which pods the updater touches: priorities, requirements, and how many of a group at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.autoscalers.vpa.api import EvictionRequirement
from dovetail.autoscalers.vpa.disruption import (
    DisruptionGroups,
    DisruptionSettings,
    GroupKey,
    TooFewReplicas,
    UnknownSize,
    asks_less,
    group_pods,
    in_place_decision,
    may_evict,
    resize_status,
)
from dovetail.autoscalers.vpa.priority import (
    UpdateThresholds,
    is_quick_oom,
    meets_requirements,
    update_priority,
    verdict,
)
from dovetail.autoscalers.vpa.recommendation import recommendations
from tests.autoscalers.vpa_objects import container, pod, recommended, vpa

NOW = datetime(2026, 1, 2, tzinfo=UTC)
KEY = GroupKey("shop", "ReplicaSet", "web")


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# Priority


def test_the_change_is_relative_to_requests_and_adds_up() -> None:
    items = recommendations(vpa(recommended(target={"cpu": "4", "memory": "20M"})).status.recommendation)
    priority = update_priority(pod(container(requests={"cpu": "2", "memory": "10M"})), items)
    assert priority.resource_diff == pytest.approx(2.0)
    assert priority.scale_up
    assert not priority.outside_range


def test_a_missing_request_counts_as_outside_the_range() -> None:
    items = recommendations(vpa(recommended(target={"cpu": "100m"})).status.recommendation)
    priority = update_priority(pod(container()), items)
    assert (priority.outside_range, priority.scale_up) == (True, True)


@pytest.mark.parametrize(("observed", "diff"), [("app", 1.0), ("", 0.0), ("side", 0.0), (None, 1.0), ("app,side", 1.0)])
def test_only_observed_containers_count(observed: str | None, diff: float) -> None:
    """An empty list observes none; one that cannot be read is as none at all."""
    items = recommendations(vpa(recommended(target={"cpu": "2"})).status.recommendation)
    annotations = None if observed is None else {"vpaObservedContainers": observed}
    assert update_priority(pod(container(requests={"cpu": "1"}), annotations=annotations), items).resource_diff == diff


def test_pods_that_grow_come_before_larger_changes() -> None:
    items = recommendations(vpa(recommended(target={"cpu": "1"})).status.recommendation)
    growing = update_priority(pod(container(requests={"cpu": "900m"})), items)
    shrinking = update_priority(pod(container(requests={"cpu": "10"})), items)
    assert growing.rank > shrinking.rank


@pytest.mark.parametrize(
    ("request_", "age", "reason"),
    [
        ("50m", timedelta(minutes=1), "Accepted"),
        ("100m", timedelta(hours=11), "WithinRangeAndShortLived"),
        ("100m", timedelta(hours=12), "Accepted"),
        ("145m", timedelta(hours=12), "ResourceDiffTooLow"),
        ("100m", None, "MissingStartTime"),
    ],
)
def test_an_update_is_due_outside_the_range_or_after_a_while(request_: str, age: timedelta | None, reason: str) -> None:
    asked = vpa(recommended(target={"cpu": "150m"}, lower={"cpu": "90m"}, upper={"cpu": "200m"}))
    started: dict[str, Any] = {} if age is None else {"startTime": stamp(NOW - age)}
    of = pod(container(requests={"cpu": request_}), **started)
    judged = verdict(of, asked, recommendations(asked.status.recommendation), NOW, UpdateThresholds())
    assert judged.reason == reason
    assert judged.accepted == (reason == "Accepted")


def killed(lived: timedelta, ago: timedelta) -> list[dict[str, Any]]:
    end = {"reason": "OOMKilled", "startedAt": stamp(NOW - ago - lived), "finishedAt": stamp(NOW - ago)}
    return [{"name": "app", "lastState": {"terminated": end}}]


@pytest.mark.parametrize(
    ("lived", "ago", "quick"),
    [
        (timedelta(minutes=1), timedelta(minutes=1), True),
        (timedelta(minutes=11), timedelta(minutes=1), False),
        (timedelta(minutes=1), timedelta(minutes=11), False),
    ],
)
def test_a_quick_kill_was_soon_after_the_start_and_not_long_ago(lived: timedelta, ago: timedelta, quick: bool) -> None:
    of = pod(container(), containerStatuses=killed(lived, ago))
    assert is_quick_oom(of, vpa(), NOW, UpdateThresholds()) == quick
    off = vpa(policies=[{"containerName": "app", "mode": "Off"}])
    assert not is_quick_oom(of, off, NOW, UpdateThresholds())


def test_a_vpa_may_set_its_own_threshold_with_the_gate() -> None:
    of = pod(container(), containerStatuses=killed(timedelta(minutes=1), timedelta(seconds=1)))
    asked = vpa(updatePolicy={"updateMode": "Recreate", "evictAfterOOMSeconds": 30})
    assert is_quick_oom(of, asked, NOW, UpdateThresholds())
    assert not is_quick_oom(of, asked, NOW, UpdateThresholds(per_vpa_config=True))


def test_a_quick_kill_without_a_change_to_make_is_no_reason() -> None:
    asked = vpa(recommended(target={"cpu": "100m"}))
    statuses = killed(timedelta(minutes=1), timedelta(minutes=1))
    of = pod(container(requests={"cpu": "100m"}), startTime=stamp(NOW), containerStatuses=statuses)
    judged = verdict(of, asked, recommendations(asked.status.recommendation), NOW, UpdateThresholds())
    assert judged.reason == "ResourceWouldNotChange"


HIGHER, LOWER = "TargetHigherThanRequests", "TargetLowerThanRequests"


@pytest.mark.parametrize(
    ("requests", "requirements", "admitted"),
    [
        ({"cpu": "1", "memory": "1Gi"}, None, True),
        ({"cpu": "1", "memory": "1Gi"}, [(["cpu"], HIGHER)], True),
        ({"cpu": "1", "memory": "1Gi"}, [(["memory"], HIGHER)], False),
        ({"cpu": "1", "memory": "1Gi"}, [(["cpu", "memory"], HIGHER)], True),
        ({"cpu": "1", "memory": "1Gi"}, [(["cpu"], HIGHER), (["memory"], LOWER)], True),
        ({"cpu": "1", "memory": "1Gi"}, [(["cpu"], LOWER), (["memory"], LOWER)], False),
        ({"cpu": "1"}, [(["memory"], HIGHER)], True),
    ],
)
def test_all_requirements_hold_for_one_container(requests: Any, requirements: Any, admitted: bool) -> None:
    items = recommendations(vpa(recommended(target={"cpu": "2", "memory": "500Mi"})).status.recommendation)
    asked = (
        None
        if requirements is None
        else [EvictionRequirement(resources=tuple(names), change_requirement=change) for names, change in requirements]
    )
    assert meets_requirements(pod(container(requests=requests)), items, asked) == admitted


def test_a_pod_without_any_recommendation_meets_no_requirement() -> None:
    assert not meets_requirements(pod(container(requests={"cpu": "1", "memory": "1"})), [], [])


# Groups


def grouped(
    live: int, configured: int | None, *, pending: int = 0, asked: Any = None, kind: str = "ReplicaSet", **settings: Any
) -> tuple[DisruptionGroups, list[Any]]:
    pods = [
        pod(container(), name=f"web-{n}", owner=(kind, "web"), phase="Pending" if n < pending else "Running")
        for n in range(live)
    ]
    key = GroupKey("shop", kind, "web")
    return group_pods(pods, asked or vpa(), {key: configured}, DisruptionSettings(**settings)), pods


def evicted_in_a_loop(groups: DisruptionGroups, pods: list[Any]) -> int:
    count = 0
    for item in pods:
        if may_evict(item, groups):
            groups.of_pod[item.metadata.key].evicted += 1
            count += 1
    return count


@pytest.mark.parametrize(
    ("live", "configured", "tolerance", "evictions"),
    [
        (2, 2, 0.5, 1),
        (3, 3, 0.5, 1),
        (4, 4, 0.5, 2),
        (6, 6, 0.5, 3),
        (5, 5, 0.8, 4),
        (4, 4, 0.0, 1),
        (3, 4, 0.5, 1),
        (3, 4, 0.1, 0),
        (2, 4, 0.5, 0),
        (10, 10, 1.0, 10),
        (5, 4, 0.0, 1),
    ],
)
def test_so_many_pods_of_a_group_go_in_one_loop(live: int, configured: int, tolerance: float, evictions: int) -> None:
    groups, pods = grouped(live, configured, tolerance_fraction=tolerance)
    assert evicted_in_a_loop(groups, pods) == evictions


def test_pending_pods_may_always_go_and_are_not_alive() -> None:
    groups, pods = grouped(4, 4, pending=2)
    assert [may_evict(item, groups) for item in pods] == [True, True, False, False]


def test_small_groups_are_left_alone_unless_their_vpa_says_otherwise() -> None:
    groups, pods = grouped(1, 1)
    assert groups.skipped == [TooFewReplicas(KEY, 1, 2)]
    assert not may_evict(pods[0], groups)
    one = vpa(updatePolicy={"updateMode": "Recreate", "minReplicas": 1})
    groups, pods = grouped(1, 1, asked=one)
    assert evicted_in_a_loop(groups, pods) == 1


def test_with_the_skip_flag_a_small_group_is_resized_but_not_evicted() -> None:
    asked = vpa(recommended(target={"cpu": "1"}), mode="InPlaceOrRecreate")
    groups, pods = grouped(1, 1, asked=asked, in_place_skips_budget=True)
    settings = DisruptionSettings(in_place_skips_budget=True)
    assert not may_evict(pods[0], groups)
    assert in_place_decision(pods[0], asked, groups, settings) == "Approved"


def test_a_group_of_unknown_size_is_left_alone() -> None:
    groups, pods = grouped(3, None)
    assert groups.skipped == [UnknownSize(KEY, 3)]
    assert evicted_in_a_loop(groups, pods) == 0


def test_the_size_of_a_job_is_its_live_pods() -> None:
    groups, pods = grouped(4, None, kind="Job")
    assert evicted_in_a_loop(groups, pods) == 2


def test_pods_without_a_controller_belong_to_no_group() -> None:
    lone = pod(container(), owner=None, phase="Running")
    groups = group_pods([lone], vpa(), {}, DisruptionSettings())
    assert not may_evict(lone, groups)


# In place


def resizing(kind: str, reason: str = "", message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "reason": reason, "message": message}]


@pytest.mark.parametrize(
    ("conditions", "seconds", "status", "in_place", "or_recreate"),
    [
        (resizing("PodResizePending", "Deferred"), 300, "Deferred", "Deferred", "Deferred"),
        (resizing("PodResizePending", "Deferred"), 301, "Deferred", "Deferred", "Evict"),
        (resizing("PodResizePending", "Infeasible"), 0, "Infeasible", "Infeasible", "Evict"),
        (resizing("PodResizePending", "Other"), 0, "Unknown", "Deferred", "Evict"),
        (resizing("PodResizeInProgress"), 3600, "InProgress", "Deferred", "Deferred"),
        (resizing("PodResizeInProgress"), 3601, "InProgress", "Deferred", "Evict"),
        (resizing("PodResizeInProgress", "Error", "no"), 0, "Error", "Deferred", "Evict"),
        ([], 0, "None", "Approved", "Approved"),
    ],
)
def test_what_becomes_of_a_pod_being_resized(
    conditions: Any, seconds: int, status: str, in_place: str, or_recreate: str
) -> None:
    for mode, expected in (("InPlace", in_place), ("InPlaceOrRecreate", or_recreate)):
        asked = vpa(recommended(target={"cpu": "1"}), mode=mode)
        pods = [
            pod(container(), name=f"web-{n}", phase="Running", conditions=conditions if n == 0 else [])
            for n in range(3)
        ]
        groups = group_pods(pods, asked, {KEY: 3}, DisruptionSettings())
        assert resize_status(pods[0]) == status
        decision = in_place_decision(
            pods[0], asked, groups, DisruptionSettings(), resizing_for_s=seconds, in_place_gate=True
        )
        assert decision == expected


def test_a_resize_that_did_not_fit_waits_for_a_lower_target() -> None:
    asked = vpa(recommended(target={"cpu": "2", "memory": "1Gi"}), mode="InPlace")
    groups, pods = grouped(3, 3, asked=asked)
    tried = asked.status.recommendation
    assert tried is not None

    def decision(infeasible: Any) -> str:
        return in_place_decision(
            pods[0], asked, groups, DisruptionSettings(), infeasible=infeasible, in_place_gate=True
        )

    assert decision(tried) == "InfeasibleCached"
    larger = vpa(recommended(target={"cpu": "3", "memory": "1Gi"})).status.recommendation
    assert larger is not None
    assert decision(larger) == "Approved"
    assert asks_less(recommendations(tried), larger)
    assert not asks_less(recommendations(larger), tried)


def test_resizes_count_as_disruptions() -> None:
    asked = vpa(recommended(target={"cpu": "1"}), mode="InPlaceOrRecreate")
    groups, pods = grouped(3, 3, asked=asked)
    decisions = []
    for item in pods:
        decisions.append(in_place_decision(item, asked, groups, DisruptionSettings()))
        if decisions[-1] == "Approved":
            groups.of_pod[item.metadata.key].resized += 1
    assert decisions == ["Approved", "Deferred", "Deferred"]
