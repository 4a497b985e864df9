"""From use to replicas: the ratio, and the pods that cannot be judged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dovetail.autoscalers.hpa import count
from dovetail.autoscalers.hpa.count import Count, Tolerance
from dovetail.autoscalers.hpa.readings import ContainerUse, MetricSample, NoCount, PodUse, of_pods
from dovetail.autoscalers.hpa.spec import HpaFlags
from dovetail.model.meta import Condition, ObjectMeta
from dovetail.model.pods import Container, Pod, PodSpec, PodStatus, ResourceRequirements

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=1)
NEAR = Tolerance(0.1, 0.1)


def pod(name: str, *, phase: str = "Running", ready: bool = True, since: datetime = OLD, request: str = "1") -> Pod:
    asked = ResourceRequirements(requests={"cpu": request} if request else {})
    conditions = (Condition(type="Ready", status="True" if ready else "False", last_transition_time=since),)
    return Pod(
        metadata=ObjectMeta(name=name),
        spec=PodSpec(containers=(Container(name="c", resources=asked),)),
        status=PodStatus(phase=phase, conditions=conditions, start_time=since),
    )


def utilization(pods: list[Pod], used: dict[str, int], target: int, current: int | None = None) -> Count:
    samples = {name: MetricSample(value, NOW, 15.0) for name, value in used.items()}
    groups = count.group(pods, samples, "cpu", NOW, HpaFlags())
    return count.by_utilization(
        pods,
        samples,
        groups,
        target,
        len(pods) if current is None else current,
        NEAR,
        lambda: count.requests(pods, "cpu"),
    )


def three(*used: int, target: int) -> Count:
    return utilization([pod(str(n)) for n in range(3)], {str(n): value for n, value in enumerate(used)}, target)


def test_the_ratio_of_use_to_target_is_the_ratio_of_replicas() -> None:
    assert three(300, 500, 700, target=30) == Count(5, 500, 50)
    assert three(100, 300, 500, target=50) == Count(2, 300, 30)


def test_within_a_tenth_of_the_target_nothing_changes() -> None:
    assert three(1100, 1100, 1100, target=100).replicas == 3
    assert three(1110, 1110, 1110, target=100).replicas == 4
    assert three(900, 900, 900, target=100).replicas == 3


def test_the_percentage_is_cut_before_it_is_compared() -> None:
    """1109 of 1000 requested is 110 %, not 110.9: still within the tenth."""
    assert three(1109, 1109, 1109, target=100).replicas == 3


def test_pods_that_start_count_as_idle_while_scaling_up() -> None:
    young = [pod("a"), pod("b", since=NOW - timedelta(seconds=5)), pod("c", phase="Pending")]
    assert utilization(young, {"a": 900, "b": 900}, target=30) == Count(3, 900, 90)


def test_pods_that_start_do_not_hold_a_scale_down_back() -> None:
    young = [pod("a"), pod("b"), pod("c", phase="Pending")]
    assert utilization(young, {"a": 100, "b": 100}, target=50).replicas == 1


def test_a_pod_without_metrics_is_busy_when_shrinking_and_idle_when_growing() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert utilization(pods, {"a": 100, "b": 100}, target=50).replicas == 3
    assert utilization(pods, {"a": 900, "b": 900}, target=30) == Count(6, 900, 90)
    assert utilization(pods, {"a": 400, "b": 400}, target=35).replicas == 3


def test_guesses_about_many_pods_do_not_turn_a_preference_to_shrink_into_growth() -> None:
    """A selector may find more pods than the workload has replicas."""
    pods = [pod(name) for name in "abcdef"]
    used = dict.fromkeys("abcde", 100)
    assert utilization(pods, used, target=50, current=2).replicas == 2
    assert utilization(pods, used, target=50, current=6).replicas == 3


def test_failed_and_leaving_pods_do_not_count() -> None:
    gone = Pod(metadata=ObjectMeta(name="c", deletion_timestamp=NOW), spec=pod("c").spec, status=pod("c").status)
    pods = [pod("a"), pod("b", phase="Failed"), gone]
    assert utilization(pods, {"a": 500, "b": 9000, "c": 9000}, target=50, current=1) == Count(1, 500, 50)


def test_a_pod_that_never_became_ready_is_left_out_long_after_its_start() -> None:
    never = pod("b", ready=False, since=OLD)
    assert utilization([pod("a"), never], {"a": 500, "b": 5000}, target=25) == Count(2, 500, 50)


def test_a_condition_without_an_instant_has_always_been_so() -> None:
    """The usual wait for a first full window of metrics is over then."""
    young = pod("a", since=NOW - timedelta(seconds=5))
    timeless = msgspec.structs.replace(young.status, conditions=(Condition(type="Ready", status="True"),))
    samples = {"a": MetricSample(5, NOW, 15.0)}
    assert count.group([young], samples, "cpu", NOW, HpaFlags()).ready == 0
    counted = count.group([msgspec.structs.replace(young, status=timeless)], samples, "cpu", NOW, HpaFlags())
    assert counted.ready == 1


def test_memory_is_counted_whether_pods_are_ready_or_not() -> None:
    samples = {"a": MetricSample(5, NOW, 15.0)}
    young = pod("a", ready=False, since=NOW)
    assert count.group([young], samples, "memory", NOW, HpaFlags()).ready == 1


def test_one_container_without_a_request_spoils_the_percentage() -> None:
    with pytest.raises(NoCount, match="missing request for cpu in container c of Pod b"):
        utilization([pod("a"), pod("b", request="")], {"a": 500, "b": 500}, target=50)


def test_without_any_judged_pod_there_is_no_count() -> None:
    with pytest.raises(NoCount, match="did not receive metrics for targeted pods"):
        utilization([pod("a", since=NOW)], {"a": 500}, target=50)
    with pytest.raises(NoCount, match="no pods returned by selector"):
        utilization([], {}, target=50)


def test_a_pod_with_an_unmeasured_container_has_no_value() -> None:
    halves = (ContainerUse(name="a", usage={"cpu": "1500u"}), ContainerUse(name="b", usage={"memory": "1Mi"}))
    use = PodUse(metadata=ObjectMeta(name="p"), timestamp=NOW, window="15s", containers=halves)
    assert of_pods([use], "cpu") == {}
    assert of_pods([use], "cpu", "a") == {"p": MetricSample(2, NOW, 15.0)}


def test_a_value_from_outside_counts_ready_pods_alone() -> None:
    pods = [pod("a"), pod("b"), pod("c", ready=False)]
    assert count.by_value(20_000, 10_000, 3, NEAR, pods) == Count(4, 20_000)
    assert count.by_value(10_500, 10_000, 3, NEAR, pods) == Count(3, 10_500)
    assert count.by_value(35_000, 10_000, 0, NEAR, []) == Count(4, 35_000)
    assert count.by_value(20_000, 10_000, 2, NEAR, [pod("a"), pod("b", phase="Succeeded")]) == Count(2, 20_000)


def test_a_value_per_pod_is_shared_out() -> None:
    assert count.by_value_per_pod(8_600, 2_150, 3, NEAR) == Count(4, 2_867)
    assert count.by_value_per_pod(6_500, 2_150, 3, NEAR) == Count(3, 2_167)
