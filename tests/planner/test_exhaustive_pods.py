"""Small cases against exhaustive search: the bound is below the optimum, the optimum below the plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.model.instance_type import InstanceType
from dovetail.model.pod_resources import requests
from dovetail.model.pods import Pod
from dovetail.planner.optimise.relaxation import Demand, relaxation
from dovetail.planner.plan import Plan
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Snapshot
from dovetail.planner.verify import verify

from .conftest import HOSTNAME, SHOP, kind, near, node, pod, pool

SMALL_CASES = settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SHOPS: list[tuple[InstanceType, ...]] = [
    SHOP,
    (kind("slim", 4, 8, 0.15), kind("wide", 4, 32, 0.25)),
    (kind("one", 2, 4, 0.07), kind("two", 4, 8, 0.13), kind("three", 6, 24, 0.21)),
]
_SOME_WORK = 0.15


@st.composite
def few_pods(draw: st.DrawFn) -> tuple[Pod, ...]:
    found = []
    for at in range(draw(st.integers(1, 6))):
        alone = draw(st.booleans())
        rule = near("podAntiAffinity", HOSTNAME, app="alone") if alone else {}
        cpu, memory = draw(st.sampled_from(["300m", "1", "1700m", "3"])), draw(st.sampled_from(["512Mi", "3Gi", "7Gi"]))
        found.append(pod(f"p{at}", cpu=cpu, memory=memory, labels={"app": "alone" if alone else "any"}, **rule))
    return tuple(found)


def partitions(pods: tuple[Pod, ...]) -> Iterator[list[list[Pod]]]:
    """Every way to share nodes."""
    if not pods:
        yield []
        return
    first, rest = pods[0], pods[1:]
    for shared in partitions(rest):
        yield [[first], *shared]
        for at, group in enumerate(shared):
            yield [*shared[:at], [first, *group], *shared[at + 1 :]]


def cheapest(group: list[Pod], shop: tuple[InstanceType, ...]) -> float:
    """The least price of one node for a group; infinite where they cannot share one."""
    if sum(each.metadata.labels["app"] == "alone" for each in group) > 1:
        return float("inf")
    need = {"cpu": 0, "memory": 0}
    for each in group:
        for name in need:
            need[name] += requests(each).get(name, 0)
    prices = [
        each.offerings[0].price or 0.0
        for each in shop
        if all(amount <= each.allocatable[name] for name, amount in need.items())
    ]
    return min(prices, default=float("inf"))


def optimum(pods: tuple[Pod, ...], shop: tuple[InstanceType, ...]) -> float:
    return min(sum(cheapest(group, shop) for group in shared) for shared in partitions(pods))


def _plan(pods: tuple[Pod, ...], shop: tuple[InstanceType, ...], *nodes: NodeState) -> Plan:
    snapshot = Snapshot(pools=(pool(types=shop),), pending=pods, nodes=nodes)
    plan = provision(snapshot, deadline=_SOME_WORK)
    assert [str(each) for each in verify(plan, snapshot)] == []
    return plan


@SMALL_CASES
@given(few_pods(), st.sampled_from(SHOPS))
def test_the_optimum_lies_between_the_bound_and_the_plan(pods: tuple[Pod, ...], shop: tuple[InstanceType, ...]) -> None:
    plan, least = _plan(pods, shop), optimum(pods, shop)
    assert not plan.unschedulable
    assert (plan.cost.lower_bound or 0.0) <= least + 1e-9
    assert least <= plan.cost.per_hour + 1e-9


@SMALL_CASES
@given(st.lists(st.tuples(st.integers(100, 900), st.floats(-1.0, 3.5)), min_size=20, max_size=60, unique=True))
def test_pods_poured_together_never_raise_the_bound(drawn: list[tuple[int, float]]) -> None:
    """Nodes rich in CPU and nodes rich in memory serve different pods better than they serve a mixture."""
    shop = (kind("slim", 16, 32, 0.6), kind("even", 16, 64, 0.7), kind("wide", 16, 128, 0.9))
    pods = tuple(
        pod(f"p{at}", cpu=f"{cpu}m", memory=f"{int(cpu * 2**ratio) + 1}Mi") for at, (cpu, ratio) in enumerate(drawn)
    )
    problem = Problem(Snapshot(pools=(pool(types=shop),), pending=pods))
    demands = [
        Demand(problem.first_requests[one.index], float(one.count), np.arange(problem.frontier.size))
        for one in problem.classes
    ]
    whole = relaxation(problem, demands, 60.0, proven=True)
    assert whole is not None
    for largest in (3, 12, 30):
        along_relaxation = relaxation(problem, demands, 60.0, largest=largest, proven=True)
        assert along_relaxation is not None
        assert along_relaxation.price <= whole.price + 1e-6


def test_pods_that_fill_a_node_badly_cost_whole_nodes() -> None:
    """Of pods with three CPUs a node with eight holds two."""
    pods = tuple(pod(f"p{at}", cpu="3", memory="512Mi") for at in range(10))
    plan = _plan(pods, (kind("eight", 8, 32, 0.4),))
    assert plan.cost.lower_bound == pytest.approx(5 * 0.4, rel=1e-4)
    assert plan.cost.per_hour == pytest.approx(5 * 0.4)


@SMALL_CASES
@given(few_pods(), st.integers(1, 3))
def test_a_node_less_never_lowers_the_bound(pods: tuple[Pod, ...], count: int) -> None:
    standing = [node(f"n{at}", cpu="2", memory="4Gi") for at in range(count)]
    with_all, without = _plan(pods, SHOP, *standing).cost.lower_bound, _plan(pods, SHOP, *standing[1:]).cost.lower_bound
    if with_all is not None and without is not None:  # there is none where the node was too busy
        assert with_all <= without + 1e-9


@SMALL_CASES
@given(st.integers(1, 8), st.sampled_from(("300m", "700m", "1100m", "1900m")), st.sampled_from(SHOPS))
def test_of_pods_that_are_alike_the_bound_is_the_optimum(count: int, cpu: str, shop: tuple[InstanceType, ...]) -> None:
    pods = tuple(pod(f"a-{at}", cpu, labels={"app": "any"}) for at in range(count))
    plan = _plan(pods, shop)
    assert plan.cost.lower_bound == pytest.approx(optimum(pods, shop))
    assert plan.cost.per_hour == pytest.approx(plan.cost.lower_bound)
