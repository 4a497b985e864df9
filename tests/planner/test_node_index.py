"""A cluster that changes a little must be planned as if it were seen for the first time."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.model.nodes import Taint
from dovetail.planner.cache import PlannerCache
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.nodes import facts_of
from dovetail.planner.problem.pod_spec import PodConstraints
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Snapshot

from .conftest import HOSTNAME, ZONE, near, node, pod, pods, pool, spread

_PORT = {"container": {"ports": [{"hostPort": 80}]}}
_TAINTS = (Taint(key="team", value="a", effect="NoSchedule"),), (Taint(key="old", effect="PreferNoSchedule"),), ()


def _pending() -> tuple[object, ...]:
    lone = pods(4, "lone", cpu="200m", **near("podAntiAffinity", HOSTNAME, app="lone"))
    far = pods(3, "far", cpu="200m", **near("podAntiAffinity", ZONE, app="web"))
    placed = pods(2, "placed", cpu="200m", nodeSelector={ZONE: "z1", "kubernetes.io/arch": "amd64"}, **_PORT)
    return (*pods(6, cpu="300m", **spread()), *lone, *far, *placed)


def _running(at: int, rng: random.Random) -> tuple[object, ...]:
    kinds = (
        {"labels": {"app": "web"}},
        {"labels": {"app": "lone"}, **near("podAntiAffinity", HOSTNAME, app="lone")},
        {"labels": {"app": "other"}, **near("podAntiAffinity", ZONE, app="far")},
        _PORT,
    )
    return tuple(
        pod(f"r{at}-{i}-{rng.randrange(10**6)}", cpu="300m", nodeName=f"n{at}", **rng.choice(kinds))
        for i in range(rng.randrange(4))
    )


def test_a_changed_cluster_is_planned_as_a_fresh_one() -> None:
    rng = random.Random(5)
    memory = PlannerCache()
    nodes: list[NodeState] = [
        node(f"n{at}", f"z{at % 3 + 1}", cpu="2", pods=_running(at, rng), pool="default") for at in range(12)
    ]
    for _ in range(60):
        change = rng.random()
        at = rng.randrange(len(nodes))
        if change < 0.5:
            nodes[at] = replace(nodes[at], pods=_running(at, rng))
        elif change < 0.6:
            nodes[at] = replace(nodes[at], taints=rng.choice(_TAINTS))
        elif change < 0.65:
            nodes[at] = replace(nodes[at], capacity={"cpu": 4000}, pool=rng.choice(("default", None)))
        elif change < 0.7:
            nodes[at] = replace(nodes[at], deleting=not nodes[at].deleting)
        elif change < 0.8:
            nodes[at] = replace(nodes[at], initialized=not nodes[at].initialized)
        elif change < 0.9 and len(nodes) > 4:
            del nodes[at]
        else:
            name = f"n{rng.randrange(100, 10**6)}"
            nodes.append(node(name, "z1", cpu="2", pool="default", taints=rng.choice(_TAINTS)))
        limited = pool(limits={"cpu": 32_000, "nodes": 15})
        snapshot = Snapshot(pools=(limited,), nodes=tuple(nodes), pending=_pending(), memory=memory)
        fresh = replace(snapshot, memory=PlannerCache())
        assert _facts(Problem(snapshot)) == _facts(Problem(fresh))
        assert replace(provision(snapshot), seconds=0.0) == replace(provision(fresh), seconds=0.0)


def _facts(problem: Problem) -> object:
    """What a plan is made from, of the existing nodes."""
    node_index = problem.node_index
    return (
        [each.name for each in problem.nodes],
        [problem.taints[at] for at in problem.taint_at],
        problem.tainted,
        dict(zip(problem.dims, problem.free.tolist(), strict=True)),
        problem.limits,
        node_index.population,
        [(row, fact.ports) for row, fact in node_index.using()],
        {group: node_index.members(group).tolist() for group in problem.groups},
        {group: sorted(rows.items()) for group, rows in problem.running_anti_affinities.items()},
    )


def test_a_later_snapshot_changes_nothing_in_an_earlier_problem() -> None:
    """Plans are made in several threads: what an earlier one still asks is about the nodes it began with."""
    memory = PlannerCache()
    first = tuple(node(f"n{at}", f"z{at % 3 + 1}") for at in range(4))
    early = Problem(Snapshot(pools=(pool(),), nodes=first, pending=pods(2), memory=memory))
    Problem(Snapshot(pools=(pool(),), nodes=(node("new", "z1"), *first[2:]), pending=pods(2), memory=memory))
    assert early.passing((((ZONE, "In", ("z1",)),),)).tolist() == [True, False, False, True]
    assert [each.name for each in early.nodes] == ["n0", "n1", "n2", "n3"]


def test_pending_pods_are_remembered_no_longer_than_their_snapshot() -> None:
    memory = PlannerCache()
    snapshot = Snapshot(pools=(pool(),), pending=pods(3), memory=memory)
    provision(snapshot)
    assert len(memory.table("pending")["known"]) == 3
    del snapshot
    assert not memory.table("pending")


def test_a_node_has_none_of_the_taints_of_one_whose_place_it_takes() -> None:
    memory = PlannerCache()
    for there in (node("a", taints=_TAINTS[0]), node("b")):
        plan = provision(Snapshot(pools=(pool(),), nodes=(there,), pending=pods(1), memory=memory))
    assert plan.placements["default/web-0"].node == "b"


def test_nodes_of_one_name_are_still_two() -> None:
    """Names are what nodes are remembered by; where two share one, neither may be lost."""
    memory = PlannerCache()
    for turn in range(3):
        twins = tuple(node("same", "z1", cpu="2", memory=f"{8 + turn}Gi") for _ in range(2))
        snapshot = Snapshot(pools=(pool(),), nodes=twins, pending=pods(2, cpu="1500m"), memory=memory)
        assert provision(snapshot).nodes == ()


def test_full_nodes_are_left_out_without_changing_the_counts() -> None:
    """Beyond some size, nodes without room are not packed; what runs on them still counts for spreads."""
    crowd = [
        node(f"n{at:03}", "z1", cpu="1", pods=(pod(f"w{at}", labels={"app": "web"}, nodeName=f"n{at:03}"),))
        for at in range(250)
    ]
    snapshot = Snapshot(pools=(pool(),), nodes=tuple(crowd), pending=pods(4, "new", labels={"app": "web"}, **spread()))
    plan = provision(snapshot)
    zones = {planned.choice.zone for planned in plan.nodes}
    assert zones == {"z2", "z3"}


def test_who_keeps_others_away_is_named_though_their_node_is_full() -> None:
    one_per_node = near("podAntiAffinity", ZONE, app="web")
    there = [pod(f"w{at}", nodeName=f"n{at:03}", **(one_per_node if at > 246 else {})) for at in range(250)]
    crowd = [node(each.spec.node_name, f"z{at % 3 + 1}", cpu="1", pods=(each,)) for at, each in enumerate(there)]
    plan = provision(Snapshot(pools=(pool(),), nodes=tuple(crowd), pending=pods(1, cpu="1500m")))
    assert "anti-affinity of default/w247" in plan.unschedulable["default/web-0"].message


def test_memory_forgets_pods_and_nodes_that_are_gone() -> None:
    memory = PlannerCache()
    memory.table("pods").update({str(n): n for n in range(50_000)})
    memory.table("nodes").update({str(n): n for n in range(100)})
    memory.trim(pods=100, nodes=0)
    assert not memory.table("pods") and memory.table("nodes")
    memory.trim(pods=10, nodes=2)
    assert not memory.table("nodes")


def test_a_pod_that_left_its_node_is_not_remembered() -> None:
    memory = PlannerCache()
    stays, leaves = pods(2)
    facts_of(node("n", pods=(stays, leaves)), memory)
    facts_of(node("n", pods=(stays,)), memory)
    assert set(memory.table("pods")) == {stays.metadata.uid}


@given(st.lists(st.lists(st.integers(0, 11), unique=True, max_size=8), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_what_pods_on_a_node_amount_to_is_the_same_added_up_anew(visits: list[list[int]]) -> None:
    """Daemons, ports and volumes are not merely summed; a pod that of them goes must not be forgotten."""

    def kind(at: int) -> dict[str, Any]:
        owner = {"kind": "DaemonSet", "uid": f"d{at}", "controller": True}
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
        ways: tuple[dict[str, Any], ...] = (
            {},
            {"labels": {"app": "web"}},
            {"metadata": {"ownerReferences": [owner]}},
            {"container": {"ports": [{"hostPort": 80}]}},
            {"volumes": [volume]},
        )
        return ways[at % 5]

    crowd = [pod(f"p{at}", cpu=f"{100 * (at // 5 + 1)}m", **kind(at)) for at in range(12)]
    memory = PlannerCache()
    for visit in visits:
        state = node("n", pods=tuple(crowd[at] for at in visit))
        kept, fresh = facts_of(state, memory), facts_of(state, PlannerCache())
        assert {name: amount for name, amount in kept.used.items() if amount} == fresh.used
        assert {_seen(shape): count for shape, count in kept.shapes.items()} == {
            _seen(shape): count for shape, count in fresh.shapes.items()
        }
        assert (kept.ports, kept.claims, kept.daemon_used) == (fresh.ports, fresh.claims, fresh.daemon_used)


def _seen(shape: PodConstraints) -> object:
    return (shape.amounts, shape.selector_key, shape.ports, shape.claims, shape.daemon)
