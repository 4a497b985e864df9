"""A preference counts where every pod has ended up, whether or not a pod gave it up on the way."""

from __future__ import annotations

from typing import Any

from dovetail.model.labels import INSTANCE_TYPE
from dovetail.model.pods import Pod
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision, quick_packing
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.planner.verify import verify

from .conftest import HOSTNAME, SMALL, ZONE, kind, near, node, pods, pool, spread

_SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def _unkept(*pending: Pod, pools: tuple[Pool, ...] | None = None, **more: Any) -> int:
    return quick_packing(Problem(Snapshot(pools=pools or (pool(),), pending=pending, **more))).violated_count


def _prefers(key: str, *values: str) -> dict[str, Any]:
    preference = {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]},
    }
    return {"affinity": {"nodeAffinity": {_SOFT: [preference]}}}


def test_a_preferred_type_that_is_not_offered_is_violated_by_every_pod() -> None:
    assert _unkept(*pods(3, **_prefers(INSTANCE_TYPE, "none"))) == 3
    assert _unkept(*pods(1, **_prefers(INSTANCE_TYPE, "small"))) == 0


def test_pods_without_preferences_violate_none() -> None:
    assert _unkept(*pods(3)) == 0


def test_a_prefer_no_schedule_taint_counts_on_new_and_existing_nodes() -> None:
    taint = {"key": "k", "value": "v", "effect": "PreferNoSchedule"}
    disliked = pool(taints=(taint,))
    assert _unkept(*pods(3), pools=(disliked,)) == 3
    assert _unkept(*pods(1), pools=(disliked,), nodes=(node("n1"),)) == 0
    assert _unkept(*pods(2, tolerations=[{"key": "k", "operator": "Exists"}]), pools=(disliked,)) == 0


def test_a_preferred_affinity_to_absent_pods_is_violated() -> None:
    assert _unkept(*pods(2, **near("podAffinity", ZONE, app="absent", weight=1))) == 2
    assert _unkept(*pods(2, **near("podAffinity", HOSTNAME, weight=1))) == 0


def test_a_soft_spread_sees_every_zone_that_could_be_opened() -> None:
    held = pods(4, nodeSelector={ZONE: "z1"}, **spread(whenUnsatisfiable="ScheduleAnyway", nodeAffinityPolicy="Ignore"))
    assert _unkept(*held, pools=(pool(types=(SMALL,)),)) == 4


def test_a_soft_spread_looks_only_at_nodes_that_its_pods_may_use() -> None:
    """There is room in one row alone; a node of another one stands where they must not go."""
    shut = pool(requirements=({"key": "row", "operator": "In", "values": ("a", "b")},), limits={"nodes": 0})
    rows = (node("n1", labels={"row": "a"}), node("n2", zone="z2", labels={"row": "b"}))
    for policy, missed in (("Honor", 0), ("Ignore", 3)):
        rule = spread("row", whenUnsatisfiable="ScheduleAnyway", nodeAffinityPolicy=policy)
        assert _unkept(*pods(3, nodeSelector={ZONE: "z1"}, **rule), nodes=rows, pools=(shut,)) == missed


def test_a_soft_spread_looks_at_nodes_that_are_full() -> None:
    """However many there are: no pod goes there, but their row is one to level with."""
    shut = pool(requirements=({"key": "row", "operator": "In", "values": ("a", "b")},), limits={"nodes": 0})
    full = tuple(node(f"full-{at}", cpu="10m", labels={"row": "b"}) for at in range(300))
    rule = spread("row", whenUnsatisfiable="ScheduleAnyway")
    assert _unkept(*pods(3, **rule), nodes=(*full, node("n1", labels={"row": "a"})), pools=(shut,)) == 3


def _offered(shop: Pool, *preferences: tuple[str, ...]) -> set[tuple[str, str]]:
    """What the nodes for pods with such preferences may be, the heaviest preference first."""
    terms = [
        {"weight": 100 - at, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": values}]}}
        for at, (key, *values) in enumerate(preferences)
    ]
    snapshot = Snapshot(pools=(shop,), pending=pods(3, affinity={"nodeAffinity": {_SOFT: terms}}))
    plan = provision(snapshot, deadline=0.2, optimiser=better_by_work)
    assert verify(plan, snapshot) == []
    return {(each.instance_type, each.zone) for planned in plan.nodes for each in planned.offerings}


def test_preferences_beside_the_heaviest_are_kept_too_and_by_whichever_offering_is_launched() -> None:
    """All zones cost the same, so the second preference costs nothing but a thought."""
    assert _offered(pool(), (INSTANCE_TYPE, "medium"), (ZONE, "z2")) == {("medium", "z2")}


def test_preferences_are_kept_by_every_offering_as_far_as_they_leave_the_variety_that_a_pool_asks_for() -> None:
    """In one zone there are two types; of one type there are not."""
    varied = pool(requirements=({"key": INSTANCE_TYPE, "operator": "Exists", "min_values": 2},))
    assert _offered(varied, (INSTANCE_TYPE, "medium", "large"), (ZONE, "z2")) == {("medium", "z2"), ("large", "z2")}
    assert _offered(varied, (ZONE, "z2"), (INSTANCE_TYPE, "medium")) == {("medium", "z2"), ("large", "z2")}


def test_the_class_with_most_violations_on_all_nodes_together_is_restored_first() -> None:
    """Only so many classes are tried: one pod on each of ten nodes counts for more than four pods on one node."""
    shop = pool(types=(SMALL, kind("luxury", 2, 8, 5.0)))
    luxury = _prefers(INSTANCE_TYPE, "luxury")
    costly = [costly_pod for at in range(9) for costly_pod in pods(4, f"costly{at}", cpu=f"{460 + at}m", **luxury)]
    free = pods(10, "free", cpu="1600m", **_prefers(ZONE, "z2"))
    problem = Problem(Snapshot(pools=(shop,), pending=(*costly, *free)))
    violated = {
        problem.classes[index].pods[0].rpartition("/")[2].rpartition("-")[0]
        for index, _, _ in quick_packing(problem).violated
    }
    assert violated == {f"costly{at}" for at in range(9)}
