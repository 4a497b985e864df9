"""What is done to many nodes at once is what would have been done to one after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.planner.packing.price_index import PriceIndex
from dovetail.planner.packing.resize import shrink
from dovetail.planner.packing.state import PackingState, open_nodes, used_by_all
from dovetail.planner.problem.compile import Problem
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, ZONE, node, pod, pool, spread


def _problem() -> Problem:
    rules = {
        "topologySpreadConstraints": [
            *spread(ZONE, 1, "web")["topologySpreadConstraints"],
            *spread(HOSTNAME, 2, "web")["topologySpreadConstraints"],
        ]
    }
    pending = tuple(pod(f"web-{at}", "300m", labels={"app": "web"}, **rules) for at in range(4))
    return Problem(Snapshot(pools=(pool(),), nodes=(node("n0", "z1", cpu="2"),), pending=pending))


def _state(state: PackingState) -> tuple[object, ...]:
    size = state.size
    arrays = (state.free, state.domains, state.host_counts, state.host_owners)
    figures = [each[:, :size].tolist() for each in arrays]
    return (*figures, state.offering[:size].tolist(), state.counts, state.owners, state.contents, state.left)


@pytest.mark.parametrize("nodes", [1, 2, 3, 70])
def test_nodes_launched_together_are_those_launched_one_by_one(nodes: int) -> None:
    problem = _problem()
    request = problem.request(problem.classes[0], 0)
    together, apart = PackingState(problem), PackingState(problem)
    open_nodes(together, request, 1, nodes, 2)
    for _ in range(nodes):
        apart.put(request, apart.open(1), 2)
    assert _state(together) == _state(apart)
    assert used_by_all(together) == [apart.used(at) for at in apart.new_nodes()]


def test_nodes_launched_together_take_the_places_of_those_relaxed_first() -> None:
    problem = _problem()
    request = problem.request(problem.classes[0], 0)
    state = PackingState(problem)
    open_nodes(state, request, 1, 4, 1)
    state.clear(2)
    open_nodes(state, request, 0, 3, 1)
    assert state.size == 7 and not state.gone
    assert state.offering_of(2) == 0


@pytest.mark.parametrize("nodes", [2, 40])
def test_nodes_sized_together_stand_where_they_would_have_been_put_one_by_one(nodes: int) -> None:
    problem = _problem()
    request = problem.request(problem.classes[0], 0)
    together, apart = PackingState(problem), PackingState(problem)
    largest = problem.frontier.size - 1
    for state in (together, apart):
        open_nodes(state, request, largest, nodes, 1)
    shrink(together)
    for at in apart.new_nodes():
        shrink(apart, [at])
    assert _state(together) == _state(apart)
    assert together.offering_of(1) != largest


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12), st.data())
@settings(max_examples=100, deadline=None)
def test_stairs_are_climbed_together_as_one_by_one(rooms: list[tuple[int, int]], data: st.DataObject) -> None:
    class OfferingFrontier:
        capacity = np.array(rooms, dtype=np.int64).T

    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(rooms), max_size=len(rooms))), dtype=np.bool_)
    if not chosen.any():
        chosen[0] = True
    price_index = PriceIndex(OfferingFrontier, chosen)
    amounts = st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=8)
    used = data.draw(amounts)
    one_by_one = [price_index.first(each) for each in used]
    together = price_index.firsts(np.array(used, dtype=np.int64).T)
    assert together.tolist() == [-1 if each is None else each for each in one_by_one]
