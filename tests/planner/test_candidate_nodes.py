"""Nodes remembered as bits are those that a pod looking at all of them would find."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.pods import Pod
from dovetail.planner.offerings.catalog import Bools
from dovetail.planner.packing.candidate_nodes import CandidateNodes
from dovetail.planner.packing.pack import class_order, demands
from dovetail.planner.packing.packer import Packer
from dovetail.planner.packing.packer_context import PackerContext
from dovetail.planner.packing.resize import Growth, shrink
from dovetail.planner.packing.state import PackingState
from dovetail.planner.packing.strategy import Strategy
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.snapshot import Snapshot
from tests.planner.conftest import HOSTNAME, ZONE, near, node, pod, pool, spread

APPS = ("web", "db", "cache")


class Watched(CandidateNodes):
    """Looks at every node before it is asked, and insists that the answer is the same."""

    def fill(
        self,
        packer: PackerContext,
        request: PlacementRequest,
        count: int,
        topology_key: int | None,
        domains: Bools | None,
    ) -> int:
        state = packer.state
        bins = state.fitting(request, 0, state.domains[topology_key] if topology_key is not None else None, domains)
        for other, chosen in packer.extra:
            bins = bins[chosen[state.domains[other][bins]]]
        expected: dict[int, int] = {}
        for at, fits in zip(
            *(each.tolist() for each in state.shares(request, bins, count, packer.ignore_counted)), strict=True
        ):
            take = min(fits, count - sum(expected.values()))
            expected |= {at: take} if take else {}
        before = [dict(each) for each in state.contents]
        got = super().fill(packer, request, count, topology_key, domains)
        changes = {
            at: each.get(request.number, 0) - before[at].get(request.number, 0)
            for at, each in enumerate(state.contents)
            if each != before[at]
        }
        assert changes == expected
        assert got == sum(expected.values())
        return got


@st.composite
def workloads(draw: st.DrawFn) -> list[Pod]:
    found: list[Pod] = []
    for number in range(draw(st.integers(1, 8))):
        key, other = draw(st.sampled_from((ZONE, HOSTNAME))), draw(st.sampled_from(APPS))
        ways: tuple[dict[str, Any], ...] = (
            {},
            spread(key, draw(st.integers(1, 3)), other),
            near("podAntiAffinity", key, other),
            near("podAffinity", key, other),
            {"nodeSelector": {ZONE: "z1"}},
        )
        asked, labels = draw(st.sampled_from(ways)), {"app": draw(st.sampled_from(APPS))}
        cpu = draw(st.sampled_from(("100m", "700m", "1500m")))
        found += [pod(f"w{number}-{at}", cpu, labels=labels, **asked) for at in range(draw(st.integers(1, 6)))]
    return found


@given(workloads(), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_what_is_remembered_of_nodes_is_what_looking_again_would_find(
    pending: list[Pod], level: bool, ignore_counted: bool
) -> None:
    standing = tuple(node(f"n{at}", f"z{at % 3 + 1}", cpu="2") for at in range(4))
    problem = Problem(Snapshot(pools=(pool(),), nodes=standing, pending=tuple(pending)))
    strategy = Strategy(balance_counted=level)
    packer = Packer(problem, strategy)
    packer.candidate_nodes, packer.ignore_counted = Watched(), ignore_counted
    packer.growth = Growth(packer.candidate_nodes)
    packer.waiting = demands(problem).sum(axis=0)
    for one in class_order(problem, strategy):
        packer.place(problem.request(one, 0), one.count)
    state = packer.state
    expected = {at: _cheapest(state, at) for at in state.new_nodes()}
    shrink(state)
    assert {at: int(state.offering[at]) for at in state.new_nodes()} == expected


def _cheapest(state: PackingState, at: int) -> int:
    """The first offering of all that is of the node's kind and place, is accepted by its pods and holds them."""
    frontier, held = state.frontier, [state.placement_requests[number] for number in state.contents[at]]
    ok = frontier.kinds == frontier.kinds[state.offering[at]]
    for request in held:
        ok &= request.offerings
        for topology_key in request.topology.topology_keys:
            ok &= frontier.domains[topology_key] == state.domains[topology_key, at]
    load = sum(request.amounts * state.contents[at][request.number] for request in held)
    return int((ok & (load <= frontier.capacity.T).all(axis=1)).argmax())


def test_a_node_launched_where_another_stood_is_found_like_any_other() -> None:
    """Its place is not behind the others, and asking about it ends."""
    problem = Problem(Snapshot(pools=(pool(),), pending=tuple(pod(f"web-{at}") for at in range(3))))
    packer = Packer(problem, Strategy(max_node_price=0.1))
    (request,) = problem.levels_of(problem.classes[0])
    assert packer.place(request, 1) == 1
    packer.state.clear(packer.state.new_nodes()[0])
    assert [packer.place(request, 1) for _ in range(2)] == [1, 1]
    assert [sum(held.values()) for held in packer.state.contents] == [2]
