"""Health, utilisation, eligibility, scale-up and scale-down plans of the Cluster Autoscaler."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
import yaml

from dovetail.autoscalers.node_groups import options as options_of
from dovetail.autoscalers.node_groups.annotations import SCALE_DOWN_DISABLED, TO_BE_DELETED
from dovetail.autoscalers.node_groups.backoff import BackoffTimes, GroupBackoff
from dovetail.autoscalers.node_groups.cluster_state import GroupClusterState, HealthLimits
from dovetail.autoscalers.node_groups.cooldown import Cooldown, Delays
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import DrainContext
from dovetail.autoscalers.node_groups.eligibility import EligibilityRules, unremovable_reason
from dovetail.autoscalers.node_groups.expanders import choose, least_waste
from dovetail.autoscalers.node_groups.flags import parse
from dovetail.autoscalers.node_groups.quotas import Quotas, Range
from dovetail.autoscalers.node_groups.readiness import is_ready
from dovetail.autoscalers.node_groups.recording import event_recorder
from dovetail.autoscalers.node_groups.removal import Removable
from dovetail.autoscalers.node_groups.scale_down import ScaleDownPlanner, ScaleDownSettings, Unneeded
from dovetail.autoscalers.node_groups.scale_up import (
    ScaleUpInput,
    ScaleUpPlan,
    ScaleUpResult,
    ScaleUpSettings,
    plan_minimum_sizes,
    plan_scale_up,
)
from dovetail.autoscalers.node_groups.similarity import aws_comparator
from dovetail.autoscalers.node_groups.simulation import ClusterSnapshot
from dovetail.autoscalers.node_groups.status import StatusWriter
from dovetail.autoscalers.node_groups.templates import (
    TaintConfig,
    TemplateCache,
    from_cloud,
    from_node,
    from_nodes,
    is_good_template,
)
from dovetail.autoscalers.node_groups.unremovable import REMEDIES, UnremovableReason
from dovetail.autoscalers.node_groups.utilization import UnknownUtilization, Utilization, utilization
from dovetail.chance import Chance
from dovetail.clock import run_virtual
from dovetail.cloud.node_groups import ErrorClass, GroupMember, InstanceError, InstanceState, NodeGroup, NodeTemplate
from dovetail.kube.events import InvolvedObject
from dovetail.model.fit import NodeInfo
from dovetail.model.meta import Condition, view
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from dovetail.model.workloads import DaemonSet
from tests.autoscalers.node_group_objects import GIB, MIB, NOW, group, info, node, pdb, pod, snapshot
from tests.kube.scripted import Script, ok

MINUTE = timedelta(minutes=1)
ERROR = InstanceError(ErrorClass.OUT_OF_RESOURCES, "placeholder-cannot-be-fulfilled", "no capacity")


def ready(of: Node) -> bool:
    return of.ready


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


# Utilisation and eligibility


def test_utilisation() -> None:
    daemon = pod("d", 500, 0, owner="DaemonSet/ds")
    static = pod("m", 500, 0, owner=None, annotations={"kubernetes.io/config.mirror": "x"})
    full = info(node("n", 2000, 1000), pod("a", 500, 100), daemon, static)
    assert utilization(full, NOW).highest == pytest.approx(0.75)
    assert utilization(full, NOW, ignore_daemonsets=True).highest == pytest.approx(1000 / 1500)
    assert utilization(full, NOW, ignore_daemonsets=True, ignore_mirrors=True).highest == pytest.approx(0.5)
    gone = pod("g", 500, 0, deleted=NOW - 5 * MINUTE)
    assert utilization(info(node("n", 1000, 1000), gone), NOW).highest == 0.0
    memory = utilization(info(node("n", 1000, 1000), pod("a", 100, 900)), NOW)
    assert (memory.resource, memory.highest) == ("memory", 0.9)
    with pytest.raises(UnknownUtilization, match="zero allocatable"):
        utilization(info(node("n", 0, 0)), NOW)


def test_a_gpu_node_is_measured_by_its_gpus() -> None:
    gpu = info(node("n", 1000, 1000, nvidia_com__gpu=2), pod("a", 900, 900, requests={"nvidia.com/gpu": "1"}))
    assert utilization(gpu, NOW, gpu="nvidia.com/gpu").highest == 0.5
    assert utilization(info(node("n")), NOW, gpu="nvidia.com/gpu").highest == 0.0


@pytest.mark.parametrize(
    ("of", "options", "rules", "reason"),
    [
        (info(node("n"), pod("a", 500, 0)), {}, {}, None),
        (info(node("n"), pod("a", 501, 0)), {}, {}, UnremovableReason.NOT_UNDERUTILIZED),
        (info(node("n"), pod("a", 700, 0)), {"scale_down_utilization_threshold": 0.8}, {}, None),
        (info(node("n", annotations={SCALE_DOWN_DISABLED: "true"})), {}, {}, UnremovableReason.SCALE_DOWN_DISABLED),
        (info(node("n", annotations={SCALE_DOWN_DISABLED: "false"})), {}, {}, None),
        (info(node("n", ready=False)), {}, {}, None),
        (info(node("n", ready=False)), {}, {"unready_enabled": False}, UnremovableReason.UNREADY_DISABLED),
        (info(node("n", 0, 0)), {}, {}, UnremovableReason.UNEXPECTED_ERROR),
        (
            info(node("n", taints=[{"key": TO_BE_DELETED, "value": str(int(NOW.timestamp()) - 60)}])),
            {},
            {},
            UnremovableReason.BEING_DELETED,
        ),
        (
            info(node("n", taints=[{"key": TO_BE_DELETED, "value": str(int(NOW.timestamp()) - 360)}])),
            {},
            {},
            None,
        ),
    ],
)
def test_eligibility(
    of: NodeInfo, options: dict[str, Any], rules: dict[str, Any], reason: UnremovableReason | None
) -> None:
    member = group("g", 0, 10, 1, of.node, **options)
    assert unremovable_reason(of, member, EligibilityRules(**rules), ready, NOW)[0] is reason


def test_every_reason_has_a_remedy() -> None:
    assert set(REMEDIES) == set(UnremovableReason)
    stranger = unremovable_reason(info(node("n")), None, EligibilityRules(), ready, NOW)
    assert stranger == (UnremovableReason.NOT_AUTOSCALED, None)


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


# Templates


def test_templates_come_from_good_nodes_then_from_memory() -> None:
    cache, config = TemplateCache(3600), TaintConfig(startup=frozenset({"cni"}))
    taints = [{"key": "cni", "effect": "NoSchedule"}, {"key": "team", "effect": "NoSchedule"}]
    good = info(node("n", taints=taints), pod("a"), pod("d", owner="DaemonSet/ds"))
    member = group("g", 0, 10, 1, good.node)
    found = from_nodes([member], {"g": [good]}, cache, config, NOW)["g"]
    assert [taint.key for taint in found.node.spec.taints] == ["team"]
    assert [placed.pod.metadata.name for placed in found.pods.values()] == ["d"]
    assert found.labels["kubernetes.io/hostname"] == found.name != "n"
    assert "g" in from_nodes([member], {}, cache, config, NOW + 30 * MINUTE)
    assert from_nodes([member], {}, cache, config, NOW + 61 * MINUTE) == {}
    assert not is_good_template(node("n", since=NOW - timedelta(seconds=30)), NOW)
    assert not is_good_template(node("n", ready=False), NOW)


def test_a_template_of_the_cloud_gets_daemonset_pods() -> None:
    def daemonset(name: str, selector: dict[str, str]) -> DaemonSet:
        spec = {"containers": [{"resources": {"requests": {"cpu": "100m"}}}], "nodeSelector": selector}
        return view({"metadata": {"name": name, "uid": name}, "spec": {"template": {"spec": spec}}}, DaemonSet)

    made = from_cloud(
        NodeTemplate(node("t")), [daemonset("proxy", {}), daemonset("gpu", {"gpu": "yes"})], "g", TaintConfig()
    )
    assert made.requested["cpu"] == 100


# Scale-up


def plan(
    pods: Sequence[Pod],
    groups: Sequence[NodeGroup],
    templates: dict[str, NodeInfo],
    *,
    view: ClusterSnapshot | None = None,
    quotas: Quotas | None = None,
    blocked: dict[str, str] | None = None,
    count: int = 0,
    all_or_nothing: bool = False,
    **settings: Any,
) -> ScaleUpPlan:
    given = scale_up_input(groups, templates, view, quotas, blocked, count, **settings)
    return plan_scale_up(pods, given, all_or_nothing=all_or_nothing)


def scale_up_input(
    groups: Sequence[NodeGroup],
    templates: dict[str, NodeInfo],
    view: ClusterSnapshot | None = None,
    quotas: Quotas | None = None,
    blocked: dict[str, str] | None = None,
    count: int = 0,
    **settings: Any,
) -> ScaleUpInput:
    return ScaleUpInput(
        groups,
        templates,
        view or snapshot(),
        quotas or Quotas({}, {}),
        count,
        ScaleUpSettings(**settings),
        lambda each: (blocked or {}).get(each.id),
        aws_comparator(),
        lambda options, known: choose(options, [least_waste], known, Chance(1)),
    )


def sizes(made: ScaleUpPlan) -> dict[str, int]:
    return {each.group.id: each.new_size for each in made.increases}


def some(count: int, cpu: int = 500, name: str = "p", **about: Any) -> list[Pod]:
    return [pod(f"{name}{index}", cpu, owner=f"ReplicaSet/{name}", **about) for index in range(count)]


def test_the_group_with_the_least_waste_grows() -> None:
    templates = {"a": info(node("ta", 1000)), "b": info(node("tb", 8000, 8 * GIB))}
    made = plan(some(2), [group("a", 0, 10, 1), group("b", 0, 10, 1)], templates)
    assert made.result is ScaleUpResult.SUCCESSFUL
    assert sizes(made) == {"a": 2}
    assert str(made.increases[0]) == "{a 1->2 (max: 10)}"
    assert len(made.triggered) == 2 and not made.refused


def test_refusals_count_groups_by_reason() -> None:
    templates = {name: info(node(f"t{name}", 1000)) for name in "abcd"}
    groups = [group("a", 0, 10, 1), group("b", 0, 10, 1), group("c", 0, 1, 1), group("d", 0, 9, 1)]
    blocked = {"d": "in backoff after failed scale-up"}
    made = plan(some(1, 4000), groups, templates, blocked=blocked)
    assert made.result is ScaleUpResult.NO_OPTIONS
    [refused] = made.refused
    assert refused.message() == "2 Insufficient cpu, 1 max node group size reached, 1 in backoff after failed scale-up"


def test_max_nodes_total_cuts_and_stops() -> None:
    templates = {"a": info(node("ta", 1000))}
    made = plan(some(6), [group("a", 0, 10, 1)], templates, count=1, max_nodes_total=3)
    assert sizes(made) == {"a": 3}
    stopped = plan(some(6), [group("a", 0, 10, 1)], templates, count=3, max_nodes_total=3)
    assert stopped.result is ScaleUpResult.LIMITED_BY_MAX_TOTAL and len(stopped.refused) == 6


def test_quotas_cut_a_scale_up_and_then_refuse_the_group() -> None:
    templates = {"a": info(node("ta", 1000))}
    quotas = Quotas({"cpu": Range(0, 3)}, {"cpu": 1})
    assert sizes(plan(some(8), [group("a", 0, 10, 1)], templates, quotas=quotas)) == {"a": 3}
    full = Quotas({"cpu": Range(0, 3)}, {"cpu": 3})
    refused = plan(some(1), [group("a", 0, 10, 1)], templates, quotas=full).refused
    assert refused[0].message() == '1 exceeded quota: "cluster-wide", resources: cpu'


def test_similar_groups_share_a_scale_up() -> None:
    templates = {name: info(node(f"t{name}", 1000, labels={"topology.kubernetes.io/zone": name})) for name in "abc"}
    groups = [group("a", 0, 10, 1), group("b", 0, 10, 2), group("c", 0, 2, 2)]
    assert sizes(plan(some(10), groups, templates, balance_similar=True)) == {"a": 4, "b": 4}
    alone = sizes(plan(some(10), groups, templates))
    assert list(alone.values()) in ([6], [7]) and len(alone) == 1


def test_all_or_nothing_does_nothing_for_some() -> None:
    templates = {"a": info(node("ta", 1000))}
    made = plan(some(8), [group("a", 0, 3, 0)], templates, all_or_nothing=True)
    assert made.result is ScaleUpResult.NO_OPTIONS and not made.increases
    assert plan(some(6), [group("a", 0, 3, 0)], templates, all_or_nothing=True).result is ScaleUpResult.SUCCESSFUL


def test_a_group_that_goes_whole_goes_to_its_maximum() -> None:
    templates = {"a": info(node("ta", 1000))}
    assert sizes(plan(some(1), [group("a", 0, 7, 0, zero_or_max=True)], templates)) == {"a": 7}


def test_minimum_sizes_are_enforced() -> None:
    templates = {name: info(node(f"t{name}", 1000)) for name in "abc"}
    groups = [group("a", 3, 10, 1), group("b", 1, 10, 1), group("c", 2, 10, 0)]
    found = plan_minimum_sizes(scale_up_input(groups, templates, blocked={"c": "not ready for scale-up"}))
    assert [(each.group.id, each.new_size) for each in found] == [("a", 3)]


# Scale-down


class Down:
    """A planner and its cluster, loop by loop."""

    def __init__(self, *infos: NodeInfo, groups: Sequence[NodeGroup], budgets: Sequence[Any] = (), **settings: Any):
        self.infos, self.groups, self.budgets = infos, groups, budgets
        self.planner = ScaleDownPlanner(ScaleDownSettings(**settings))

    def group_of(self, of: Node) -> NodeGroup | None:
        members = {each.provider_id: member for member in self.groups for each in member.instances}
        return members.get(of.spec.provider_id)

    def loop(self, now: datetime, quotas: Quotas | None = None) -> tuple[list[str], list[str]]:
        view = snapshot(*self.infos)
        names = [each.name for each in self.infos]
        context = DrainContext(now, RemainingPdbs(self.budgets), None)
        self.planner.update(view, names, names, self.group_of, context, ready)
        assert sorted(view.nodes) == sorted(names)
        found = self.planner.removable_now(view, self.group_of, quotas or Quotas({}, {}), {}, ready, now)
        return [each.node for each in found.empty], [each.node for each in found.drain]

    def reason(self, name: str) -> UnremovableReason | None:
        found = self.planner.unremovable.reason(name)
        return found.reason if found else None


def test_an_empty_node_goes_after_its_time_and_not_before() -> None:
    empty, busy = info(node("empty")), info(node("busy"), pod("a", 900))
    down = Down(empty, busy, groups=[group("g", 0, 10, 2, empty.node, busy.node)])
    assert down.loop(NOW) == ([], [])
    assert down.reason("empty") is UnremovableReason.NOT_UNNEEDED_LONG_ENOUGH
    assert down.reason("busy") is UnremovableReason.NOT_UNDERUTILIZED
    assert down.loop(NOW + 10 * MINUTE) == ([], [])
    assert down.loop(NOW + 10 * MINUTE + timedelta(seconds=1)) == (["empty"], [])


def test_an_unready_node_takes_longer() -> None:
    sick = info(node("sick", ready=False))
    down = Down(sick, groups=[group("g", 0, 10, 1, sick.node)])
    down.loop(NOW)
    assert down.loop(NOW + 15 * MINUTE) == ([], [])
    assert down.reason("sick") is UnremovableReason.NOT_UNREADY_LONG_ENOUGH
    assert down.loop(NOW + 21 * MINUTE) == (["sick"], [])


def test_minimum_size_and_minimal_limits_keep_nodes() -> None:
    infos = [info(node(name)) for name in ("a", "b", "c")]
    down = Down(*infos, groups=[group("g", 2, 10, 3, *(each.node for each in infos))])
    down.loop(NOW)
    empty, _ = down.loop(NOW + 11 * MINUTE)
    assert len(empty) == 1
    assert [down.reason(each.name) for each in infos].count(UnremovableReason.MIN_SIZE_REACHED) == 2
    free = Down(*infos, groups=[group("g", 0, 10, 3, *(each.node for each in infos))])
    free.loop(NOW)
    empty, _ = free.loop(NOW + 11 * MINUTE, Quotas({"cpu": Range(2, 10)}, {"cpu": 3}))
    assert len(empty) == 1


def test_pods_must_find_a_place_and_places_are_taken_once() -> None:
    infos = [info(node(name), pod(f"p-{name}", 400)) for name in ("a", "b", "c")]
    down = Down(*infos, groups=[group("g", 0, 10, 3, *(each.node for each in infos))])
    down.loop(NOW)
    assert set(down.planner.unneeded) == {"a"}
    assert down.reason("b") is UnremovableReason.NO_PLACE_TO_MOVE_PODS
    assert down.loop(NOW + MINUTE) == ([], [])
    assert down.reason("b") is UnremovableReason.RECENTLY_UNREMOVABLE
    _, drain = down.loop(NOW + 11 * MINUTE)
    assert drain == ["a"]


def test_a_blocking_pod_is_named() -> None:
    kept = info(node("a"), pod("bare", 100, owner=None))
    down = Down(kept, info(node("b")), groups=[group("g", 0, 10, 2, kept.node)])
    down.loop(NOW)
    found = down.planner.unremovable.reason("a")
    assert found is not None and found.reason is UnremovableReason.BLOCKED_BY_POD
    assert found.blocking is not None and found.blocking.pod.metadata.name == "bare"


def test_budgets_are_shared_by_candidates() -> None:
    labels = {"app": "web"}
    infos = [info(node(name), pod(f"p-{name}", 100, labels=labels)) for name in ("a", "b")]
    room = info(node("room", 4000, 4 * GIB), pod("big", 3000, 3 * GIB))
    down = Down(
        *infos, room, groups=[group("g", 0, 10, 3, *(each.node for each in infos))], budgets=[pdb("x", 1, labels)]
    )
    down.loop(NOW)
    assert set(down.planner.unneeded) == {"a"}
    assert down.reason("b") is UnremovableReason.BLOCKED_BY_POD


def test_a_pod_on_completion_delays_its_node() -> None:
    last = pod("job", 100, owner=None, annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"})
    waits = info(node("a"), last)
    down = Down(waits, groups=[group("g", 0, 10, 1, waits.node)])
    down.loop(NOW)
    assert down.loop(NOW + 11 * MINUTE) == ([], [])
    assert down.reason("a") is UnremovableReason.BLOCKED_BY_ON_COMPLETION_POD


def test_a_group_that_goes_whole_waits_for_all_its_nodes() -> None:
    infos = [info(node("a")), info(node("b"), pod("x", 900))]
    whole = group("g", 0, 10, 2, *(each.node for each in infos), zero_or_max=True)
    down = Down(*infos, groups=[whole])
    down.loop(NOW)
    assert down.loop(NOW + 11 * MINUTE) == ([], [])
    assert down.reason("a") is UnremovableReason.ATOMIC_FAILED
    free = [info(node("a")), info(node("b"))]
    both = Down(*free, groups=[whole])
    both.loop(NOW)
    assert sorted(both.loop(NOW + 11 * MINUTE)[0]) == ["a", "b"]


def test_the_search_for_unneeded_nodes_is_bounded() -> None:
    infos = [info(node(f"n{index}", memory=MIB)) for index in range(100)]
    down = Down(*infos, groups=[group("g", 0, 100, 100, *(each.node for each in infos))], unneeded_s=60.0)
    down.loop(NOW)
    assert len(down.planner.unneeded) == 20
    down.loop(NOW + timedelta(seconds=10))
    assert len(down.planner.unneeded) == 40
    for step in range(2, 8):
        down.loop(NOW + step * timedelta(seconds=10))
    assert len(down.planner.unneeded) == 70


def test_taints_of_an_earlier_program_give_the_time() -> None:
    planner = ScaleDownPlanner(ScaleDownSettings())
    marked = NOW - 9 * MINUTE
    taint = {"key": "DeletionCandidateOfClusterAutoscaler", "value": str(int(marked.timestamp()))}
    planner.load_candidates([node("a", taints=[taint]), node("b")], NOW, 1800)
    assert {name: entry.since for name, entry in planner.unneeded.items()} == {"a": marked}
    assert msgspec.structs.asdict(planner.unneeded["a"].removable)["node"] == "a"


def test_from_node_drops_pods_that_are_going() -> None:
    going = pod("d", owner="DaemonSet/ds", deleted=NOW)
    assert not from_node(info(node("n"), going), "g", TaintConfig()).pods


def test_forced_daemonsets_have_a_pod_on_the_template_of_a_node_without_it() -> None:
    def daemonset(name: str, **spec: Any) -> DaemonSet:
        template = {"spec": {"containers": [{"name": "c"}], **spec}}
        return view({"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"template": template}}, DaemonSet)

    there = info(node("n"), pod("d", owner="DaemonSet/there"))
    elsewhere = daemonset("elsewhere", nodeSelector={"team": "other"})
    forced = (daemonset("there"), daemonset("new"), elsewhere)
    assert [placed.pod.metadata.name for placed in from_node(there, "g", TaintConfig()).pods.values()] == ["d"]
    template = from_node(there, "g", TaintConfig(), forced)
    assert [placed.pod.metadata.name for placed in template.pods.values()] == ["d", "new-pod-template"]
    assert options_of.options(parse(["--force-ds"])).force_daemonsets


def test_empty_nodes_are_candidates_before_others_and_those_unneeded_before_come_next() -> None:
    """Asked first, a node with pods would put them on an empty one: a drain in place of a plain removal."""
    planner = ScaleDownPlanner(ScaleDownSettings())
    cluster = snapshot(
        info(node("busy"), pod("a")),
        info(node("unneeded"), pod("b")),
        info(node("empty"), pod("d", owner="DaemonSet/ds")),
    )
    planner.unneeded["unneeded"] = Unneeded(Removable("unneeded"), NOW)
    assert planner.in_order(["busy", "unneeded", "empty"], cluster, NOW) == ["empty", "unneeded", "busy"]


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
