"""Karpenter does what Karpenter is seen to do, good or bad: one behaviour each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.labels import CAPACITY_TYPE, INSTANCE_TYPE
from dovetail.model.pods import Pod
from dovetail.planner.baseline.scheduler import BaselineOutcome, SchedulerSimulation
from dovetail.planner.offerings.catalog import lowest
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Pool, Snapshot

from .conftest import HOSTNAME, LARGE, MEDIUM, SMALL, ZONE, kind, near, node, pods, pool, spread


class Run:
    """An outcome in words: what each claim is, and who is on it or on a node that was there."""

    def __init__(self, *pending: Pod, pools: tuple[Pool, ...] | None = None, **more: Any) -> None:
        snapshot = Snapshot(pools=pools or (pool(),), pending=pending, **more)
        self.problem = Problem(snapshot)
        self.outcome: BaselineOutcome = SchedulerSimulation(self.problem).run()

    @property
    def types(self) -> list[str]:
        rows = self.problem.catalog.rows
        return sorted(rows[lowest(mask)].type.name for mask in self.outcome.masks.values())

    @property
    def loads(self) -> list[int]:
        return sorted(Counter(each.place for each in self.outcome.placed if each.place < 0).values())

    @property
    def pools(self) -> set[str]:
        rows = self.problem.catalog.rows
        return {self.problem.pools[rows[lowest(mask)].pool].name for mask in self.outcome.masks.values()}

    @property
    def left(self) -> int:
        return sum(self.outcome.left.values())

    @property
    def relaxed(self) -> int:
        return sum(len(each.request.level.relaxed) for each in self.outcome.placed)


def test_a_claim_grows_to_the_largest_type_before_another_is_opened() -> None:
    assert Run(*pods(16)).types == ["large"]
    assert Run(*pods(17)).types == ["large", "small"]


def test_existing_nodes_come_first() -> None:
    run = Run(*pods(3), nodes=(node("n1", cpu="2"),))
    assert [each.place for each in run.outcome.placed] == [0, 0, -1]


def test_of_open_claims_the_one_with_fewest_pods_takes_the_next() -> None:
    alone = pods(2, "alone", cpu="2", **near("podAntiAffinity", HOSTNAME, app="alone"))
    assert Run(*alone, *pods(4, "web", cpu="100m")).loads == [3, 3]


def test_the_heaviest_pool_comes_first_and_then_the_last_by_name() -> None:
    """The NodePools differ in the order of their types alone, so that neither stands for the other."""
    other = (LARGE, MEDIUM, SMALL)
    assert Run(*pods(1), pools=(pool("a"), pool("b", types=other))).pools == {"b"}
    assert Run(*pods(1), pools=(pool("a", weight=2), pool("b", types=other))).pools == {"a"}


def test_a_claim_counts_against_a_limit_as_the_largest_it_may_become() -> None:
    """Two nodes of 2 CPUs would do; the first is counted as one of 16."""
    alone = pods(2, **near("podAntiAffinity", HOSTNAME))
    assert Run(*alone, pools=(pool(limits={"cpu": 16_000}),)).left == 1


def test_a_pod_that_could_use_a_reservation_that_others_hold_waits() -> None:
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    shop = (kind("small", 2, 8, 0.1, offerings=(*SMALL.offerings, kept)),)
    alone = pods(3, **near("podAntiAffinity", HOSTNAME))
    run = Run(*alone, pools=(pool(types=shop),))
    assert (run.left, run.outcome.price) == (2, 0.0)


def _reserved(name: str, cpu: int, count: int) -> InstanceType:
    """A type that is offered by a reservation alone, with so many nodes left."""
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id=name, reservation_capacity=count)
    return kind(name, cpu, 4 * cpu, 0.1, offerings=(kept,))


def test_a_reservation_that_is_used_up_counts_for_variety_and_takes_no_pod() -> None:
    needs = ({"key": INSTANCE_TYPE, "operator": "Exists", "min_values": 2},)
    run = Run(*pods(1), pools=(pool(types=(_reserved("left", 2, 1), _reserved("gone", 2, 0)), requirements=needs),))
    assert (run.types, run.left) == (["left"], 0)
    assert Run(*pods(1), pools=(pool(types=(_reserved("gone", 2, 0),)),)).left == 1


def test_no_pod_waits_for_a_reservation_that_is_used_up() -> None:
    assert Run(*pods(1), pools=(pool(types=(SMALL, _reserved("gone", 2, 0))),)).types == ["small"]


def test_a_spread_goes_to_the_domain_with_fewest_pods() -> None:
    run = Run(*pods(6, **spread()))
    assert run.loads == [2, 2, 2]


def test_an_affinity_to_pods_whose_zone_is_open_fails() -> None:
    others = pods(1, "db", cpu="2")
    assert Run(*others, *pods(1, **near("podAffinity", ZONE, app="db"))).left == 1


def test_the_first_of_those_who_want_to_be_together_may_leave_two_zones_open() -> None:
    """Both are drawn; no pod is counted before the zone is certain, so the next one draws again."""
    problem = Problem(Snapshot(pools=(pool(),), pending=pods(1, **near("podAffinity", ZONE))))
    open_to = [
        {row.offering.zone for row in problem.catalog.listed(mask)}
        for turn in range(3)
        for mask in SchedulerSimulation(problem, turn).run().masks.values()
    ]
    assert [len(zones) for zones in open_to] == [1, 2, 2]


def test_anti_affinity_over_zones_blocks_every_zone_a_claim_may_end_in() -> None:
    assert Run(*pods(3, **near("podAntiAffinity", ZONE))).left == 2


def test_a_soft_rule_is_relaxed_before_the_pod_goes_without() -> None:
    run = Run(*pods(2, **near("podAffinity", ZONE, app="absent", weight=1)))
    assert (run.left, run.relaxed) == (0, 2)


def test_a_domain_that_only_a_pool_names_stays_empty_for_ever() -> None:
    """Nothing reserved is offered, and yet it holds the others down to the skew."""
    needs = ({"key": CAPACITY_TYPE, "operator": "In", "values": ("on-demand", "reserved")},)
    soft = spread(CAPACITY_TYPE, whenUnsatisfiable="ScheduleAnyway")
    run = Run(*pods(3, **soft), pools=(pool(types=(SMALL, MEDIUM, LARGE), requirements=needs),))
    assert (run.left, run.relaxed) == (0, 2)


def test_a_new_claim_goes_to_the_emptiest_domain_though_no_pod_sells_it() -> None:
    """So claims keep the spread only while other domains are as empty; the skew would allow three in each."""
    needs = ({"key": CAPACITY_TYPE, "operator": "In", "values": ("on-demand", "reserved", "spot")},)
    alone = near("podAntiAffinity", HOSTNAME) | spread(CAPACITY_TYPE, 3, whenUnsatisfiable="ScheduleAnyway")
    run = Run(*pods(6, **alone), pools=(pool(types=(kind("small", 2, 8, 0.1, spot=True),), requirements=needs),))
    assert (run.left, run.relaxed) == (0, 4)


def test_a_domain_that_only_a_pool_names_is_none_to_pods_that_must_not_go_there() -> None:
    needs = ({"key": CAPACITY_TYPE, "operator": "In", "values": ("on-demand", "reserved")},)
    chosen = pods(3, nodeSelector={CAPACITY_TYPE: "on-demand"}, **spread(CAPACITY_TYPE))
    assert Run(*chosen, pools=(pool(requirements=needs),)).left == 0


def _one_of(*types: str) -> dict[str, Any]:
    """Pods that require one of some types, an alternative each."""
    terms = [{"matchExpressions": [{"key": INSTANCE_TYPE, "operator": "In", "values": [each]}]} for each in types]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def test_alternatives_are_dropped_one_by_one_and_do_not_come_back() -> None:
    assert Run(*pods(1, **_one_of("nothing", "medium"))).types == ["medium"]


def test_existing_nodes_are_asked_for_one_alternative_alone() -> None:
    there = node("n1", labels={INSTANCE_TYPE: "medium"})
    assert Run(*pods(1, **_one_of("small", "medium")), nodes=(there,)).types == ["small"]
    assert Run(*pods(1, **_one_of("nothing", "medium")), nodes=(there,)).types == []


def test_variety_that_a_pool_asks_for_is_left_to_every_claim() -> None:
    needs = ({"key": INSTANCE_TYPE, "operator": "Exists", "min_values": 2},)
    run = Run(*pods(16), pools=(pool(requirements=needs),))
    assert run.types == ["medium", "medium", "medium", "medium"]


def test_a_zone_that_no_pool_sells_is_closed_to_pods_that_others_must_not_have_near() -> None:
    """A node stands there with room; the pods that fear them are nowhere yet."""
    shapes_with_anti_affinity = pods(1, "shy", cpu="100", **near("podAntiAffinity", ZONE))
    run = Run(*shapes_with_anti_affinity, *pods(1), nodes=(node("n1", zone="z9"),))
    assert [each.place for each in run.outcome.placed] == [-1]
    assert [each.place for each in Run(*pods(1), nodes=(node("n1", zone="z9"),)).outcome.placed] == [0]


def test_a_spread_over_pools_knows_only_those_that_have_nodes() -> None:
    """So the first pod gives it up; where that one is to go there is a pool for the others, and they join it."""
    soft = spread("karpenter.sh/nodepool", whenUnsatisfiable="ScheduleAnyway")
    pools = tuple(pool(name, labels={"karpenter.sh/nodepool": name}) for name in "ab")
    run = Run(*pods(4, cpu="100m", **soft), pools=pools)
    assert (run.loads, run.relaxed) == ([4], 1)


def test_types_that_a_pool_cannot_launch_are_domains_of_a_spread_all_the_same() -> None:
    """Nothing of that kind will ever run there, so the others stay at the skew."""
    rule = spread("kubernetes.io/arch")
    arm = kind("arm", 2, 8, 0.05, labels={"kubernetes.io/arch": ("arm64",)})
    needs = ({"key": INSTANCE_TYPE, "operator": "In", "values": ("small",)},)
    assert Run(*pods(3, **rule), pools=(pool(types=(SMALL, arm), requirements=needs),)).left == 2


def test_an_affinity_knows_no_domain_of_a_pool_whose_taints_its_pods_would_rather_not_bear() -> None:
    """A pod that gives that up later finds the zone as unknown as before; a spread knows it from the start."""
    plain = pool(requirements=({"key": ZONE, "operator": "In", "values": ("z1", "z2")},))
    slow = pool("slow", taints=({"key": "slow", "effect": "PreferNoSchedule"},))
    apart = pods(3, **spread(), **near("podAntiAffinity", ZONE))
    assert Run(*apart, pools=(plain, slow)).left == 1
    assert Run(*pods(3, **spread()), pools=(plain, slow)).left == 0
    assert Run(*apart, pools=(plain, pool("other"))).left == 0


def test_a_spread_that_goes_by_taints_sees_the_zones_of_a_pool_that_has_nothing_to_sell() -> None:
    """Only those of pools that are kept off are none to it."""
    needs = ({"key": "kubernetes.io/arch", "operator": "In", "values": ("arm64",)},)
    kept_off = pool("kept-off", taints=({"key": "k", "effect": "NoSchedule"},))
    even = spread(nodeTaintsPolicy="Honor")
    assert Run(*pods(4, **even), pools=(kept_off,), nodes=(node("n1"),)).left == 0
    assert Run(*pods(4, **even), pools=(kept_off, pool(requirements=needs)), nodes=(node("n1"),)).left == 3


def test_chance_may_choose_any_zone_however_many_there_are() -> None:
    zones = tuple(f"z{at}" for at in range(1, 7))
    problem = Problem(Snapshot(pools=(pool(types=(kind("wide", 2, 8, 0.1, zones),)),), pending=pods(6, **spread())))
    first = [SchedulerSimulation(problem, turn).run().masks[-1] for turn in range(3)]
    assert [problem.catalog.rows[lowest(mask)].offering.zone for mask in first] == ["z1", "z5", "z3"]
