"""Reasons: the question that left nothing, whose turn it is, the nearest miss, and a remedy that remedies."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.model.instance_type import InstanceType
from dovetail.model.meta import ObjectMeta
from dovetail.model.pods import PersistentVolumeClaimSpec
from dovetail.model.reasons import reason
from dovetail.model.volumes import PersistentVolumeClaim, StorageClass
from dovetail.planner.plan import Funnel, Plan, Unschedulable
from tests.planner.conftest import HOSTNAME, SHOP, ZONE, Solve, kind, near, node, pod, pods, pool, spread
from tests.planner.test_daemons import daemon


def the_reason(plan: Plan) -> Unschedulable:
    return next(iter(plan.unschedulable.values()))


def the_funnel(plan: Plan) -> Funnel:
    (funnel,) = the_reason(plan).pools.values()
    return funnel


def test_the_nearest_miss_is_what_the_remedy_would_cost(solve: Solve) -> None:
    """Small nodes are turned away by the taint as well, but would not hold the pod without it."""
    tainted = pool(taints=({"key": "team", "value": "a", "effect": "NoSchedule"},))
    funnel = the_funnel(solve(pod("a", cpu="3"), pools=(tainted,)))
    assert funnel.code == "UNTOLERATED_TAINT"
    assert funnel.nearest is not None
    assert (funnel.nearest.instance_type, funnel.nearest.price, funnel.nearest_lacks) == ("medium", 0.19, "")


def test_what_the_remedy_would_not_remedy_is_reported_with_the_nearest_miss(solve: Solve) -> None:
    why = the_reason(solve(pod("a", cpu="20", nodeSelector={"team": "a"})))
    assert why.code == "UNKNOWN_LABEL"
    assert "(nearest: large in z1, $0.8000/h, lacks cpu 4)" in why.message


def test_a_pool_that_can_launch_nothing_says_which_requirement_of_its_own_is_to_blame(solve: Solve) -> None:
    offers_nothing = pool(
        requirements=(
            {"key": "kubernetes.io/os", "operator": "Exists"},
            {"key": ZONE, "operator": "In", "values": ("nowhere",)},
        )
    )
    funnel = the_funnel(solve(pod("a"), pools=(offers_nothing,)))
    assert funnel.code == "NO_TYPE_MATCHES"
    assert funnel.emptied_by == f"its own requirement {ZONE} In [nowhere] (there are z1, z2, z3)"
    assert funnel.start == 9, "the offerings that it would have without"


def test_limits_are_reported_in_the_units_that_people_write(solve: Solve) -> None:
    short = pool(limits={"cpu": 2500, "memory": 2**40})
    funnel = the_funnel(solve(pod("a", cpu="1500m"), pod("b", cpu="1500m"), pools=(short,)))
    assert (funnel.code, funnel.emptied_by) == ("LIMIT_REACHED", "cpu limit (500m left)")


def test_daemons_that_take_the_room_are_named(solve: Solve) -> None:
    funnel = the_funnel(solve(pod("a", cpu="15500m"), daemons=(daemon("log", cpu="1"),)))
    assert funnel.emptied_by == "cpu 15500m (at most 15, daemons take 1)"
    assert funnel.nearest_lacks == "cpu 500m"


def test_a_resource_that_no_type_has_is_not_a_matter_of_size(solve: Solve) -> None:
    funnel = the_funnel(solve(pod("a", requests={"example.com/dongle": "1"})))
    assert funnel.emptied_by == "example.com/dongle 1 (no type has any)"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (near("podAffinity", ZONE, "db"), "pod affinity to app=db by topology.kubernetes.io/zone (no such pod)"),
        (near("podAffinity", HOSTNAME, "db"), "pod affinity to app=db by kubernetes.io/hostname (no such pod)"),
    ],
)
def test_co_located_pods_that_is_not_there_is_named(solve: Solve, spec: dict[str, Any], said: str) -> None:
    funnel = the_funnel(solve(pod("a", **spec)))
    assert (funnel.code, funnel.emptied_by) == ("AFFINITY", said)


def test_co_located_pods_on_a_full_node_is_reported_from_co_located_pods_that_is_not_there(solve: Solve) -> None:
    full = node("n1", cpu="1", pods=(pod("db", cpu="1", labels={"app": "db"}),))
    funnel = the_funnel(solve(pod("a", **near("podAffinity", HOSTNAME, "db")), nodes=(full,)))
    assert funnel.emptied_by == "pod affinity to app=db by kubernetes.io/hostname (no room beside it)"


def test_the_rule_that_stands_in_the_way_is_blamed_not_the_first_one_there_is(solve: Solve) -> None:
    """Its affinity is kept anywhere; it is the spread that finds too few zones."""
    both = {**near("podAffinity", "kubernetes.io/arch"), **spread(minDomains=4)}
    funnel = the_funnel(solve(*pods(5, cpu="100m", **both)))
    assert funnel.code == "SPREAD"
    assert funnel.emptied_by == f"topology spread over {ZONE}, maxSkew 1, minDomains 4 (room nowhere)"


def test_where_there_would_be_room_is_reported(solve: Solve) -> None:
    pinned = {"nodeSelector": {ZONE: "z1"}, **spread(nodeAffinityPolicy="Ignore")}
    funnel = the_funnel(solve(*pods(2, **pinned)))
    assert funnel.emptied_by == f"topology spread over {ZONE}, maxSkew 1 (room in z2, z3)"
    assert [step.left for step in funnel.steps][-2:] == [3, 0]


def test_a_spread_over_a_label_of_no_node_is_cured_by_declaring_it(solve: Solve) -> None:
    plan = solve(*pods(2, **spread("rack")))
    assert the_reason(plan).code == "UNKNOWN_LABEL"
    racks = {"key": "rack", "operator": "In", "values": ("a", "b")}
    assert not solve(*pods(2, **spread("rack")), pools=(pool(requirements=(racks,)),)).unschedulable


def test_anothers_refusal_is_reported_from_ones_own(solve: Solve) -> None:
    shy = pod("db", labels={"app": "db"}, **near("podAntiAffinity", ZONE))
    there = node("n1", cpu="1", labels={ZONE: "z1"}, pods=(shy,))
    funnel = the_funnel(solve(*pods(1, nodeSelector={ZONE: "z1"}), nodes=(there,)))
    assert funnel.emptied_by == f"the anti-affinity of default/db by {ZONE} (room in z2, z3)"


def test_a_rule_of_pods_that_wait_too_is_reported_with_one_of_them(solve: Solve) -> None:
    shy = pods(3, "shy", cpu="1", labels={"app": "web"}, **near("podAntiAffinity", ZONE))
    plan = solve(*shy, pod("other", cpu="100m", labels={"app": "web"}))
    assert "the anti-affinity of default/shy-0 by" in plan.unschedulable["default/other"].message


def test_every_reason_says_its_remedy(solve: Solve) -> None:
    why = the_reason(solve(pod("a", cpu="1000")))
    assert reason(why.code).remedy in why.message


def test_a_cheaper_node_that_a_pod_would_rather_not_have_is_reported_from_one_it_may_not_have(solve: Solve) -> None:
    arm = kind("arm", 2, 8, 0.101, labels={"kubernetes.io/arch": ("arm64",)})
    term = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}
    preference = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    plan = solve(pod("a", affinity={"nodeAffinity": preference}), pools=(pool(types=(*SHOP, arm)),))
    because = {lost.choice.instance_type: lost.because for lost in plan.nodes[0].cheaper}
    assert because["small"] == "default/a prefers kubernetes.io/arch In [arm64]"
    plan = solve(pod("a", nodeSelector={"kubernetes.io/arch": "arm64"}), pools=(pool(types=(*SHOP, arm)),))
    because = {lost.choice.instance_type: lost.because for lost in plan.nodes[0].cheaper}
    assert because["small"] == "default/a asks for kubernetes.io/arch In [arm64]"


def test_a_cheaper_node_in_another_domain_or_a_lighter_pool_says_so(solve: Solve) -> None:
    spot = kind("spot", 2, 8, 0.12, spot=True)
    plan = solve(*pods(2, **spread("karpenter.sh/capacity-type")), pools=(pool(types=(*SHOP, spot)),))
    dear = next(planned for planned in plan.nodes if planned.choice.capacity_type == "on-demand")
    assert [lost.because for lost in dear.cheaper] == [
        "topology constraints pin the node to karpenter.sh/capacity-type=on-demand"
    ]
    pools = (pool("heavy", types=(SHOP[1],), weight=5), pool("light", types=(SHOP[0],)))
    plan = solve(pod("a"), pools=pools)
    assert [lost.because for lost in plan.nodes[0].cheaper] == ["NodePool light has less weight"]


def test_nothing_is_cheaper_than_the_node_that_the_dearest_pod_needs(solve: Solve) -> None:
    """Nodes are launched whole: a pod of its own on the cheapest node for it is no distance from the optimum."""
    assert solve(pod("a", cpu="100m"), deadline=0.2).cost.gap == 0
    there = solve(pod("a", cpu="100m"), nodes=(node("n1"),), deadline=0.2).cost
    assert there.lower_bound == there.per_hour == 0


def test_volumes_that_nothing_limits_do_not_cost_the_bound(solve: Solve) -> None:
    disks = StorageClass(
        metadata=ObjectMeta(name="gp3"), provisioner="ebs.csi.aws.com", volume_binding_mode="WaitForFirstConsumer"
    )
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="c", namespace="default"), spec=PersistentVolumeClaimSpec(storage_class_name="gp3")
    )
    using = pod("a", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    plan = solve(using, claims={"default/c": claim}, storage_classes={"gp3": disks}, deadline=0.2)
    assert plan.cost.lower_bound == plan.cost.per_hour


@pytest.mark.parametrize(
    ("types", "expected"), [((), "it offers no types"), ((kind("a", 2, 8, 0.1, zones=()),), "no types in any zone")]
)
def test_a_pool_that_is_offered_nothing_is_not_reported_to_require_less(
    solve: Solve, types: tuple[InstanceType, ...], expected: str
) -> None:
    why = the_reason(solve(pod("a"), pools=(pool(types=types),)))
    assert expected in why.message
    assert why.message.endswith("see why its NodeClass offers none")
