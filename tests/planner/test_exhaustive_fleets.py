"""Small fleets against exhaustive search: whatever stays and whatever is launched, nothing is cheaper than the
bound.
"""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.model.instance_type import InstanceType
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.planner.consolidate.policy import ConsolidationPolicy, RemovalQuota
from dovetail.planner.consolidate.search import consolidate
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import NodeState, Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import node as bare
from tests.planner.conftest import pod, pool
from tests.planner.test_exhaustive_pods import SHOPS, optimum

TYPE = "node.kubernetes.io/instance-type"
CAPACITY = "karpenter.sh/capacity-type"
SMALL_FLEETS = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
_NOTHING_CHARGED = 0.0


@st.composite
def fleets(draw: st.DrawFn) -> tuple[tuple[InstanceType, ...], tuple[NodeState, ...]]:
    """A few nodes with a few pods on them; some are of a type that is no longer offered, or dearer than it is."""
    shop = draw(st.sampled_from(SHOPS))
    found = []
    for at in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(shop))
        sold = draw(st.booleans())
        price = (kind.offerings[0].price or 0.0) * draw(st.sampled_from([0.5, 1.0, 1.0, 2.0]))
        pods, left = [], {name: kind.allocatable[name] for name in ("cpu", "memory")}
        for number in range(draw(st.integers(0, 2))):
            cpu, memory = draw(st.sampled_from(["300m", "1", "1700m"])), draw(st.sampled_from(["512Mi", "3Gi"]))
            one = pod(f"p{at}{number}", cpu=cpu, memory=memory, labels={"app": "any"}, nodeName=f"n{at}")
            if all(requests(one)[name] <= left[name] for name in left):
                left = {name: left[name] - requests(one)[name] for name in left}
                pods.append(one)
        labels = {TYPE: kind.name if sold else "retired", CAPACITY: "on-demand"}
        amounts = {"cpu": f"{kind.allocatable['cpu']}m", "memory": str(kind.allocatable["memory"])}
        found.append(bare(f"n{at}", **amounts, labels=labels, price=price, pool="default", pods=tuple(pods)))
    return shop, tuple(found)


def cheapest_fleet(shop: tuple[InstanceType, ...], nodes: tuple[NodeState, ...], most: int) -> float:
    """The least that a fleet costs if at most so many of its nodes go: every choice, every way to share."""
    best = float("inf")
    for stays in product((False, True), repeat=len(nodes)):
        if stays.count(False) <= most:
            kept = [each for each, stay in zip(nodes, stays, strict=True) if stay]
            moving = [one for each, stay in zip(nodes, stays, strict=True) if not stay for one in each.pods]
            best = min(best, sum(each.price or 0.0 for each in kept) + _moved(shop, kept, moving))
    return best


def _moved(shop: tuple[InstanceType, ...], kept: list[NodeState], moving: list[Pod]) -> float:
    """The least price of what must be launched for pods that move, some of them into room that is there."""
    least = float("inf")
    for places in product(range(-1, len(kept)), repeat=len(moving)):
        there = [[*each.pods] for each in kept]
        for one, place in zip(moving, places, strict=True):
            if place >= 0:
                there[place].append(one)
        if all(_holds(each, pods) for each, pods in zip(kept, there, strict=True)):
            new_nodes = tuple(one for one, place in zip(moving, places, strict=True) if place < 0)
            least = min(least, optimum(new_nodes, shop))
    return least


def _holds(node: NodeState, pods: list[Pod]) -> bool:
    return all(
        sum(requests(each).get(name, 0) for each in pods) <= node.allocatable[name] for name in ("cpu", "memory")
    )


def _consolidated(shop: tuple[InstanceType, ...], nodes: tuple[NodeState, ...], most: int) -> Plan:
    snapshot = Snapshot(pools=(pool(types=shop),), nodes=nodes)
    budgets = {"default": RemovalQuota(empty=most, used=most)}
    plan = consolidate(snapshot, deadline=0.3, policy=ConsolidationPolicy(budgets=budgets, charge=_NOTHING_CHARGED))
    assert [str(each) for each in verify(plan, snapshot)] == []
    return plan


@SMALL_FLEETS
@given(fleets(), st.integers(0, 3))
def test_the_cheapest_fleet_lies_between_the_bound_and_the_plan(
    fleet: tuple[tuple[InstanceType, ...], tuple[NodeState, ...]], most: int
) -> None:
    plan, least = _consolidated(*fleet, most), cheapest_fleet(*fleet, most)
    assert len(plan.remove) <= most
    assert (plan.cost.lower_bound or 0.0) <= least + 1e-9
    assert least <= plan.cost.per_hour + 1e-9
    assert plan.cost.per_hour <= (plan.cost.before or 0.0) + 1e-9


@SMALL_FLEETS
@given(fleets())
def test_a_small_fleet_is_made_as_cheap_as_can_be(
    fleet: tuple[tuple[InstanceType, ...], tuple[NodeState, ...]],
) -> None:
    plan, least = _consolidated(*fleet, 3), cheapest_fleet(*fleet, 3)
    assert plan.cost.per_hour <= least + 1e-9
