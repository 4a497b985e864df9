"""Semantics by example: every rule a pod or a pool may state, and what the planner makes of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.model.instance_type import Offering
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE
from dovetail.planner.snapshot import MinValues, Preferences
from tests.planner.conftest import (
    HOSTNAME,
    LARGE,
    MEDIUM,
    SHOP,
    SMALL,
    ZONE,
    Solve,
    kind,
    near,
    node,
    pod,
    pods,
    pool,
    spread,
    zones_of,
)


def test_the_cheapest_node_that_holds_the_pod_is_launched(solve: Solve) -> None:
    plan = solve(pod("a", cpu="1500m"))
    assert [planned.choice.instance_type for planned in plan.nodes] == ["small"]
    assert plan.cost.per_hour == pytest.approx(0.10)


def test_existing_nodes_come_before_new_nodes(solve: Solve) -> None:
    plan = solve(*pods(3), nodes=(node("n1"),))
    assert {place.node for place in plan.placements.values()} == {"n1"}
    assert plan.nodes == ()


def test_small_nodes_are_launched_where_they_are_cheaper_than_a_big_one(solve: Solve) -> None:
    plan = solve(*pods(8, cpu="1900m"))
    assert {planned.choice.instance_type for planned in plan.nodes} == {"medium"}


def test_a_pod_too_big_for_every_type_has_a_reason_and_a_nearest_miss(solve: Solve) -> None:
    plan = solve(pod("giant", cpu="1000000"))
    why = plan.unschedulable["default/giant"]
    assert why.code == "NO_TYPE_FITS"
    nearest = why.pools["default"].nearest
    assert nearest is not None
    assert nearest.instance_type == max(SHOP, key=lambda each: each.capacity["cpu"]).name
    assert why.pools["default"].steps[-1].left == 0


def test_a_node_selector_narrows_zone_and_type(solve: Solve) -> None:
    plan = solve(pod("a", nodeSelector={ZONE: "z2", "node.kubernetes.io/instance-type": "medium"}))
    assert {(c.zone, c.instance_type) for c in plan.nodes[0].offerings} == {("z2", "medium")}


def test_any_required_affinity_term_will_do(solve: Solve) -> None:
    terms = [
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["nowhere"]}]},
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z3"]}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert zones_of(solve(pod("a", affinity=affinity))) == ["z3"]


def test_a_claim_admits_no_combination_that_its_pods_refuse(solve: Solve) -> None:
    """Requirements name types, zones and capacity types; whatever they admit together may be launched."""
    shop = (kind("old", 4, 16, 0.10, spot=True), kind("new", 4, 16, 0.20, spot=True), kind("big", 8, 32, 0.40))
    terms = [
        {"matchExpressions": [{"key": INSTANCE_TYPE, "operator": "In", "values": ["new", "big"]}]},
        {
            "matchExpressions": [
                {"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]},
                {"key": ZONE, "operator": "In", "values": ["z2"]},
            ]
        },
    ]
    either = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    (planned,) = solve(pod("a", affinity=either), pools=(pool(types=shop),)).nodes
    said = {each["key"]: each["values"] for each in planned.requirements}
    together = {
        (each.name, o.zone, o.capacity_type)
        for each in shop
        for o in each.offerings
        if each.name in said[INSTANCE_TYPE] and o.zone in said[ZONE] and o.capacity_type in said[CAPACITY_TYPE]
    }
    assert together == {(each.instance_type, each.zone, each.capacity_type) for each in planned.offerings}
    assert (planned.choice.instance_type, planned.choice.zone, planned.price) == ("old", "z2", pytest.approx(0.04))


def test_what_a_claim_admits_gives_way_in_zones_where_types_have_to_vary(solve: Solve) -> None:
    shop = tuple(kind(name, 4, 16, price) for name, price in (("a", 0.10), ("b", 0.11), ("c", 0.12)))
    terms = [
        {"matchExpressions": [{"key": INSTANCE_TYPE, "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]},
    ]
    either = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    varied = pool(types=shop, requirements=({"key": INSTANCE_TYPE, "operator": "Exists", "min_values": 3},))
    (plain,) = solve(pod("a", affinity=either), pools=(pool(types=shop),)).nodes
    assert {each.instance_type for each in plain.offerings} == {"a", "b"}
    (planned,) = solve(pod("a", affinity=either), pools=(varied,)).nodes
    assert {(each.instance_type, each.zone) for each in planned.offerings} == {("a", "z1"), ("b", "z1"), ("c", "z1")}


def test_a_preferred_node_affinity_is_kept_while_it_can_be(solve: Solve) -> None:
    preference = {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    assert zones_of(solve(pod("a", affinity=affinity))) == ["z2"]


def test_a_preference_that_cannot_be_kept_is_relaxed_and_said_so(solve: Solve) -> None:
    preference = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["moon"]}]},
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
    plan = solve(pod("a", affinity=affinity))
    assert plan.placements["default/a"].relaxed


def test_preferences_are_not_looked_at_when_the_policy_says_so(solve: Solve) -> None:
    plan = solve(*pods(3, **near("podAntiAffinity", HOSTNAME, weight=1)), preferences=Preferences.IGNORE)
    assert len(plan.nodes) == 1


def test_a_zone_spread_uses_every_zone_the_pools_could_open(solve: Solve) -> None:
    assert zones_of(solve(*pods(6, cpu="100m", **spread()))) == ["z1", "z1", "z2", "z2", "z3", "z3"]


def test_a_zone_spread_counts_running_pods(solve: Solve) -> None:
    running = pods(2, "web", nodeName="n1")
    plan = solve(
        *(pod(f"new-{i}", labels={"app": "web"}, **spread()) for i in range(2)),
        nodes=(node("n1", cpu="2", pods=running),),
    )
    assert zones_of(plan) == ["z2", "z3"]


def test_min_domains_keeps_the_minimum_at_zero_until_there_are_enough(solve: Solve) -> None:
    plan = solve(*pods(6, cpu="100m", **spread(minDomains=4)))
    assert len(plan.unschedulable) == 3
    assert {why.code for why in plan.unschedulable.values()} == {"SPREAD"}


def test_a_hostname_spread_caps_pods_per_node(solve: Solve) -> None:
    plan = solve(*pods(6, cpu="100m", **spread(HOSTNAME, skew=2)))
    assert sorted(len(planned.pods) for planned in plan.nodes) == [2, 2, 2]


def test_a_soft_spread_that_costs_nothing_is_kept(solve: Solve) -> None:
    """Each pod needs a node of its own anyway."""
    plan = solve(*pods(3, cpu="1500m", **spread(whenUnsatisfiable="ScheduleAnyway")), pools=(pool(types=(SMALL,)),))
    assert zones_of(plan) == ["z1", "z2", "z3"]


def test_hostname_anti_affinity_gives_each_pod_its_own_node(solve: Solve) -> None:
    assert len(solve(*pods(4, cpu="100m", **near("podAntiAffinity", HOSTNAME))).nodes) == 4


def test_zone_anti_affinity_places_one_pod_per_zone_in_one_batch(solve: Solve) -> None:
    plan = solve(*pods(4, cpu="100m", **near("podAntiAffinity", ZONE)))
    assert zones_of(plan) == ["z1", "z2", "z3"]
    assert [why.code for why in plan.unschedulable.values()] == ["ANTI_AFFINITY"]


def test_running_pods_anti_affinity_keeps_others_away(solve: Solve) -> None:
    guard = pod("guard", labels={"app": "guard"}, nodeName="n1", **near("podAntiAffinity", HOSTNAME))
    plan = solve(pod("a", labels={"app": "web"}), nodes=(node("n1", pods=(guard,)),))
    assert plan.placements["default/a"].new_node is not None


def test_affinity_follows_pods_of_the_same_batch(solve: Solve) -> None:
    plan = solve(
        pod("cache", labels={"app": "cache"}, nodeSelector={ZONE: "z3"}),
        *pods(2, **near("podAffinity", ZONE, app="cache")),
    )
    assert zones_of(plan) == ["z3", "z3", "z3"]


def test_hostname_affinity_enlarges_the_node_it_must_share(solve: Solve) -> None:
    plan = solve(
        pod("cache", labels={"app": "cache"}, cpu="1500m"),
        *pods(3, cpu="3", **near("podAffinity", HOSTNAME, app="cache")),
    )
    assert [planned.choice.instance_type for planned in plan.nodes] == ["large"]


def test_self_affinity_settles_one_zone_for_all(solve: Solve) -> None:
    assert len(set(zones_of(solve(*pods(12, cpu="1500m", **near("podAffinity", ZONE)))))) == 1


def test_affinity_to_no_pod_has_a_reason(solve: Solve) -> None:
    plan = solve(pod("a", **near("podAffinity", ZONE, app="ghost")))
    assert plan.unschedulable["default/a"].code == "AFFINITY"


def test_taints_keep_pods_out_and_tolerations_let_them_in(solve: Solve) -> None:
    tainted = pool(taints=({"key": "gpu", "effect": "NoSchedule"},))
    assert solve(pod("a"), pools=(tainted,)).unschedulable["default/a"].code == "UNTOLERATED_TAINT"
    assert not solve(pod("a", tolerations=[{"key": "gpu", "operator": "Exists"}]), pools=(tainted,)).unschedulable


def test_prefer_no_schedule_is_avoided_and_borne_when_there_is_nothing_else(solve: Solve) -> None:
    disliked = pool("disliked", taints=({"key": "x", "effect": "PreferNoSchedule"},), weight=10)
    assert {m.pool for m in solve(pod("a"), pools=(disliked, pool("plain"))).nodes} == {"plain"}
    assert {m.pool for m in solve(pod("a"), pools=(disliked,)).nodes} == {"disliked"}


def test_host_ports_take_a_node_each(solve: Solve) -> None:
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    assert len(solve(*pods(3, cpu="100m", container=port)).nodes) == 3


def test_extended_resources_are_found_on_the_type_that_has_them(solve: Solve) -> None:
    gpu = kind("gpu", 4, 16, 3.0, capacity={"nvidia.com/gpu": 1})
    plan = solve(*pods(2, requests={"nvidia.com/gpu": "1"}), pools=(pool(types=(*SHOP, gpu)),))
    assert [m.choice.instance_type for m in plan.nodes] == ["gpu", "gpu"]


def test_the_heavier_pool_is_used_first(solve: Solve) -> None:
    plan = solve(*pods(3), pools=(pool("light"), pool("heavy", types=(LARGE,), weight=5)))
    assert {planned.pool for planned in plan.nodes} == {"heavy"}


def test_weight_decides_for_many_pods_too(solve: Solve) -> None:
    """Nodes chosen along a relaxation are of the heaviest pool that can serve a pod, however dear."""
    plan = solve(*pods(60, cpu="1500m"), pools=(pool("light"), pool("heavy", types=(LARGE,), weight=5)), deadline=0.2)
    assert {planned.pool for planned in plan.nodes} == {"heavy"}


def test_limits_hold_exactly_inside_a_batch(solve: Solve) -> None:
    plan = solve(*pods(8, cpu="1900m"), pools=(pool(limits={"cpu": 8000}),))
    assert len(plan.unschedulable) == 4
    assert {why.code for why in plan.unschedulable.values()} == {"LIMIT_REACHED"}


def test_a_limit_on_nodes_is_never_overshot(solve: Solve) -> None:
    plan = solve(*pods(6, cpu="100m", **near("podAntiAffinity", HOSTNAME)), pools=(pool(limits={"nodes": 3}),))
    assert len(plan.nodes) == 3


def test_a_spread_under_a_limit_stays_within_its_skew(solve: Solve) -> None:
    plan = solve(*pods(9, cpu="1900m", **spread()), pools=(pool(types=(SMALL,), limits={"cpu": 8000}),))
    assert len(plan.nodes) == 4


@pytest.mark.parametrize("name", ["a", "z"])
def test_when_there_is_not_enough_the_important_go_first(solve: Solve, name: str) -> None:
    """Whatever they are called: Karpenter takes pods of one size, age and UID by chance."""
    vip = pods(2, name, cpu="1900m", priority=1000)
    waiting = [replace(each, metadata=replace(each.metadata, uid="")) for each in (*pods(4, "m", cpu="1900m"), *vip)]
    plan = solve(*waiting, pools=(pool(types=(SMALL,), limits={"nodes": 2}),))
    assert vip and all(plan.placements[each.metadata.key].new_node for each in vip)


def test_daemonsets_take_their_share_of_every_node(solve: Solve) -> None:
    import msgspec

    from dovetail.model.workloads import DaemonSet

    body = {
        "metadata": {"name": "agent", "uid": "d"},
        "spec": {
            "template": {
                "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}]}
            }
        },
    }
    plan = solve(pod("a", cpu="1800m"), daemons=(msgspec.convert(body, DaemonSet),))
    assert plan.nodes[0].choice.instance_type == "medium"
    assert plan.nodes[0].requests["cpu"] == 2300


def test_offerings_known_to_be_unavailable_are_not_launched(solve: Solve) -> None:
    gone = frozenset(("small", zone, "on-demand") for zone in ("z1", "z2", "z3"))
    assert solve(pod("a"), unavailable=gone).nodes[0].choice.instance_type == "medium"


def test_reservations_are_used_as_far_as_they_reach(solve: Solve) -> None:
    reserved = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=2)
    types = (kind("small", 2, 8, 0.1, offerings=(*SMALL.offerings, reserved)),)
    plan = solve(*pods(3, cpu="1900m"), pools=(pool(types=types),))
    assert sorted(m.choice.capacity_type for m in plan.nodes) == ["on-demand", "reserved", "reserved"]
    assert plan.cost.per_hour == pytest.approx(0.1)


def test_min_values_keep_enough_types_to_choose_from(solve: Solve) -> None:
    need = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 2}
    plan = solve(*pods(20, cpu="700m"), pools=(pool(requirements=(need,)),))
    assert plan.nodes
    assert all(len({c.instance_type for c in planned.offerings}) >= 2 for planned in plan.nodes)


def test_min_values_that_cannot_be_met_leave_the_pod_unless_best_effort(solve: Solve) -> None:
    need = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 4}
    assert solve(pod("a"), pools=(pool(requirements=(need,)),)).unschedulable
    relaxed = solve(pod("a"), pools=(pool(requirements=(need,)),), min_values=MinValues.BEST_EFFORT)
    assert not relaxed.unschedulable


def test_a_pools_own_label_separates_pods_that_ask_for_different_values(solve: Solve) -> None:
    teams = pool(requirements=({"key": "team", "operator": "In", "values": ("a", "b")},))
    plan = solve(pod("x", nodeSelector={"team": "a"}), pod("y", nodeSelector={"team": "b"}), pools=(teams,))
    assert sorted(planned.labels["team"] for planned in plan.nodes) == ["a", "b"]


def test_a_label_no_pool_knows_is_named(solve: Solve) -> None:
    assert solve(pod("a", nodeSelector={"rack": "7"})).unschedulable["default/a"].code == "UNKNOWN_LABEL"


def test_an_empty_catalogue_and_no_pool_give_reasons(solve: Solve) -> None:
    assert solve(pod("a"), pools=()).unschedulable["default/a"].code == "NO_NODEPOOL"
    assert solve(pod("a"), pools=(pool(types=()),)).unschedulable


def test_a_missing_price_is_never_taken_for_nothing(solve: Solve) -> None:
    unpriced = kind("mystery", 2, 8, 0.1, offerings=(Offering(zone="z1", capacity_type="on-demand", price=None),))
    assert solve(pod("a"), pools=(pool(types=(unpriced, MEDIUM)),)).nodes[0].choice.instance_type == "medium"


def test_pods_of_a_node_that_goes_are_placed_elsewhere(solve: Solve) -> None:
    moving = pod("a", nodeName="old")
    plan = solve(moving, nodes=(node("old", pods=(moving,), deleting=True), node("new")))
    assert plan.placements["default/a"].node == "new"


def test_the_search_never_costs_more_than_the_quick_answer(solve: Solve) -> None:
    mixed = (
        *pods(9, "a", cpu="700m", memory="5Gi"),
        *pods(7, "b", cpu="1900m", **spread(app="b")),
        *pods(3, "c", cpu="300m", **near("podAntiAffinity", HOSTNAME, app="c")),
    )
    quick, better = solve(*mixed), solve(*mixed, deadline=0.3)
    assert better.cost.per_hour <= quick.cost.per_hour + 1e-9
    assert better.cost.lower_bound is not None
    assert better.cost.lower_bound <= better.cost.per_hour + 1e-9


def test_a_spread_over_a_zone_without_suitable_types_stops_at_its_skew(solve: Solve) -> None:
    """Two zones must not run ahead of one that cannot be filled."""
    types = (kind("here", 2, 8, 0.1, zones=("z1", "z2")), kind("tiny", 0.1, 0.1, 0.01))
    plan = solve(*pods(9, cpu="900m", **spread()), pools=(pool(types=types),))
    assert zones_of(plan) == ["z1", "z2"]
    assert len(plan.unschedulable) == 7


def test_a_nodes_limit_never_leaves_a_spread_lopsided(solve: Solve) -> None:
    first = pods(4, "lone", cpu="1500m", **near("podAntiAffinity", HOSTNAME, app="lone"))
    plan = solve(*first, *pods(6, cpu="100m", **spread()), pools=(pool(limits={"nodes": 4}),))
    assert len(plan.nodes) <= 4


def test_a_pod_is_put_where_the_one_that_must_follow_it_can_go(solve: Solve) -> None:
    leader = pod("leader", labels={"app": "leader"}, cpu="500m")
    follower = pod("follower", nodeSelector={ZONE: "z2"}, **near("podAffinity", HOSTNAME, app="leader"))
    plan = solve(leader, follower)
    assert zones_of(plan) == ["z2", "z2"]


def test_a_node_says_why_the_cheaper_ones_lost(solve: Solve) -> None:
    plan = solve(pod("a", cpu="3"))
    (lost,) = plan.nodes[0].cheaper
    assert lost.choice.instance_type == "small"
    assert lost.because == "too small: cpu 3 > 2"


def test_co_located_pods_is_a_pod_that_every_affinity_of_a_pod_selects(solve: Solve) -> None:
    """The scheduler counts no pod that only one of several terms means: one of each kind is not co-located pods
    enough.
    """
    both = near("podAffinity", ZONE, "one")
    terms = both["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms += near("podAffinity", HOSTNAME, "two")["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    there = (*pods(1, "one", cpu="100m"), *pods(1, "two", cpu="100m"))
    assert set(solve(*there, *pods(1, "lean", cpu="100m", **both)).unschedulable) == {"default/lean-0"}
    terms[1]["labelSelector"] = {"matchLabels": {"tier": "x"}}
    friend = pods(1, "one", cpu="100m", labels={"app": "one", "tier": "x"})
    assert not solve(*friend, *pods(1, "lean", cpu="100m", **both)).unschedulable


def test_a_spread_with_slack_leaves_dear_zones_alone(solve: Solve) -> None:
    """The small node is not offered in the third zone; three pods may differ by three, so no pod has to go there."""
    shop = (kind("small", 2, 8, 0.10, zones=("z1", "z2")), kind("giant", 64, 256, 4.0))
    plan = solve(*pods(3, cpu="1500m", **spread(skew=3)), pools=(pool(types=shop),))
    assert round(plan.cost.per_hour, 6) == 0.30
