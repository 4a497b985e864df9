"""minValues: a node must be buyable as enough different things, within the limits of its pool."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.model.instance_type import Offering
from dovetail.model.labels import CAPACITY_TYPE
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.violated_preferences import violated_count
from dovetail.planner.plan import Cost, Placement
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import LARGE, MEDIUM, SHOP, SMALL, ZONE, ZONES, Solve, kind, near, node, pods, pool, spread

TYPES = ({"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 2},)


def test_limits_count_the_larger_node_that_flexibility_allows(solve: Solve) -> None:
    """Two small nodes would do, but each may be launched as a medium one: the limit has room for one of those."""
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 7000}),))
    assert {choice.instance_type for planned in plan.nodes for choice in planned.offerings} == {"small", "medium"}
    assert len(plan.unschedulable) == 1


def test_flexibility_within_limits_leaves_no_pod_out(solve: Solve) -> None:
    plan = solve(*pods(2, cpu="1500m"), pools=(pool(types=SHOP, requirements=TYPES, limits={"cpu": 8000}),))
    assert not plan.unschedulable


def test_a_reserved_node_has_others_to_fall_back_on_where_its_pool_asks_for_variety(solve: Solve) -> None:
    """A reservation is of one type; the pool's two types are there if it cannot be had."""
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    types = (kind("small", 2, 8, 0.1, offerings=(*SMALL.offerings, kept)), MEDIUM)
    (planned,) = solve(*pods(1), pools=(pool(types=types, requirements=TYPES),)).nodes
    assert (planned.price, planned.choice.reservation_id) == (0.0, "cr-1")
    assert {choice.instance_type for choice in planned.offerings} == {"small", "medium"}
    assert not [each for each in planned.requirements if each["key"].endswith("capacity-reservation-id")]


def test_variety_may_come_from_nodes_that_are_smaller_and_dearer(solve: Solve) -> None:
    """The large one is a bargain, but there is one of its size: what fits the medium one may be launched as either."""
    bargain = kind("large", 16, 64, 0.15)
    (planned,) = solve(*pods(1, cpu="3"), pools=(pool(types=(SMALL, MEDIUM, bargain), requirements=TYPES),)).nodes
    assert [choice.instance_type for choice in planned.offerings if choice.zone == "z1"] == ["large", "medium"]
    assert planned.price == 0.15


def test_pods_that_accept_few_types_are_charged_for_the_largest_of_enough(solve: Solve) -> None:
    """A pod that wants no medium node needs the large one for variety; the limit has room for one of those only."""
    avoid = {"key": "node.kubernetes.io/instance-type", "operator": "NotIn", "values": ["medium"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [avoid]}]}
    picky = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    shop = (pool(types=SHOP, requirements=TYPES, limits={"cpu": 24_000}),)
    plan = solve(*pods(1, name="picky", cpu="1500m", **picky), *pods(1, cpu="1500m"), pools=shop)
    assert not plan.unschedulable
    held = {planned.pods: {choice.instance_type for choice in planned.offerings} for planned in plan.nodes}
    assert held == {("default/picky-0",): {"small", "large"}, ("default/web-0",): {"small", "medium"}}


def test_a_preference_to_be_spread_gives_way_to_variety(solve: Solve) -> None:
    """A node in one zone is no node in two: a pod that relaxes the spread settles no zone any more."""
    zones = ({"key": ZONE, "operator": "Exists", "min_values": 2},)
    preference = spread(whenUnsatisfiable="ScheduleAnyway")
    plan = solve(*pods(4, cpu="900m", **preference), pools=(pool(requirements=zones),))
    assert not plan.unschedulable
    assert plan.nodes
    assert plan.nodes and all(len({choice.zone for choice in planned.offerings}) >= 2 for planned in plan.nodes)


ZONES_VARY = ({"key": ZONE, "operator": "Exists", "min_values": 2},)


def test_a_preference_for_kinds_of_capacity_keeps_no_pod_from_a_reservation_that_has_others_to_fall_back_on(
    solve: Solve,
) -> None:
    """To settle the kind of capacity would leave one type; so no pod is counted who gives the preference up."""
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    types = (SMALL, MEDIUM, kind("large", 16, 64, 0.8, offerings=(*LARGE.offerings, kept)))
    even = spread(CAPACITY_TYPE, whenUnsatisfiable="ScheduleAnyway")
    plan = solve(*pods(8, **even), pools=(pool(types=types, requirements=TYPES),))
    assert [planned.choice.reservation_id for planned in plan.nodes] == ["cr-1", None]


def test_a_preference_that_gives_way_to_variety_counts_as_lost_all_the_same() -> None:
    kept = Offering(zone="z1", capacity_type="reserved", price=0.0, reservation_id="cr-1", reservation_capacity=1)
    types = (SMALL, MEDIUM, kind("large", 16, 64, 0.8, offerings=(*LARGE.offerings, kept)))
    even = spread(CAPACITY_TYPE, whenUnsatisfiable="ScheduleAnyway")
    problem = Problem(Snapshot(pools=(pool(types=types, requirements=TYPES),), pending=pods(8, **even)))
    resigned, state = problem.request(problem.classes[0], -1), PackingState(problem)
    reserved = state.frontier.reservations.index("cr-1")
    for column, count in ((reserved, 5), (state.frontier.reservations.index(None), 3)):
        state.put(resigned, state.open(column), count)
    assert violated_count(state) == 5


def test_pods_that_must_be_in_one_zone_share_a_node_that_may_be_in_any(solve: Solve) -> None:
    """Of two nodes no pod would know whether they meet in one zone; on one node they do wherever it is."""
    (planned,) = solve(*pods(6, **near("podAffinity", ZONE)), pools=(pool(requirements=ZONES_VARY),)).nodes
    assert {choice.zone for choice in planned.offerings} == set(ZONES)
    assert len(planned.pods) == 6


def test_pods_that_must_be_in_one_zone_use_many_nodes_where_a_pool_may_settle_it(solve: Solve) -> None:
    pools = (pool("vary", requirements=ZONES_VARY), pool("settle", types=(SMALL,)))
    plan = solve(*pods(20, **near("podAffinity", ZONE)), pools=pools)
    assert not plan.unschedulable
    assert {planned.pool for planned in plan.nodes} == {"settle"}


def test_pods_that_must_be_in_one_zone_use_all_existing_nodes(solve: Solve) -> None:
    """Where those are is settled already."""
    there = (node("a", cpu="3"), node("b", cpu="3"))
    plan = solve(*pods(6, **near("podAffinity", ZONE)), pools=(pool(requirements=ZONES_VARY),), nodes=there)
    assert {place.node for place in plan.placements.values()} == {"a", "b"}


def test_a_node_may_not_change_its_zone_if_co_located_pods_of_its_pods_is_elsewhere() -> None:
    needy = pods(2, **near("podAffinity", ZONE))
    snapshot = Snapshot(pools=(pool(requirements=ZONES_VARY),), pending=needy)
    plan = provision(snapshot)
    (planned,) = plan.nodes
    other = replace(planned, name="m-2", pods=planned.pods[1:], requests={"cpu": 1000, "memory": 2**30, "pods": 1})
    planned = replace(other, name="m-1", pods=planned.pods[:1])
    parted = replace(
        plan,
        nodes=(planned, other),
        cost=Cost(per_hour=2 * planned.price),
        placements={planned.pods[0]: Placement(new_node="m-1"), other.pods[0]: Placement(new_node="m-2")},
    )
    assert {each.rule for each in verify(parted, snapshot)} == {"topology"}


def test_a_preference_over_a_label_that_leaves_too_few_types_yields_to_min_values(solve: Solve) -> None:
    """Two types of each size and three to choose from: a pod that a soft spread over sizes counts has no node."""
    size = "karpenter.k8s.aws/instance-cpu"
    types = tuple(kind(f"{family}{cpu}", cpu, 4 * cpu, cpu * 0.05) for family in "ab" for cpu in (2, 4, 8))
    varied = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 3}
    anyway = spread(key=size, whenUnsatisfiable="ScheduleAnyway")
    plan = solve(*pods(5, labels={"app": "web"}, **anyway), pools=(pool(types=types, requirements=(varied,)),))
    assert not plan.unschedulable


def test_a_preference_that_leaves_too_few_types_within_the_limit_yields_to_min_values(solve: Solve) -> None:
    """Three types fit the limit in both zones together, two in each: a pod that a soft spread counts has no node."""
    types = (
        kind("a", 2, 8, 0.1, zones=("z1",)),
        kind("b", 2, 8, 0.1, zones=("z1", "z2")),
        kind("c", 2, 8, 0.1, zones=("z2",)),
        kind("large", 16, 64, 0.8),
    )
    varied = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "min_values": 3}
    anyway = spread(whenUnsatisfiable="ScheduleAnyway")
    limited = pool(types=types, requirements=(varied,), limits={"cpu": 4000})
    plan = solve(*pods(2, labels={"app": "web"}, cpu="1500m", **anyway), pools=(limited,))
    assert not plan.unschedulable
    assert {len({choice.instance_type for choice in planned.offerings}) for planned in plan.nodes} == {3}
