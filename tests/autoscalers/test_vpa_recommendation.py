"""From samples to a recommendation: the amounts that VPA 1.8 computes, and the form it writes them in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.autoscalers.vpa import checkpoints
from dovetail.autoscalers.vpa.api import Pod, VerticalPodAutoscaler
from dovetail.autoscalers.vpa.estimators import EstimatorSettings, confidence, pod_estimates
from dovetail.autoscalers.vpa.histogram import CheckpointError
from dovetail.autoscalers.vpa.model import NO_PODS_MATCHED, RECOMMENDATION_PROVIDED, Model
from dovetail.autoscalers.vpa.out_of_memory import evictions, kills
from dovetail.autoscalers.vpa.recommendation import (
    FormatSettings,
    Recommendation,
    humanized,
    pod_recommendation,
    rounded_up,
    targets_text,
)
from dovetail.autoscalers.vpa.usage import DAY_S, Aggregation, AggregationSettings, ContainerUsage
from dovetail.model.quantity import parse
from dovetail.model.selector import parse_labels
from tests.autoscalers.vpa_objects import container, pod, vpa

START_S = 1_767_225_600.0
MIB = 1024 * 1024


def used(minutes: int, millicores: int = 500, memory: int = 400_000) -> Aggregation:
    """A container that was measured once a minute for so many minutes."""
    usage = ContainerUsage(Aggregation())
    for minute in range(minutes + 1):
        usage.add_cpu(millicores, START_S + 60 * minute)
        usage.add_memory(memory, START_S + 60 * minute)
    return usage.aggregation


def shown(usage: Aggregation, containers: int = 1, **settings: Any) -> dict[str, dict[str, str]]:
    """Target, bounds and uncapped target of one of so many containers alike."""
    names = [f"c{number}" for number in range(containers)]
    estimates = pod_estimates(dict.fromkeys(names, usage), EstimatorSettings(), {})
    item = pod_recommendation(estimates, None, {}, FormatSettings(**settings)).container_recommendations[0]
    return {
        "target": dict(item.target or {}),
        "lower": dict(item.lower_bound or {}),
        "upper": dict(item.upper_bound or {}),
        "uncapped": dict(item.uncapped_target or {}),
    }


def test_the_hamster_gets_587m_and_250mi() -> None:
    """Half a core lies in the bucket that ends at 511m; 15 % more are 587m. Little memory gives the pod's minimum."""
    item = shown(used(minutes=31))
    assert item["target"] == item["uncapped"] == {"cpu": "587m", "memory": "250Mi"}
    assert item["lower"] == {"cpu": "536m", "memory": "250Mi"}
    assert item["upper"] == {"cpu": "27854m", "memory": "545693548"}


def test_without_samples_all_is_the_minimum() -> None:
    item = shown(Aggregation())
    assert item["target"] == item["lower"] == item["upper"] == {"cpu": "25m", "memory": "250Mi"}


def test_one_sample_gives_no_confidence() -> None:
    item = shown(used(minutes=0))
    assert item["lower"] == {"cpu": "25m", "memory": "250Mi"}
    assert item["upper"] == {"cpu": "100G", "memory": "97656250000Ki"}


def test_a_checkpoint_without_its_first_sample_has_the_confidence_of_its_count() -> None:
    usage = used(31)
    usage.first_sample_s = None
    assert confidence(usage, DAY_S) == usage.samples / 1440
    assert confidence(Aggregation(), DAY_S) == 0


def test_containers_share_the_minimum_of_their_pod() -> None:
    assert shown(Aggregation(), containers=2)["target"] == {"cpu": "12m", "memory": "125Mi"}
    assert shown(Aggregation(), containers=3)["target"] == {"cpu": "8m", "memory": "87381333"}


def test_rounding_is_upwards() -> None:
    item = shown(used(31), round_cpu_millicores=50, round_memory_bytes=64 * MIB)
    assert item["target"] == {"cpu": "600m", "memory": "256Mi"}
    assert rounded_up(7, 0) == 7
    assert rounded_up(7, -1) == 7
    assert humanized(262144000) == "250.00Mi"
    assert humanized(1000) == "1000"


def test_without_a_controlled_resource_only_the_empty_target_stands() -> None:
    item = recommendation_of(vpa(policies=[{"containerName": "app", "controlledResources": []}]))[0]
    assert msgspec.to_builtins(item) == {"containerName": "app", "target": {}}


@pytest.mark.parametrize(
    ("policy", "target", "lower"),
    [
        ({"maxAllowed": {"cpu": "300m"}}, {"cpu": "300m", "memory": "250Mi"}, {"cpu": "300m", "memory": "250Mi"}),
        ({"minAllowed": {"memory": "2Gi"}}, {"cpu": "587m", "memory": "2Gi"}, {"cpu": "536m", "memory": "2Gi"}),
        ({"minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}}, {"cpu": "1", "memory": "250Mi"}, None),
        ({"minAllowed": {"cpu": "0"}, "maxAllowed": {"cpu": "0"}}, {"cpu": "587m", "memory": "250Mi"}, None),
        ({"controlledResources": ["memory"]}, {"memory": "250Mi"}, {"memory": "250Mi"}),
        ({"containerName": "*", "maxAllowed": {"cpu": "400m"}}, {"cpu": "400m", "memory": "250Mi"}, None),
    ],
)
def test_policies_cap_in_their_own_notation(policy: Any, target: dict[str, str], lower: dict[str, str] | None) -> None:
    item = recommendation_of(vpa(policies=[{"containerName": "app", **policy}]))[0]
    assert item.target == target
    assert lower is None or item.lower_bound == lower
    if "cpu" in target:
        assert item.uncapped_target == {"cpu": "587m", "memory": "250Mi"}


def test_a_global_maximum_holds_where_the_policy_has_none() -> None:
    formats = FormatSettings(max_allowed={"cpu": "100m", "memory": "1Gi"})
    (item,) = recommendation_of(vpa(policies=[{"containerName": "app", "maxAllowed": {"cpu": "200m"}}]), formats)
    assert item.target == {"cpu": "200m", "memory": "250Mi"}


def test_the_log_of_an_accepted_pod_has_targets_in_kilobytes_and_millicores() -> None:
    target = {"cpu": parse("587m"), "memory": parse("250Mi")}
    uncapped = {"cpu": parse("900m"), "memory": parse("250Mi")}
    items = [Recommendation(container="hamster", target=target, uncapped=uncapped), Recommendation(container="side")]
    assert targets_text(items) == "hamster: target: 262144k 587m; uncappedTarget: 262144k 587m;side: "
    partly = Recommendation(container="c", target={"memory": parse("2k")}, uncapped={"cpu": parse("1")})
    assert targets_text([partly]) == "c: target: 2k uncappedTarget: 0m;"


def test_whole_cores_for_containers_that_ask_for_it() -> None:
    asking = vpa()
    asking = type(asking)(
        metadata=type(asking.metadata)(
            name="web-vpa",
            namespace="shop",
            annotations={"vpa-post-processor.kubernetes.io/app_integerCPU": "true"},
        ),
        spec=asking.spec,
    )
    (item,) = recommendation_of(asking, FormatSettings(integer_cpu=True))
    assert item.target == {"cpu": "1", "memory": "250Mi"}
    assert item.uncapped_target == {"cpu": "1", "memory": "250Mi"}
    (item,) = recommendation_of(asking)
    assert item.target == {"cpu": "587m", "memory": "250Mi"}


def test_a_container_in_mode_off_has_no_recommendation_and_no_share_of_the_minimum() -> None:
    items = recommendation_of(
        vpa(policies=[{"containerName": "side", "mode": "Off"}]), containers=("app", "side"), minutes=0
    )
    assert [item.container_name for item in items] == ["app"]
    assert items[0].target == {"cpu": "587m", "memory": "250Mi"}


def recommendation_of(
    asked: VerticalPodAutoscaler,
    formats: FormatSettings | None = None,
    containers: tuple[str, ...] = ("app",),
    minutes: int = 31,
) -> tuple[Any, ...]:
    """What a VPA recommends for a pod of which each container uses half a core."""
    model = Model(formats=formats)
    state = model.put_vpa(asked, parse_labels("app=web"), "app=web")
    model.put_pod(pod(*(container(name) for name in containers)), START_S)
    for name in containers:
        usage = model.container("shop/web-0", name, START_S)
        assert usage is not None
        for minute in range(minutes + 1):
            usage.add_cpu(500, START_S + 60 * minute)
    return model.recommend(state, START_S).container_recommendations


def test_cpu_samples_count_once_and_in_order() -> None:
    usage = ContainerUsage(Aggregation())
    assert usage.add_cpu(100, START_S)
    assert not usage.add_cpu(100, START_S)
    assert not usage.add_cpu(100, START_S - 60)
    assert not usage.add_cpu(-1, START_S + 60)
    assert usage.aggregation.samples == 1


def test_only_the_peak_of_an_interval_counts() -> None:
    usage = ContainerUsage(Aggregation())
    for minute, memory in enumerate((100 * MIB, 300 * MIB, 200 * MIB)):
        usage.add_memory(memory, START_S + 60 * minute)
    assert usage.peak == 300 * MIB
    assert usage.window_end_s == START_S + DAY_S
    assert usage.aggregation.memory.percentile(0.1) > 300 * MIB
    assert len([weight for weight in usage.aggregation.memory.weights.values() if weight]) == 1
    usage.add_memory(100 * MIB, START_S + 2.5 * DAY_S)
    assert usage.window_end_s == START_S + 3 * DAY_S
    assert usage.peak == 100 * MIB


def test_an_oom_kill_counts_as_more_than_was_asked_for() -> None:
    usage = ContainerUsage(Aggregation())
    usage.add_memory(290 * MIB, START_S)
    assert usage.record_oom(START_S + 60, 300 * MIB)
    assert usage.oom_peak == 400 * MIB
    assert usage.record_oom(START_S + 120, 300 * MIB)  # not from the first one's peak
    assert usage.oom_peak == 400 * MIB
    assert shown(usage.aggregation)["target"]["memory"] == "511772986"
    assert not usage.record_oom(START_S - DAY_S, 900 * MIB)  # older than an interval before the last sample


def test_large_containers_grow_by_a_fifth_after_a_kill() -> None:
    usage = ContainerUsage(Aggregation())
    assert usage.record_oom(START_S, 1000 * MIB)
    assert usage.oom_peak == 1200 * MIB


def test_policies_change_the_bump_only_with_the_gate() -> None:
    policy = vpa(policies=[{"containerName": "app", "oomBumpUpRatio": "3", "oomMinBumpUp": "0"}])
    assert policy.spec.resource_policy is not None
    own = policy.spec.resource_policy.container_policies[0]
    gated, plain = Aggregation(AggregationSettings(per_vpa_config=True)), Aggregation()
    gated.take_policy(own)
    plain.take_policy(own)
    assert (gated.oom_bump_up_ratio, gated.oom_min_bump_up_bytes) == (3.0, 0.0)
    assert (plain.oom_bump_up_ratio, plain.oom_min_bump_up_bytes) == (1.2, 100.0 * MIB)


# The model


def test_pods_with_other_labels_join_by_container_name() -> None:
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    model.put_pod(pod(container()), START_S)
    other = pod(container(), name="web-1")
    model.put_pod(relabelled(other, {"app": "web", "version": "2"}), START_S)
    model.put_pod(relabelled(pod(container(), name="db-0"), {"app": "db"}), START_S)
    assert len(model.aggregations) == 3
    assert len(state.aggregations) == 2
    assert list(state.merged(model.settings, START_S)) == ["app"]
    assert model.pod_counts() == {"shop/web-vpa": 2}


def relabelled(item: Pod, labels: dict[str, str]) -> Pod:
    metadata = type(item.metadata)(name=item.metadata.name, namespace="shop", labels=labels)
    return Pod(metadata=metadata, spec=item.spec, status=item.status)


def test_a_pod_with_new_labels_keeps_its_last_samples_and_peak() -> None:
    model = Model()
    model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    model.put_pod(pod(container()), START_S)
    usage = model.container("shop/web-0", "app", START_S)
    assert usage is not None
    usage.add_cpu(100, START_S)
    usage.add_memory(200 * MIB, START_S)
    model.put_pod(relabelled(pod(container()), {"app": "web", "version": "2"}), START_S)
    again = model.container("shop/web-0", "app", START_S)
    assert again is usage
    assert again.aggregation.is_empty
    assert not again.add_cpu(100, START_S)
    assert again.memory_peak == 200 * MIB
    assert model.pod_counts() == {"shop/web-vpa": 1}


def test_another_selector_loses_checkpoints_but_not_live_usage() -> None:
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    state.initial["old"] = Aggregation()
    model.put_pod(pod(container()), START_S)
    again = model.put_vpa(vpa(), parse_labels("app in (web,shop)"), "app in (web,shop)")
    assert again is not state
    assert again.initial == {}
    assert len(again.aggregations) == 1


def test_garbage_is_what_nothing_feeds_and_what_is_old() -> None:
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    model.put_pod(pod(container()), START_S)
    assert model.collect_garbage(START_S, set()) == []
    model.remove_pods_except([])
    assert len(model.collect_garbage(START_S, set())) == 1
    assert state.aggregations == {}
    model.put_pod(pod(container()), START_S)
    usage = model.container("shop/web-0", "app", START_S)
    assert usage is not None
    usage.add_cpu(100, START_S)
    assert model.collect_garbage(START_S + 8 * DAY_S - 1, set()) == []
    assert len(model.collect_garbage(START_S + 8 * DAY_S, set())) == 1
    usage = model.usage("shop/web-0", "app")
    assert usage is not None and not usage.takes_cpu(100, START_S)
    assert not model.aggregations, "a sample that does not count brings nothing back"
    usage = model.container("shop/web-0", "app", START_S)
    assert usage is not None
    assert usage.add_cpu(100, START_S + 9 * DAY_S)
    assert len(state.aggregations) == 1


def test_conditions_change_their_time_with_their_status_only() -> None:
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    state.update_conditions(False, first)
    state.update_conditions(False, later)
    provided = state.conditions[RECOMMENDATION_PROVIDED]
    assert (provided.status, provided.reason, provided.last_transition_time) == ("False", NO_PODS_MATCHED, first)
    assert state.conditions[NO_PODS_MATCHED].message == "No pods match this VPA object"
    state.recommendation = model.recommend(state, START_S)
    model.put_pod(pod(container()), START_S)
    state.recommendation = model.recommend(state, START_S)
    state.update_conditions(True, later)
    assert NO_PODS_MATCHED not in state.conditions
    assert state.conditions[RECOMMENDATION_PROVIDED].last_transition_time == later


# Checkpoints


def test_a_checkpoint_has_the_fields_and_the_version_of_upstream() -> None:
    status = checkpoints.saved(used(10), datetime(2026, 1, 2, tzinfo=UTC))
    assert status["version"] == "v3"
    assert status["totalSamplesCount"] == 11
    assert status["firstSampleStart"] == "2026-01-01T00:00:00Z"
    assert status["lastSampleStart"] == "2026-01-01T00:10:00Z"
    assert status["cpuHistogram"]["bucketWeights"] == {"25": 10000}
    assert status["cpuHistogram"]["referenceTimestamp"] == "2026-01-01T00:00:00Z"
    empty = checkpoints.saved(Aggregation(), datetime(2026, 1, 2, tzinfo=UTC))
    assert empty["cpuHistogram"] == {"referenceTimestamp": None}
    assert "totalSamplesCount" not in empty


def test_the_peak_of_an_unfinished_interval_is_not_saved() -> None:
    model = Model()
    state = model.put_vpa(vpa(), parse_labels("app=web"), "app=web")
    model.put_pod(pod(container()), START_S)
    usage = model.container("shop/web-0", "app", START_S)
    assert usage is not None
    usage.add_memory(300 * MIB, START_S)
    model.begin_checkpoints()
    assert model.checkpointed(state, START_S + 60)["app"].memory.is_empty
    assert not model.checkpointed(state, START_S + DAY_S)["app"].memory.is_empty
    assert not usage.aggregation.memory.is_empty


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v2"},
        {"cpuHistogram": {"bucketWeights": {"999": 1}, "totalWeight": 1}},
        {"cpuHistogram": {"bucketWeights": {"-1": 1}, "totalWeight": 1}},
        {"cpuHistogram": {"bucketWeights": {"one": 1}, "totalWeight": 1}},
        {"memoryHistogram": {"bucketWeights": {"1": 1}, "totalWeight": -1}},
        {"memoryHistogram": "none"},
        {"totalSamplesCount": -5},
        {"firstSampleStart": "yesterday"},
    ],
)
def test_a_corrupt_checkpoint_is_refused(change: dict[str, Any]) -> None:
    status = checkpoints.saved(used(10), datetime(2026, 1, 2, tzinfo=UTC))
    with pytest.raises(CheckpointError):
        checkpoints.loaded({**status, **change}, AggregationSettings(), START_S)


@given(st.lists(st.tuples(st.integers(0, 64_000), st.integers(0, 10**11)), min_size=1, max_size=40))
def test_a_checkpoint_keeps_the_distribution(samples: list[tuple[int, int]]) -> None:
    """Weights are rounded to a ten-thousandth of the heaviest; all else is kept."""
    usage = ContainerUsage(Aggregation())
    for number, (cpu, memory) in enumerate(samples):
        usage.add_cpu(cpu, START_S + 3600 * number)
        usage.add_memory(memory, START_S + 3600 * number)
    held = usage.aggregation
    again = checkpoints.loaded(
        checkpoints.saved(held, datetime(2026, 2, 1, tzinfo=UTC)), AggregationSettings(), START_S
    )
    assert (again.samples, again.first_sample_s, again.last_sample_s) == (
        held.samples,
        held.first_sample_s,
        held.last_sample_s,
    )
    for mine, loaded in ((held.cpu, again.cpu), (held.memory, again.memory)):
        assert loaded.total == pytest.approx(mine.total)
        rounding = max(mine.weights.values()) * len(mine.weights) / 10_000
        for bucket, weight in mine.weights.items():
            assert loaded.weights.get(bucket, 0.0) == pytest.approx(weight, abs=rounding + 1e-9)


# Out-of-memory kills


def status_of(restarts: int, state: dict[str, Any], last: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": "app", "restartCount": restarts, "state": state, "lastState": last or {}}


KILLED = {
    "terminated": {"reason": "OOMKilled", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
}
RUNNING = {"running": {"startedAt": "2026-01-01T00:02:00Z"}}
WAITING: dict[str, Any] = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        (status_of(0, RUNNING), status_of(0, KILLED), 1),
        (status_of(0, KILLED), status_of(0, KILLED), 0),
        (status_of(0, KILLED), status_of(1, KILLED), 1),
        (status_of(0, RUNNING), status_of(1, RUNNING, KILLED), 1),
        (status_of(0, WAITING), status_of(1, RUNNING, KILLED), 0),
        (status_of(0, RUNNING), status_of(1, RUNNING, {"terminated": {"reason": "Error"}}), 0),
    ],
)
def test_kills_are_seen_once(before: dict[str, Any], after: dict[str, Any], count: int) -> None:
    old = pod(container(requests={"memory": "300Mi"}), containerStatuses=[before])
    new = pod(container(requests={"memory": "500Mi"}), containerStatuses=[after])
    seen = kills(old, new)
    assert len(seen) == count
    if seen:
        assert seen[0].memory_bytes == (500 if after["state"] is KILLED else 300) * MIB
        assert seen[0].time_s == datetime(2026, 1, 1, 0, 1, tzinfo=UTC).timestamp()


def test_evictions_for_memory_name_the_containers() -> None:
    event: dict[str, Any] = {
        "reason": "Evicted",
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"},
        "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {
                "offending_containers": "app,side",
                "offending_containers_usage": "1Gi,1Mi",
                "starved_resource": "memory,ephemeral-storage",
            },
        },
    }
    (seen,) = evictions(event)
    assert (seen.container, seen.memory_bytes) == ("app", 1024 * MIB)
    event["metadata"]["annotations"]["starved_resource"] = "memory"
    assert evictions(event) == []
    assert evictions({**event, "reason": "Killing"}) == []
