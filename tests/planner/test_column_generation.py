"""Column generation: few pod sizes are packed nearly at the optimum, within limits, domains and NodePool weights."""

from __future__ import annotations

import random
from functools import cache

from dovetail.model.instance_type import InstanceType
from dovetail.model.pods import Pod
from dovetail.planner.launch.assemble import plan_of
from dovetail.planner.optimise.column_generation import packed_by_columns, packs_all
from dovetail.planner.packing.pack import Packing, pack
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Pool, Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, kind, near, node, pods, pool, spread

#: The optimum is proven to this gap, and only patterns that are nearly worth their price are used.
_NEAR_THE_OPTIMUM = 1.01


def _packed(pending: tuple[Pod, ...], pools: tuple[Pool, ...], **more: object) -> tuple[Packing, Packing | None, Plan]:
    """The first packing, the one by columns, and the better one's plan, which the verifier has accepted."""
    snapshot = Snapshot(pools=pools, pending=pending, **more)
    problem = Problem(snapshot)
    first = pack(problem, Strategy())
    packing = packed_by_columns(problem, first)
    plan = plan_of(problem, packing or first)
    assert [str(violation) for violation in verify(plan, snapshot)] == []
    return first, packing, plan


def _optimum(counts: tuple[int, ...], sizes: tuple[int, ...], types: tuple[tuple[int, float], ...]) -> float:
    """The least cost of nodes for pods of some sizes in one resource, by dynamic programming over what is left."""

    @cache
    def least(left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        first = next(size for size, count in enumerate(left) if count)
        return min(
            price + least(tuple(count - taken for count, taken in zip(left, filling, strict=True)))
            for capacity, price in types
            for filling in _fillings(left, sizes, capacity)
            if filling[first]
        )

    return least(counts)


def _fillings(left: tuple[int, ...], sizes: tuple[int, ...], capacity: int) -> list[tuple[int, ...]]:
    """Maximal fillings of a node."""
    if not left:
        return [()]
    most = min(left[0], capacity // sizes[0])
    numbers = range(most + 1) if len(left) > 1 else (most,)
    return [
        (number, *rest) for number in numbers for rest in _fillings(left[1:], sizes[1:], capacity - number * sizes[0])
    ]


def test_packings_of_random_sizes_are_near_the_optimum() -> None:
    improved = 0
    for seed in range(12):
        chance = random.Random(seed)
        sizes = tuple(chance.sample((3, 4, 5, 7, 9), 3))
        counts = tuple(chance.randint(2, 7) for _ in sizes)
        types = tuple((capacity, capacity * chance.uniform(0.8, 1.2)) for capacity in (8, 12, 20, 32))
        shop = tuple(kind(f"t{capacity}", capacity, 512, price) for capacity, price in types)
        pending = tuple(
            each
            for size, count in zip(sizes, counts, strict=True)
            for each in pods(count, name=f"s{size}", cpu=str(size), memory="1Mi")
        )
        first, packing, _ = _packed(pending, (pool(types=shop),))
        assert packing is not None
        optimum = _optimum(counts, sizes, types)
        assert optimum - 1e-9 <= packing.cost <= _NEAR_THE_OPTIMUM * optimum, (seed, first.cost)
        improved += packing.cost < first.cost - 1e-9
    assert improved >= 4


def test_a_limit_holds_and_a_solution_within_it_is_found() -> None:
    shop = (kind("small", 4, 64, 1.0), kind("large", 16, 64, 3.0))
    first, packing, plan = _packed(
        (*pods(6, cpu="3", memory="1Mi"), *pods(4, name="db", cpu="1", memory="1Mi")),
        (pool(types=shop, limits={"cpu": 24_000}),),
    )
    assert packing is not None and packing.cost <= first.cost
    assert sum(_cpu(shop, planned.choice.instance_type) for planned in plan.nodes) <= 24


def _cpu(types: tuple[InstanceType, ...], name: str) -> int:
    return next(each.capacity["cpu"] for each in types if each.name == name) // 1000


def test_pods_stay_in_the_zones_of_their_spread() -> None:
    shop = tuple(kind(f"t{cpu}", cpu, 64, price) for cpu, price in ((4, 0.4), (6, 0.55), (12, 1.05)))
    _, packing, plan = _packed(
        (*pods(9, cpu="2", memory="1Mi", **spread()), *pods(5, name="db", cpu="3", memory="1Mi")), (pool(types=shop),)
    )
    assert packing is not None
    zones = [planned.choice.zone for planned in plan.nodes for name in planned.pods if "web" in name]
    assert sorted(zones.count(zone) for zone in {*zones}) == [3, 3, 3]


def test_a_lighter_nodepool_has_no_node_without_a_pod_that_needs_it() -> None:
    heavy = pool("heavy", types=(kind("costly", 4, 64, 1.0),), weight=10)
    light = pool("light", types=(kind("cheap", 4, 64, 0.1, labels={"arch": ("arm64",)}),))
    arm = {"nodeSelector": {"arch": "arm64"}}
    _, packing, plan = _packed(
        (*pods(6, cpu="1", memory="1Mi"), *pods(2, name="arm", cpu="2", memory="1Mi", **arm)), (heavy, light)
    )
    assert packing is not None
    lighter = [planned for planned in plan.nodes if planned.pool == "light"]
    assert lighter and all(any("arm" in name for name in planned.pods) for planned in lighter)


def test_pods_on_existing_nodes_stay_there() -> None:
    shop = (kind("small", 4, 64, 1.0), kind("large", 16, 64, 3.0))
    _, packing, plan = _packed(pods(12, cpu="3", memory="1Mi"), (pool(types=shop),), nodes=(node("n1", cpu="6"),))
    assert packing is not None
    assert sum(placement.node == "n1" for placement in plan.placements.values()) == 2


def test_rules_about_hostnames_are_left_to_the_search() -> None:
    _, packing, _ = _packed(pods(4, cpu="1", **near("podAntiAffinity", HOSTNAME)), (pool(),))
    assert packing is None


def test_pods_with_rules_about_hostnames_keep_their_nodes_and_the_others_are_packed_anew() -> None:
    """The first packing fills nodes of 4 CPUs with one pod each; three of the largest nodes are cheaper for all."""
    shop = (kind("small", 4, 64, 1.0), kind("large", 18, 64, 3.0))
    apart = pods(3, name="apart", cpu="3", memory="1Mi", **near("podAntiAffinity", HOSTNAME, app="apart"))
    snapshot = Snapshot(pools=(pool(types=shop),), pending=(*apart, *pods(15, name="job", cpu="3500m", memory="1Mi")))
    problem = Problem(snapshot)
    first = pack(problem, Strategy(max_node_price=1.0))
    packing = packed_by_columns(problem, first)
    assert packing is not None and not packs_all(packing)
    assert (first.cost, packing.cost) == (18.0, 3 * 1.0 + 3 * 3.0)
    assert verify(plan_of(problem, packing), snapshot) == []


def test_nodes_of_a_lighter_nodepool_are_opened_where_a_limit_of_the_heavier_one_binds() -> None:
    heavy = pool("heavy", types=(kind("costly", 4, 64, 1.0),), weight=10, limits={"cpu": 8_000})
    light = pool("light", types=(kind("cheap", 8, 64, 0.9), kind("cheapest", 16, 64, 1.5)))
    first, packing, plan = _packed(
        (*pods(7, cpu="2", memory="1Mi"), *pods(5, name="db", cpu="3", memory="1Mi")), (heavy, light)
    )
    assert packing is not None and packing.cost < first.cost
    assert sum(planned.pool == "heavy" for planned in plan.nodes) <= 2
