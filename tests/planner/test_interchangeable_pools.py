"""NodePools that no pod can distinguish are planned as one; limits, names and weights stay right."""

from __future__ import annotations

from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Pool, Snapshot
from tests.planner.conftest import HOSTNAME, SHOP, ZONE, Solve, node, pod, pods, pool, spread

TEAM = "example.com/team"


def teams(count: int, **more: object) -> tuple[Pool, ...]:
    """NodePools that differ in one label."""
    return tuple(pool(f"pool-{n:03}", labels={TEAM: f"t{n}"}, **more) for n in range(count))


def planned_with(*pending: object, **more: object) -> list[str]:
    """The names of the NodePools that a problem is compiled for."""
    return [each.name for each in Problem(Snapshot(pending=pending, **more)).pools]


def test_pools_that_differ_in_a_label_that_no_pod_mentions_count_as_one() -> None:
    assert planned_with(*pods(5), pools=teams(50)) == ["pool-000"]


def test_the_plan_is_that_of_one_pool(solve: Solve) -> None:
    one, many = solve(*pods(20), pools=teams(1)), solve(*pods(20), pools=teams(50))
    assert many.cost.per_hour == one.cost.per_hour
    assert {planned.pool for planned in many.nodes} == {"pool-000"}


def test_a_pool_that_a_pod_selects_is_kept(solve: Solve) -> None:
    plan = solve(pod("a", nodeSelector={TEAM: "t37"}), pod("b"), pools=teams(50))
    assert plan.placements["default/a"].new_node is not None
    assert "pool-037" in {planned.pool for planned in plan.nodes}


def test_a_pool_selected_by_its_name_is_kept(solve: Solve) -> None:
    plan = solve(pod("a", nodeSelector={"karpenter.sh/nodepool": "pool-041"}), pools=teams(50))
    assert [planned.pool for planned in plan.nodes] == ["pool-041"]


def test_a_pool_that_a_pod_avoids_is_not_the_one_that_stands_for_the_others(solve: Solve) -> None:
    term = {"matchExpressions": [{"key": TEAM, "operator": "NotIn", "values": ["t0"]}]}
    away = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    plan = solve(pod("a", affinity=away), pools=teams(50))
    assert [planned.pool for planned in plan.nodes] == ["pool-001"]


def test_every_pool_of_a_label_that_pods_spread_over_is_kept(solve: Solve) -> None:
    plan = solve(*pods(12, **spread(key=TEAM)), pools=teams(12))
    assert len({planned.pool for planned in plan.nodes}) == 12


def test_a_limit_that_may_bind_keeps_the_pools_behind_it(solve: Solve) -> None:
    limited = tuple(pool(f"small-{n}", limits={"cpu": 16_000}, weight=10) for n in range(2))
    pools = (*limited, pool("a"), pool("b"))
    assert planned_with(*pods(40), pools=pools) == ["small-0", "small-1", "a"]
    plan = solve(*pods(40), pools=pools)
    assert not plan.unschedulable
    assert "b" not in {planned.pool for planned in plan.nodes}


def test_a_limit_counts_what_the_pool_already_has() -> None:
    """The first of two equal NodePools has all that its limit allows: the second is needed."""
    there = node("n1", pool="a", cpu="4")
    limits = {"cpu": 5000}
    assert planned_with(*pods(2), nodes=(there,), pools=(pool("a", limits=limits), pool("b"))) == ["a", "b"]
    assert planned_with(*pods(2), pools=(pool("a", limits={"cpu": 10**9}), pool("b"))) == ["a"]


def test_different_types_taints_and_requirements_are_reported_apart() -> None:
    taint = ({"key": "x", "value": "y", "effect": "NoSchedule"},)
    pools = (pool("a"), pool("b", types=SHOP[:1]), pool("c", taints=taint), pool("d"))
    assert planned_with(*pods(2), pools=pools) == ["a", "b", "c"]


def test_the_heaviest_stands_for_the_others() -> None:
    assert planned_with(*pods(2), pools=(pool("a"), pool("z", weight=5))) == ["z"]


def test_every_pool_is_in_the_reason_of_a_pod_without_a_node(solve: Solve) -> None:
    plan = solve(pod("a", cpu="500"), pools=teams(30))
    funnels = plan.unschedulable["default/a"].pools
    assert sorted(funnels) == [f"pool-{n:03}" for n in range(30)]


def test_values_of_a_label_are_suggested_from_all_pools_where_they_are_few(solve: Solve) -> None:
    plan = solve(pod("a", nodeSelector={TEAM: "t9"}), pools=teams(3))
    expected = " ".join(funnel.emptied_by for funnel in plan.unschedulable["default/a"].pools.values())
    assert {"t0", "t1", "t2"} <= set(expected.replace(")", " ").split())


def test_zone_and_hostname_rules_do_not_split_pools() -> None:
    assert planned_with(
        *pods(6, **spread(key=ZONE)), *pods(6, "db", **spread(key=HOSTNAME, app="db")), pools=teams(20)
    ) == ["pool-000"]


def test_as_many_pools_are_kept_as_have_limits_that_together_cannot_bind(solve: Solve) -> None:
    """Each holds some of the pods, ten hold all of them: a thousand would only multiply the offerings."""
    pools = teams(200, limits={"cpu": 100_000})
    kept = planned_with(*pods(40), pools=pools)
    assert 1 < len(kept) < 20
    plan = solve(*pods(40), pools=pools)
    assert not plan.unschedulable
    assert plan.cost.per_hour == solve(*pods(40), pools=teams(1)).cost.per_hour


def test_pools_whose_limits_hold_no_node_stand_for_nothing() -> None:
    full, tiny = pool("a", limits={"cpu": 1000}), pool("b", limits={"cpu": 1000})
    assert planned_with(*pods(2), pools=(full, tiny, pool("c"), pool("d"))) == ["a", "b", "c"]


def test_pools_are_added_where_the_limits_of_those_that_were_kept_leave_pods_pending(solve: Solve) -> None:
    """A node for each small pod takes far more of a limit than the pods request."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    alone = pods(60, cpu="10m", memory="1Mi", labels={"app": "web"}, affinity=apart)
    pools = teams(10, limits={"cpu": 50_000})
    assert planned_with(*alone, pools=pools) == ["pool-000"]
    assert len(solve(*alone, pools=pools[:1]).unschedulable) == 35
    plan = solve(*alone, pools=pools)
    assert not plan.unschedulable
    assert len({planned.pool for planned in plan.nodes}) > 2
