"""Volumes that several pods share: a node attaches each of them once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model.instance_type import InstanceType
from dovetail.model.pods import Pod
from dovetail.model.volumes import PersistentVolumeClaim, StorageClass
from dovetail.planner.packing.state import PackingState
from dovetail.planner.problem.compile import Problem
from dovetail.planner.problem.request import PlacementRequest
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import NodeState, Snapshot
from dovetail.planner.verify import verify

from .conftest import Solve, kind, node, pod, pool

_EBS = "ebs.csi.aws.com"
_SHOP = (kind("small", 2, 8, 0.10, attach_limits={_EBS: 2}), kind("large", 16, 64, 0.80, attach_limits={_EBS: 2}))
_WAITS = {"metadata": {"name": "gp3"}, "provisioner": _EBS, "volumeBindingMode": "WaitForFirstConsumer"}
_CLASSES = {"gp3": msgspec.convert(_WAITS, StorageClass)}


def _claims(*names: str) -> dict[str, PersistentVolumeClaim]:
    body = {"spec": {"storageClassName": "gp3"}, "status": {"phase": "Pending"}}
    made = {name: {**body, "metadata": {"name": name, "namespace": "default"}} for name in names}
    return {f"default/{name}": msgspec.convert(each, PersistentVolumeClaim) for name, each in made.items()}


def _mounts(claims: Iterable[str]) -> list[dict[str, Any]]:
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in sorted(claims)]


def _using(claim: str, count: int) -> list[Pod]:
    return [pod(f"{claim}-{at}", cpu="500m", volumes=_mounts(claim)) for at in range(count)]


def test_pods_that_share_a_volume_take_one_attachment(solve: Solve) -> None:
    plan = solve(*_using("a", 12), pools=(pool(types=_SHOP[1:]),), claims=_claims("a"), storage_classes=_CLASSES)
    assert len(plan.nodes) == 1


def test_nodes_attach_own_volumes_beside_a_shared_one(solve: Solve) -> None:
    """Of two attachments one is for what is shared, so each large node takes one of the others."""
    own = [*_using("b", 1), *_using("c", 1)]
    claims = _claims("a", "b", "c")
    plan = solve(*_using("a", 12), *own, pools=(pool(types=_SHOP[1:]),), claims=claims, storage_classes=_CLASSES)
    assert not plan.unschedulable
    assert len(plan.nodes) == 2


def test_a_node_that_is_full_takes_no_pod_with_a_volume_that_it_does_not_hold(solve: Solve) -> None:
    there = node("full", attach_limits={_EBS: 0})
    plan = solve(
        *_using("a", 3), pools=(pool(types=_SHOP),), nodes=(there,), claims=_claims("a"), storage_classes=_CLASSES
    )
    assert {place.node for place in plan.placements.values()} == {None}


def test_no_bound_counts_a_shared_volume_for_each_pod(solve: Solve) -> None:
    """More volumes are shared than a node attaches: two nodes are enough, however many pods there are."""
    waiting = [each for claim in ("a", "b", "c", "d") for each in _using(claim, 8)]
    plan = solve(
        *waiting,
        pools=(pool(types=_SHOP[1:]),),
        claims=_claims("a", "b", "c", "d"),
        storage_classes=_CLASSES,
        deadline=0.1,
    )
    assert plan.cost.lower_bound is not None
    assert plan.cost.lower_bound <= 2 * 0.80


def test_a_volume_that_a_node_holds_already_takes_no_attachment_there(solve: Solve) -> None:
    """Nothing else could be attached, but a pod that uses the same volume as a running one may join it."""
    volumes = _mounts("a")
    there = node("full", attach_limits={_EBS: 1}, pods=(pod("old", volumes=volumes, nodeName="full"),))
    plan = solve(
        *_using("a", 2), pools=(pool(types=_SHOP),), nodes=(there,), claims=_claims("a"), storage_classes=_CLASSES
    )
    assert {place.node for place in plan.placements.values()} == {"full"}


def test_volumes_that_are_shared_by_few_are_attached_where_those_are(solve: Solve) -> None:
    """Six volumes with two pods each, two to a node: three nodes, as each keeps to its own two."""
    names = "abcdef"
    waiting = [each for name in names for each in _using(name, 2)]
    plan = solve(*waiting, pools=(pool(types=_SHOP[1:]),), claims=_claims(*names), storage_classes=_CLASSES)
    assert len(plan.nodes) == 3


def test_pods_that_use_several_volumes_share_them_all(solve: Solve) -> None:
    waiting = [pod(f"both-{at}", cpu="500m", volumes=_mounts("ab")) for at in range(2)]
    plan = solve(
        *waiting, *_using("c", 2), pools=(pool(types=_SHOP),), claims=_claims(*"abc"), storage_classes=_CLASSES
    )
    assert not plan.unschedulable


def _problem(*pending: Pod, claims: str, nodes: tuple[NodeState, ...] = ()) -> Problem:
    return Problem(
        Snapshot(
            pools=(pool(types=_SHOP),), pending=pending, nodes=nodes, claims=_claims(*claims), storage_classes=_CLASSES
        )
    )


def _ask(problem: Problem, name: str) -> PlacementRequest:
    return next(problem.request(one, 0) for one in problem.classes if f"default/{name}" in one.pods)


def _attachments(state: PackingState, at: int) -> int:
    return int(state.free[state.problem.dims.index(f"attach:{_EBS}"), at])


def test_a_second_pod_of_a_volume_needs_no_attachment_on_the_node_that_has_it() -> None:
    problem = _problem(*_using("a", 2), *_using("b", 2), *_using("c", 2), claims="abc")
    state = PackingState(problem)
    at = state.open(0)
    for name in ("a", "b"):
        state.put(_ask(problem, f"{name}-0"), at, 1)
    assert _attachments(state, at) == 0
    assert [state.holds(_ask(problem, f"{name}-0"), at, 1) for name in "abc"] == [1, 1, 0]
    assert [state.room(_ask(problem, f"{name}-0"), 1)[0].tolist() for name in "abc"] == [[at], [at], []]


def test_a_node_gives_an_attachment_back_when_its_last_user_leaves() -> None:
    problem = _problem(*_using("a", 2), claims="a")
    state, request = PackingState(problem), _ask(problem, "a-0")
    at = state.open(0)
    state.put(request, at, 2)
    state.put(request, at, -1)
    assert _attachments(state, at) == 1
    state.put(request, at, -1)
    assert _attachments(state, at) == 2


def test_a_volume_that_running_pods_use_stays_attached_when_others_leave() -> None:
    volumes = _mounts("a")
    there = node("there", cpu="8", attach_limits={_EBS: 2}, pods=(pod("old", volumes=volumes, nodeName="there"),))
    problem = _problem(*_using("a", 2), claims="a", nodes=(there,))
    state, request = PackingState(problem), _ask(problem, "a-0")
    state.put(request, 0, 2)
    state.put(request, 0, -2)
    assert _attachments(state, 0) == 1
    assert state.holds(request, 0, 2) == 2


def test_pods_with_volumes_of_their_own_leave_an_attachment_for_what_they_share() -> None:
    """Each takes one beside the one that they have in common, so of three there is room for two of them."""
    claims = ("a", "b", "c", "d")
    waiting = [pod(f"p-{own}", volumes=_mounts(("a", own))) for own in claims[1:]]
    three = kind("three", 16, 64, 0.80, attach_limits={_EBS: 3})
    problem = Problem(
        Snapshot(
            pools=(pool(types=(three,)),), pending=tuple(waiting), claims=_claims(*claims), storage_classes=_CLASSES
        )
    )
    state, request = PackingState(problem), _ask(problem, "p-b")
    at = state.open(0)
    assert state.holds(request, at, 3) == 2
    assert state.room(request, 3)[1].tolist() == [2]


def test_a_node_that_lacks_a_volume_takes_its_pods_once_a_pod_else_has_brought_it(solve: Solve) -> None:
    """The large pods come first and find room for one volume; the small ones follow a pod that has theirs."""
    there = [node(name, cpu="8", attach_limits={_EBS: 1}) for name in ("one", "two")]
    large = [pod(f"large-{name}", cpu="3", volumes=_mounts(name)) for name in "ab"]
    plan = solve(
        *large,
        *_using("a", 4),
        *_using("b", 4),
        pools=(),
        nodes=there,
        claims=_claims("a", "b"),
        storage_classes=_CLASSES,
    )
    assert not plan.unschedulable


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_attachments_are_counted_as_if_pods_were_put_anew(data: st.DataObject) -> None:
    """Whatever was put and taken, in whatever order: a node has its limit less the distinct volumes on it."""
    problem = _problem(*_using("a", 3), *_using("b", 3), *_using("c", 3), *_using("d", 1), claims="abcd")
    state = PackingState(problem)
    nodes = [state.open(0), state.open(1)]
    for _ in range(data.draw(st.integers(1, 12))):
        at, request = data.draw(st.sampled_from(nodes)), data.draw(st.sampled_from(problem.first_requests))
        here = state.contents[at].get(request.number, 0)
        take = data.draw(st.integers(-here, state.holds(request, at, 2)))
        if take:
            state.put(request, at, take)
    twin = PackingState(problem)
    for at in nodes:
        assert twin.open(state.offering_of(at)) == at
        for number, count in state.contents[at].items():
            twin.put(state.placement_requests[number], at, count)
    assert (twin.free[:, : twin.size] == state.free[:, : state.size]).all()
    assert min(_attachments(state, at) for at in nodes) >= 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.frozensets(st.sampled_from("abcdef"), max_size=2), min_size=1, max_size=14),
    st.lists(st.tuples(st.integers(0, 3), st.frozensets(st.sampled_from("abc"), max_size=2)), max_size=3),
    st.integers(1, 3),
)
def test_plans_with_shared_volumes_hold_and_leave_no_pod_out_for_want_of_nodes(
    waiting: list[frozenset[str]], there: list[tuple[int, frozenset[str]]], limit: int
) -> None:
    pending = tuple(pod(f"p{at}", volumes=_mounts(names)) for at, names in enumerate(waiting))
    nodes = tuple(
        node(
            f"n{at}",
            cpu="4",
            attach_limits={_EBS: most},
            pods=(pod(f"old{at}", volumes=_mounts(names), nodeName=f"n{at}"),),
        )
        for at, (most, names) in enumerate(there)
    )
    types = (kind("small", 2, 8, 0.10, attach_limits={_EBS: limit}),)
    snapshot = Snapshot(
        pools=(pool(types=types),), pending=pending, nodes=nodes, claims=_claims(*"abcdef"), storage_classes=_CLASSES
    )
    plan = provision(snapshot, deadline=0.05)
    assert [str(each) for each in verify(plan, snapshot)] == []
    assert all(len(waiting[int(key.removeprefix("default/p"))]) > limit for key in plan.unschedulable)


def test_a_node_takes_all_users_of_its_last_volume_also_where_types_attach_any_number(solve: Solve) -> None:
    """Only the node's driver says how many it attaches; a node launched for the others would be for nothing."""
    there = node("there", cpu="8", attach_limits={_EBS: 1})
    plan = solve(*_using("a", 3), nodes=(there,), claims=_claims("a"), storage_classes=_CLASSES)
    assert {place.node for place in plan.placements.values()} == {"there"}


@pytest.mark.parametrize("types", [(kind("small", 2, 8, 0.10),), _SHOP])
def test_nodes_that_cannot_attach_all_that_is_shared_begin_with_different_volumes(
    solve: Solve, types: tuple[InstanceType, ...]
) -> None:
    """Each has one attachment, and keeps it for the users of one volume; none has to wait for room for both."""
    there = [node(name, cpu="8", attach_limits={_EBS: 1}) for name in ("one", "two")]
    plan = solve(
        *_using("a", 3),
        *_using("b", 2),
        pools=(pool(types=types),),
        nodes=there,
        claims=_claims("a", "b"),
        storage_classes=_CLASSES,
    )
    assert {place.node for place in plan.placements.values()} == {"one", "two"}


def test_a_node_keeps_its_attachments_for_what_it_holds(solve: Solve) -> None:
    volumes = _mounts("b")
    there = node("full", cpu="8", attach_limits={_EBS: 1}, pods=(pod("old", volumes=volumes, nodeName="full"),))
    plan = solve(
        *_using("a", 3),
        *_using("b", 2),
        pools=(pool(types=_SHOP),),
        nodes=(there,),
        claims=_claims("a", "b"),
        storage_classes=_CLASSES,
    )
    assert [key for key, place in plan.placements.items() if place.node == "full"] == ["default/b-0", "default/b-1"]


def test_a_shared_volume_that_nothing_attaches_is_reported_as_any_other(solve: Solve) -> None:
    none = kind("small", 2, 8, 0.10, attach_limits={_EBS: 0})
    plan = solve(
        *_using("a", 2),
        pools=(pool(types=(none,)),),
        nodes=(node("full", attach_limits={_EBS: 0}),),
        claims=_claims("a"),
        storage_classes=_CLASSES,
    )
    why = plan.unschedulable["default/a-0"]
    assert why.code == "VOLUME_LIMIT"
    assert f"1 volume of {_EBS} (at most 0)" in why.message
