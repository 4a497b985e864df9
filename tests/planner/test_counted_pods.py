"""A spread counts pods that it does not bind. They may go anywhere, once its owners are placed, if they must."""

from __future__ import annotations

from tests.planner.conftest import HOSTNAME, SMALL, ZONE, Solve, near, node, pods, pool, spread


def test_those_a_spread_only_counts_go_where_they_must(solve: Solve) -> None:
    """Pinned to a zone, they would tip the balance; no pod asks them to keep it."""
    pinned = pods(7, "pinned", cpu="100m", labels={"app": "web"}, nodeSelector={ZONE: "z2"})
    assert not solve(*pods(3, cpu="100m", **spread()), *pinned).unschedulable


def test_those_a_spread_only_counts_stay_off_its_owners_nodes_where_no_pod_goes_short(solve: Solve) -> None:
    """No pod knows who is bound first: an owner that comes second would find its node taken."""
    owners = pods(4, cpu="900m", **spread(HOSTNAME))
    others = pods(4, "other", cpu="900m", labels={"app": "web"})
    plan = solve(*owners, *others, pools=(pool(types=(SMALL,)),))
    assert not plan.unschedulable
    assert plan.nodes
    assert plan.nodes and all(len({name.rsplit("-")[0] for name in planned.pods}) == 1 for planned in plan.nodes)


def test_a_spread_with_slack_launches_no_node_for_balance(solve: Solve) -> None:
    standing = (node("n1", "z1", cpu="2"), node("n2", "z2", cpu="4"))
    plan = solve(*pods(4, cpu="900m", **spread(skew=4)), nodes=standing)
    assert not plan.nodes


def test_a_preference_to_be_apart_holds_in_the_end(solve: Solve) -> None:
    """Those that are avoided come first; otherwise they would follow into the zone and no pod had relaxed a thing."""
    shy = pods(24, "shy", cpu="1500m", **near("podAntiAffinity", ZONE, app="loud", weight=50))
    loud = pods(2, "loud", cpu="200m", nodeSelector={"kubernetes.io/arch": "amd64"})
    plan = solve(*shy, *loud)
    zones = {planned.name: planned.choice.zone for planned in plan.nodes}
    where: dict[str, set[str]] = {key.rsplit("-")[0]: set() for key in plan.placements}
    for key, place in plan.placements.items():
        where[key.rsplit("-")[0]].add(zones[place.new_node or ""])
    assert not where["default/shy"] & where["default/loud"]


def test_those_that_owners_need_near_are_counted(solve: Solve) -> None:
    """They must come first, so the spread sees them: a pod that follows them may find the balance tipped."""
    base = pods(4, "base", cpu="100m", labels={"app": "base", "tier": "x"}, nodeSelector={ZONE: "z1"})
    rule = spread()
    rule["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"tier": "x"}}
    near_base = near("podAffinity", ZONE, "base")
    leaning = pods(2, "lean", cpu="100m", labels={"app": "lean", "tier": "x"}, **rule, **near_base)
    assert set(solve(*base, *leaning).unschedulable) == {"default/lean-0", "default/lean-1"}


def test_spreads_that_count_each_others_owners_both_hold(solve: Solve) -> None:
    one, other = spread(), spread()
    one["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"tier": "x"}}
    other["topologySpreadConstraints"][0] |= {"labelSelector": {"matchLabels": {"tier": "x"}}, "maxSkew": 2}
    first = pods(5, "one", cpu="100m", labels={"tier": "x"}, **one)
    assert not solve(*first, *pods(7, "other", cpu="200m", labels={"tier": "x"}, **other)).unschedulable


def test_those_with_a_spread_of_their_own_are_levelled_for_others(solve: Solve) -> None:
    """They look at capacity types, the owners at zones, and neither can wait for the other."""
    soft = {**spread("karpenter.sh/capacity-type", app="big")["topologySpreadConstraints"][0]}
    soft["whenUnsatisfiable"] = "ScheduleAnyway"
    mutual = spread(HOSTNAME, 2, app="x")["topologySpreadConstraints"]
    mutual[0]["labelSelector"] = {"matchLabels": {"tier": "back"}}
    big = pods(7, "big", cpu="1500m", labels={"app": "big", "tier": "back"}, topologySpreadConstraints=[soft, *mutual])
    owned = spread(app="web")["topologySpreadConstraints"] + spread(app="web")["topologySpreadConstraints"]
    owned[1]["labelSelector"] = {"matchLabels": {"tier": "back"}}
    owners = pods(12, cpu="100m", labels={"app": "web", "tier": "back"}, topologySpreadConstraints=owned)
    assert not solve(*big, *owners).unschedulable


def test_pods_on_their_way_out_keep_others_away_to_the_end_but_balance_nothing(solve: Solve) -> None:
    """The scheduler asks them until they are gone; a spread does not count them."""
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    shy = pods(1, "shy", cpu="100m", **near("podAntiAffinity", HOSTNAME), **gone)
    left = pods(1, "old", cpu="100m", labels={"app": "web"}, **gone)
    assert [place.node for place in solve(*pods(1), nodes=(node("n1", pods=shy),)).placements.values()] == [None]
    apart = pods(1, **near("podAntiAffinity", HOSTNAME))
    assert [place.node for place in solve(*apart, nodes=(node("n1", pods=left),)).placements.values()] == [None]
    level = pods(1, **spread(HOSTNAME))
    assert [place.node for place in solve(*level, nodes=(node("n1", pods=left),)).placements.values()] == ["n1"]
