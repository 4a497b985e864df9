"""A spread that honours node affinity counts pods only where its owner could stand, and nodes may change."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import MEDIUM, SMALL, pod, pods, pool, spread


def _problem() -> Problem:
    """One pod that needs four cores is spread over zones beside others, which are counted on such nodes alone."""
    large = {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["3"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [large]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    owner = pod("owner", labels={"app": "web"}, affinity=affinity, **spread(skew=2))
    others = pods(8, cpu="500m")
    return Problem(Snapshot(pools=(pool(types=(SMALL, MEDIUM)),), pending=(owner, *others)))


def _column(problem: Problem, price: float) -> int:
    return int(np.flatnonzero(problem.frontier.prices == price)[0])


@pytest.mark.parametrize("nodes", [1, 8])
def test_pods_on_a_node_made_smaller_are_counted_no_longer(nodes: int) -> None:
    problem = _problem()
    medium = _column(problem, MEDIUM.offerings[0].price or 0.0)
    other = next(one for one in problem.classes if one.count == 8)
    state = PackingState(problem)
    for _ in range(nodes):
        state.put(problem.request(other, 0), state.open(medium), 1)
    (counter,) = problem.counters.values()
    assert sum(state.counts[counter.slot]) == nodes
    shrink(state)
    assert {problem.frontier.prices[state.offering_of(at)] for at in state.new_nodes()} == {SMALL.offerings[0].price}
    assert sum(state.counts[counter.slot]) == 0


def test_pods_on_a_node_made_larger_are_counted_from_then_on() -> None:
    problem = _problem()
    small = _column(problem, SMALL.offerings[0].price or 0.0)
    other = next(one for one in problem.classes if one.count == 8)
    state = PackingState(problem)
    at = state.open(small)
    state.put(problem.request(other, 0), at, 3)
    (counter,) = problem.counters.values()
    assert sum(state.counts[counter.slot]) == 0
    twin = state.clone()
    twin.move(at, _column(problem, MEDIUM.offerings[0].price or 0.0))
    assert sum(twin.counts[counter.slot]) == 3
    assert sum(state.counts[counter.slot]) == 0
