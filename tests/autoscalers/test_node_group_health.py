"""Backoff, registration and health of node groups, and what the status says of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.autoscalers.node_groups.backoff import BackoffTimes, GroupBackoff
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState, HealthLimits
from dovetail.autoscalers.node_groups.cooldown import Cooldown, Delays
from dovetail.autoscalers.node_groups.readiness import is_ready
from dovetail.autoscalers.node_groups.recording import event_recorder
from dovetail.autoscalers.node_groups.status import StatusWriter
from dovetail.autoscalers.node_groups.templates import (
    TaintConfig,
)
from dovetail.autoscalers.node_groups.utilization import Utilization
from dovetail.clock import run_virtual
from dovetail.cloud.node_groups import ErrorClass, GroupMember, InstanceError, InstanceState, NodeGroup
from dovetail.kube.events import InvolvedObject
from dovetail.model.meta import Condition
from dovetail.model.nodes import Node
from tests.autoscalers.node_group_objects import NOW, group, node
from tests.kube.scripted import Script, ok

MINUTE = timedelta(minutes=1)
ERROR = InstanceError(ErrorClass.OUT_OF_RESOURCES, "placeholder-cannot-be-fulfilled", "no capacity")


# Backoff


def test_backoff_doubles_only_after_it_has_ended() -> None:
    backoff = GroupBackoff(BackoffTimes(300, 1800, 10800))
    assert backoff.fail("g", ERROR, NOW) == NOW + 5 * MINUTE
    assert backoff.fail("g", ERROR, NOW + 4 * MINUTE) == NOW + 9 * MINUTE
    assert backoff.status("g", NOW + 8 * MINUTE) is not None
    assert backoff.status("g", NOW + 9 * MINUTE) is None
    at = NOW + 10 * MINUTE
    for minutes in (10, 20, 30, 30):
        assert backoff.fail("g", ERROR, at) == at + minutes * MINUTE
        at += (minutes + 1) * MINUTE
    backoff.remove_stale(at + timedelta(hours=3))
    assert backoff.fail("g", ERROR, at + timedelta(hours=4)) == at + timedelta(hours=4) + 5 * MINUTE
    backoff.remove("g")
    assert backoff.status("g", at + timedelta(hours=4)) is None


# Health


def state(**limits: Any) -> GroupClusterState:
    return GroupClusterState(HealthLimits(**limits), GroupBackoff())


def nodes(count: int, prefix: str = "n", **about: Any) -> list[Node]:
    return [node(f"{prefix}{index}", **about) for index in range(count)]


def test_unready_nodes_make_the_cluster_unhealthy() -> None:
    health = state()
    members = [*nodes(3), *nodes(4, "u", ready=False)]
    health.update(members, [group("g", 0, 10, 7, *members)], NOW)
    assert not health.is_cluster_healthy()
    health.update([*nodes(20), *nodes(4, "u", ready=False)], [], NOW)
    assert health.is_cluster_healthy()
    few = [*nodes(1), *nodes(3, "u", ready=False)]
    health.update(few, [group("g", 0, 10, 4, *few)], NOW)
    assert health.is_cluster_healthy()


def test_a_node_that_starts_is_not_unready() -> None:
    health = state()
    young = nodes(5, "y", ready=False, since=NOW - 5 * MINUTE)
    health.update(young, [group("g", 0, 10, 5, *young)], NOW)
    assert health.is_cluster_healthy()
    assert len(health.total.not_started) == 5
    assert health.upcoming(NOW) == ({"g": 5}, {each.metadata.name for each in young})


def test_a_group_that_misses_its_nodes_is_unhealthy_unless_it_scales() -> None:
    health = state()
    there = nodes(1)
    large = group("g", 0, 20, 6, *there)
    health.update(there, [large], NOW)
    assert not health.is_group_healthy("g")
    health.register_scale_up(large, 5, NOW)
    health.update(there, [large], NOW)
    assert health.is_group_healthy("g")
    assert health.is_scaling_up("g")
    assert health.upcoming(NOW)[0] == {"g": 5}


def test_a_scale_up_that_takes_too_long_backs_off() -> None:
    health = state()
    empty = group("g", 0, 10, 1)
    health.register_scale_up(empty, 1, NOW)
    health.update([], [empty], NOW + 14 * MINUTE)
    assert health.safety("g", NOW + 14 * MINUTE).safe
    late = NOW + 16 * MINUTE
    health.update([], [empty], late)
    assert [each.reason for each in health.happenings] == ["ScaleUpTimedOut"]
    assert "failed to register within 16m0s" in health.happenings[0].message
    assert not health.safety("g", late).safe
    assert health.upcoming(late)[0] == {}


def test_nodes_that_come_end_the_request_and_not_the_backoff() -> None:
    """A scale-up that failed in part keeps its group out for the whole time, although the other nodes came."""
    health = state()
    member = node("n")
    full = group("g", 0, 10, 1, member)
    health.register_scale_up(full, 1, NOW)
    health.backoff.fail("g", ERROR, NOW)
    health.update([member], [full], NOW + MINUTE)
    assert not health.requests
    assert not health.safety("g", NOW + MINUTE).safe
    assert health.safety("g", NOW + 6 * MINUTE).safe


def test_only_nodes_that_were_asked_for_are_upcoming() -> None:
    """A node deleted by hand leaves its group's target as it is; pods must not wait for its return."""
    health = state()
    there = nodes(3)
    health.update(there, [group("g", 0, 10, 3, *there)], NOW)
    health.update(there[:2], [group("g", 0, 10, 3, *there)], NOW + MINUTE)
    assert health.upcoming(NOW + MINUTE) == ({}, set())
    grown = group("g", 0, 10, 4, *there)
    health.register_scale_up(grown, 1, NOW + MINUTE)
    health.update(there[:2], [grown], NOW + MINUTE)
    assert health.upcoming(NOW + MINUTE)[0] == {"g": 2}
    health.backoff.fail("g", ERROR, NOW + MINUTE)
    assert health.upcoming(NOW + MINUTE)[0] == {}


def test_nodes_that_an_earlier_program_asked_for_are_upcoming_until_their_time_is_up() -> None:
    health = state()
    growing = group("g", 0, 10, 3, *nodes(1))
    health.update(nodes(1), [growing], NOW)
    assert health.upcoming(NOW)[0] == {"g": 2}
    assert not health.is_scaling_up("g")
    late = NOW + 16 * MINUTE
    health.update(nodes(1), [growing], late)
    assert health.upcoming(late)[0] == {}


def test_an_instance_that_could_not_be_made_backs_off_at_once() -> None:
    health = state()
    failing = NodeGroup(
        id="g",
        max_size=10,
        target_size=2,
        instances=(
            GroupMember("aws:///a/i-placeholder-g-0", InstanceState.CREATING, ERROR),
            GroupMember("aws:///a/i-placeholder-g-1", InstanceState.CREATING, ERROR),
        ),
    )
    health.register_scale_up(failing, 2, NOW)
    health.update([], [failing], NOW)
    happening = health.happenings[-1]
    assert happening.reason == "ScaleUpFailed"
    assert "Failed adding 2 nodes to group g due to OutOfResource.placeholder-cannot-be-fulfilled" in happening.message
    backed_off = health.safety("g", NOW).backoff
    assert backed_off is not None and backed_off.error.code == ERROR.code
    assert health.failed_instances() == {"g": ["aws:///a/i-placeholder-g-0", "aws:///a/i-placeholder-g-1"]}
    health.happenings.clear()
    health.update([], [failing], NOW + MINUTE)
    assert not health.happenings


def test_unregistered_instances_are_found_and_become_overdue() -> None:
    health = state()
    lost = NodeGroup(id="g", max_size=10, target_size=1, instances=(GroupMember("aws:///a/i-1"),))
    health.update([], [group("g", 0, 10, 0)], NOW - MINUTE)
    health.update([], [lost], NOW)
    assert len(health.total.unregistered) == 1
    assert health.overdue_instances(NOW + 15 * MINUTE) == {}
    later = NOW + 15 * MINUTE + timedelta(seconds=1)
    health.update([], [lost], later)
    assert health.overdue_instances(later) == {"g": ["aws:///a/i-1"]}
    assert len(health.total.long_unregistered) == 1


def test_a_target_above_the_instances_is_noticed() -> None:
    health = state()
    member = node("n")
    wrong = group("g", 0, 10, 3, member)
    health.update([member], [wrong], NOW)
    health.update([member], [wrong], NOW + MINUTE)
    assert health.wrong_sizes["g"].since == NOW
    assert (health.wrong_sizes["g"].expected, health.wrong_sizes["g"].current) == (3, 1)


def test_cooldown_holds_for_the_cluster_or_for_the_group_that_scaled() -> None:
    cluster = Cooldown(Delays(after_delete_s=60.0), NOW)
    assert not cluster.is_active(NOW)
    cluster.scaled_up("g", NOW)
    assert cluster.is_active(NOW + 9 * MINUTE) and not cluster.is_active(NOW + 10 * MINUTE)
    cluster.failed(NOW + 10 * MINUTE)
    assert cluster.is_active(NOW + 12 * MINUTE) and not cluster.is_active(NOW + 13 * MINUTE)
    cluster.began_deletion(NOW + 13 * MINUTE)
    assert cluster.is_active(NOW + 13 * MINUTE) and not cluster.is_active(NOW + 14 * MINUTE)
    assert not cluster.is_group_active("g", NOW)

    local = Cooldown(Delays(local=True), NOW)
    local.scaled_up("g", NOW)
    local.failed(NOW)
    assert not local.is_active(NOW)
    assert local.is_group_active("g", NOW + 9 * MINUTE) and not local.is_group_active("h", NOW)
    local.group_failed("h", NOW)
    assert local.is_group_active("h", NOW + 2 * MINUTE) and not local.is_group_active("h", NOW + 3 * MINUTE)


def test_the_status_of_a_group_without_a_node_was_never_probed() -> None:
    health = state()
    there = nodes(2)
    health.update(there, [group("g", 0, 10, 2, *there), group("empty")], NOW)
    writer = StatusWriter()
    document = yaml.safe_load(writer.text(health, {"g": ["n0"]}, NOW, scale_down_at=NOW))
    shown = {each["name"]: each for each in document["nodeGroups"]}
    assert shown["g"]["health"]["lastProbeTime"].startswith("2026-03-01T12:00:00")
    assert shown["empty"]["health"]["lastProbeTime"] is None
    assert shown["g"]["scaleDown"]["candidates"] == 1
    assert "beingDeleted" not in shown["g"]["health"]["nodeCounts"]["registered"]


STATUS = """\
time: 2026-03-01 12:00:00 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 1
        ready: 1
        notStarted: 0
        unready:
          total: 0
          resourceUnready: 0
      longUnregistered: 0
      unregistered: 0
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
  scaleUp:
    status: NoActivity
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
  scaleDown:
    status: CandidatesPresent
    candidates: 1
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
nodeGroups:
- name: g
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 1
        ready: 1
        notStarted: 0
        unready:
          total: 0
          resourceUnready: 0
      longUnregistered: 0
      unregistered: 0
    cloudProviderTarget: 1
    minSize: 0
    maxSize: 10
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: placeholder-cannot-be-fulfilled
      errorMessage: "no: capacity"
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
  scaleDown:
    status: CandidatesPresent
    candidates: 1
    lastProbeTime: "2026-03-01T12:00:00Z"
    lastTransitionTime: "2026-03-01T12:00:00Z"
"""


def test_the_text_of_the_status() -> None:
    """Keys, their order and the quotes are those that scripts which grep the ConfigMap expect."""
    health = state()
    [there] = nodes(1)
    member = group("g", 0, 10, 1, there)
    health.update([there], [member], NOW)
    health.register_failure(member, msgspec.structs.replace(ERROR, message="no: capacity"), NOW)
    assert StatusWriter().text(health, {"g": ["n0"]}, NOW, scale_down_at=NOW) == STATUS


def test_the_status_counts_suspended_nodes_and_shortens_messages() -> None:
    health = state()
    asleep = node("n0", ready=False)
    conditions = (*asleep.status.conditions, Condition(type="Suspended", status="True"))
    asleep = msgspec.structs.replace(asleep, status=msgspec.structs.replace(asleep.status, conditions=conditions))
    members = [asleep, node("n1")]
    large = group("g", 0, 10, 2, *members)
    health.update(members, [large], NOW)
    assert health.is_group_healthy("g")
    assert not health.total.unready
    health.register_failure(large, msgspec.structs.replace(ERROR, message="x" * 600), NOW)
    [shown] = yaml.safe_load(StatusWriter().text(health, {}, NOW))["nodeGroups"]
    assert shown["health"]["nodeCounts"]["registered"]["suspended"] == 1
    message = shown["scaleUp"]["backoffInfo"]["errorMessage"]
    assert (len(message), message[-11:]) == (500, "<truncated>")


def test_only_a_missing_gpu_counts_as_a_missing_resource() -> None:
    tainted = node("tainted", taints=[{"key": "cni", "effect": "NoSchedule"}])
    without = node("without", labels={"k8s.amazonaws.com/accelerator": "t4"})
    config = TaintConfig(startup=frozenset({"cni"}))
    health = GroupClusterState(HealthLimits(), GroupBackoff(), lambda of: is_ready(of, config))
    health.update([tainted, without], [group("g", 0, 10, 2, tainted, without)], NOW)
    assert sorted(health.total.unready) == ["tainted", "without"]
    assert health.total.resource_unready == ["without"]


def test_an_instance_of_unknown_state_is_expected_to_register() -> None:
    health = state()
    health.update([], [NodeGroup(id="g", max_size=3, target_size=1, instances=(GroupMember("i-1", None),))], NOW)
    assert health.total.unregistered == ["i-1"]


def test_one_event_for_a_reason_about_an_object_and_all_messages_about_the_status() -> None:
    script = Script(*(ok({}) for _ in range(5)))

    async def main() -> None:
        recorder = event_recorder(script.kube(), "cluster-autoscaler", duplicates=False)
        task = asyncio.create_task(recorder.run())
        about = InvolvedObject("Pod", "p", "default", "u")
        for message in ("1 Insufficient cpu", "1 max node group size reached"):
            recorder.normal(about, "NotTriggerScaleUp", message)
        recorder.normal(about, "TriggeredScaleUp", "[{a 1->2 (max: 3)}]")
        status = InvolvedObject("ConfigMap", "cluster-autoscaler-status", "kube-system")
        for message in ("to 2", "to 3", "to 2"):
            recorder.normal(status, "ScaledUpGroup", message)
        await asyncio.sleep(301)
        recorder.normal(about, "NotTriggerScaleUp", "1 max node group size reached")
        await recorder.flush()
        task.cancel()

    run_virtual(main())
    written = [msgspec.json.decode(request.body) for request in script.requests]
    assert [(body["reason"], body["message"], body["count"]) for body in written] == [
        ("NotTriggerScaleUp", "1 Insufficient cpu", 1),
        ("TriggeredScaleUp", "[{a 1->2 (max: 3)}]", 1),
        ("ScaledUpGroup", "to 2", 1),
        ("ScaledUpGroup", "to 3", 1),
        ("NotTriggerScaleUp", "1 max node group size reached", 2),
    ]


def test_utilisation_is_shown_as_events_have_it() -> None:
    assert str(Utilization("cpu", 0.25, 0.25, 1 / 3)) == "{0.25 0.3333333333333333 0 0 cpu 0.25}"


@pytest.mark.parametrize("kind", ["DiskPressure", "NetworkUnavailable"])
def test_a_node_with_a_bad_condition_is_not_ready(kind: str) -> None:
    member = node("n")
    bad = msgspec.structs.replace(
        member.status, conditions=(*member.status.conditions, Condition(type=kind, status="True"))
    )
    assert is_ready(member, TaintConfig())
    assert not is_ready(msgspec.structs.replace(member, status=bad), TaintConfig())
