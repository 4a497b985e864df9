"""Many nodes with few pods each: what a LP relaxation requires of them does not come true, and patterns do better."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from dovetail.model.instance_type import Offering
from dovetail.planner.launch.assemble import plan_of
from dovetail.planner.optimise.improve import better_by_work
from dovetail.planner.optimise.lower_bound import holding, relaxed, sharing
from dovetail.planner.optimise.patterns import Patterns
from dovetail.planner.optimise.relaxation import Demand, PatternUse, relaxation
from dovetail.planner.optimise.rounding import FINE, Rounding, rounded
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import quick_packing
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, SHOP, Solve, kind, near, pod, pods, pool, spread
from tests.planner.test_many_pods import TYPES, mixed

_LONG = 1e6


def _problem(*pending: object, **more: object) -> Problem:
    return Problem(Snapshot(pools=(pool(types=TYPES),), pending=pending, **more))


def _demands(problem: Problem) -> list[Demand]:
    placement_requests = [problem.request(one, 0) for one in problem.classes]
    return [
        Demand(request, float(request.cls.count), np.flatnonzero(holding(problem, request)), sharing(request))
        for request in placement_requests
    ]


def test_pods_of_one_size_are_poured_together_without_loss() -> None:
    labelled = [pod(f"p{n}", cpu="700m", labels={"app": f"a{n % 7}"}, **spread(app=f"a{n % 7}")) for n in range(70)]
    apart, alike = _problem(*labelled), _problem(*pods(70, cpu="700m"))
    assert len(apart.classes) == 7
    one, other = relaxation(apart, _demands(apart), _LONG), relaxation(alike, _demands(alike), _LONG)
    assert one is not None
    assert other is not None
    assert one.price == pytest.approx(other.price)
    assert sum(sum(flow.amounts.values()) for flow in one.flows) == pytest.approx(70)


def test_a_node_offered_whole_is_taken_as_often_as_it_serves() -> None:
    problem = _problem(*pods(10, cpu="700m"))
    (demand,) = _demands(problem)
    small = int(np.flatnonzero(problem.frontier.prices == SHOP[0].offerings[0].price)[0])
    nowhere = np.zeros(problem.frontier.size, dtype=np.bool_)
    found = relaxation(
        problem, [demand], _LONG, only=nowhere, cuts=[PatternUse(small, {0: 1}), PatternUse(small, {0: 2})]
    )
    assert found is not None
    assert found.cuts == pytest.approx([0.0, 5.0])
    assert found.price == pytest.approx(5 * SHOP[0].offerings[0].price, rel=1e-5)  # type: ignore[operator]
    assert found.nodes == {}


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_cut_by_patterns_keeps_every_rule(seed: int) -> None:
    problem = _problem(*mixed(600, seed))
    start = rounded(problem, quick_packing(problem), lambda: _LONG)
    assert start is not None
    patterns = Patterns(problem, start)
    assert patterns.add_from(start.state)
    assert not patterns.add_from(start.state)
    found = patterns.packed(lambda: _LONG)
    assert found is not None
    assert not found.left
    assert [str(each) for each in verify(plan_of(problem, found), problem.snapshot)] == []


def test_nodes_are_filled_along_the_flows_also_where_one_was_relaxed_before() -> None:
    problem = _problem(*mixed(600, 3))
    rounding = Rounding(problem, quick_packing(problem), FINE)
    rounding.state.close(rounding.state.open(0))
    state = rounding.run(lambda: _LONG)
    assert state is not None
    assert sum(sum(held.values()) for held in state.contents) == 600


def test_patterns_improve_what_the_flows_came_to() -> None:
    problem = _problem(*mixed(600, 3))
    first = quick_packing(problem)
    flowed = rounded(problem, first, lambda: _LONG)
    bettered = better_by_work(problem, first, 0, 0.1, 0.0)
    assert flowed is not None
    assert bettered.packing.cost < flowed.cost


def test_a_pattern_seen_in_one_zone_is_offered_in_the_others() -> None:
    problem = _problem(*pods(6, cpu="1500m", **spread()), *pods(6, name="aside", cpu="400m", **spread(app="aside")))
    first = quick_packing(problem)
    patterns = Patterns(problem, first)
    patterns.add_from(first.state)
    places = {problem.frontier.places[cut.offering] for cut in patterns._pattern_uses()}
    assert len(places) == 3


_CUT = """
import msgspec
from dovetail.model.instance_type import InstanceType, Offering
from dovetail.model.pods import Pod
from dovetail.planner.optimise.patterns import Patterns
from dovetail.planner.optimise.rounding import FINE, Rounding, rounded
from dovetail.planner.problem.compile import Problem
from dovetail.planner.provision import quick_packing
from dovetail.planner.snapshot import Pool, Snapshot

HOST = "kubernetes.io/hostname"
def pod(n):
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": HOST}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}} if n % 4 == 0 else {}
    requests = {"cpu": f"{(100, 250, 500, 1000, 1500)[n % 5]}m", "memory": f"{(256, 1024, 4096)[n % 3]}Mi"}
    return msgspec.convert({"metadata": {"name": f"p{n}", "labels": {"app": "a" if apart else "b"}}, "spec": {
        "affinity": apart, "containers": [{"name": "c", "resources": {"requests": requests}}]}}, Pod)
def kind(name, cpu, price):
    capacity = {"cpu": cpu * 1000 - 70, "memory": cpu * 3 * 2**30, "pods": 50}
    offerings = tuple(Offering(zone=zone, capacity_type="on-demand", price=price) for zone in "xyz")
    return InstanceType(name=name, capacity=capacity, overhead={}, labels={}, offerings=offerings)
types = tuple(kind(f"t{cpu}", cpu, cpu * 0.04) for cpu in (2, 4, 8, 192))
problem = Problem(Snapshot(pools=(Pool(name="default", types=types),), pending=tuple(map(pod, range(300)))))
found = rounded(problem, quick_packing(problem), lambda: 1e6)
patterns = Patterns(problem, found)
for _ in range(2):
    patterns.add_from(found.state)
    found = patterns.packed(lambda: 1e6)
    print([(int(found.state.offering[at]), found.state.contents[at]) for at in found.state.new_nodes()])
"""


def test_the_same_pods_are_cut_the_same_way_whatever_the_hash_seed() -> None:
    ways = {
        subprocess.run(
            [sys.executable, "-c", _CUT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(ways) == 1


def test_nodes_of_pods_that_want_one_each_lie_where_others_may_use_them(solve: Solve) -> None:
    """As many nodes are needed anyway; they are no larger than they must be, and other pods find room on them."""
    alone = near("podAntiAffinity", HOSTNAME)
    one_per_node = [pod(f"l{n}", cpu=f"{200 + n // 2}m", labels={"app": "web"}, **alone) for n in range(200)]
    others = pods(400, name="wide", cpu="500m", **spread(app="wide"))
    types = (kind("small", 2, 8, 0.10), kind("huge", 64, 256, 3.1, capacity={"pods": 500}))
    plan = solve(*one_per_node, *others, pools=(pool(types=types),))
    assert [node.choice.instance_type for node in plan.nodes] == ["small"] * 200


def test_the_bound_of_pods_that_want_a_node_each_counts_their_nodes() -> None:
    problem = _problem(*pods(30, cpu="100m", **near("podAntiAffinity", HOSTNAME)))
    found = relaxed(problem, {}, _LONG)
    assert found is not None
    assert found.price == pytest.approx(30 * min(problem.frontier.prices), rel=1e-5)


def test_pods_of_all_zones_and_hosts_have_a_place_after_a_search(solve: Solve) -> None:
    plan = solve(*mixed(240, 9), pools=(pool(types=TYPES),), deadline=0.5)
    assert plan.unschedulable == {}


def test_nodes_without_a_price_are_no_patterns(solve: Solve) -> None:
    """Where nothing else is offered they are launched all the same, and no pod counts them as free."""
    nameless = kind("small", 2, 8, 0.10, offerings=[Offering(zone="z1", capacity_type="on-demand", price=None)])
    alone = near("podAntiAffinity", HOSTNAME)
    plan = solve(*pods(60, cpu="500m", **alone), pools=(pool(types=(nameless,)),), deadline=0.5)
    assert len(plan.nodes) == 60
    assert plan.nodes[0].choice.price is None
