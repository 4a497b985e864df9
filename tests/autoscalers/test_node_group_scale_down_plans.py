"""Utilisation, eligibility and scale-down plans of the Cluster Autoscaler."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from dovetail.autoscalers.node_groups.annotations import SCALE_DOWN_DISABLED, TO_BE_DELETED
from dovetail.autoscalers.node_groups.disruption_budgets import RemainingPdbs
from dovetail.autoscalers.node_groups.drain import DrainContext
from dovetail.autoscalers.node_groups.eligibility import EligibilityRules, unremovable_reason
from dovetail.autoscalers.node_groups.quotas import Quotas, Range
from dovetail.autoscalers.node_groups.removal import Removable
from dovetail.autoscalers.node_groups.scale_down import ScaleDownPlanner, ScaleDownSettings, Unneeded
from dovetail.autoscalers.node_groups.unremovable import REMEDIES, UnremovableReason
from dovetail.autoscalers.node_groups.utilization import UnknownUtilization, utilization
from dovetail.cloud.node_groups import NodeGroup
from dovetail.model.fit import NodeInfo
from dovetail.model.nodes import Node
from tests.autoscalers.node_group_objects import GIB, MIB, NOW, group, info, node, pdb, pod, snapshot

MINUTE = timedelta(minutes=1)


def ready(of: Node) -> bool:
    return of.ready


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
