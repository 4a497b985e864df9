"""Laws that hold for every input, not only for the examples we thought of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dovetail.model.pods import Pod
from dovetail.planner.cache import PlannerCache
from dovetail.planner.provision import provision
from dovetail.planner.snapshot import Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import HOSTNAME, ZONE, near, node, pod, pool, spread

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Pod, ...]:
    found: list[Pod] = []
    for at in range(draw(st.integers(1, 4))):
        app = f"app{at}"
        constraint: dict[str, Any] = draw(
            st.sampled_from(
                [
                    {},
                    {},
                    spread(app=app),
                    spread(HOSTNAME, skew=2, app=app),
                    near("podAntiAffinity", HOSTNAME, app=app),
                    near("podAntiAffinity", ZONE, app=app),
                    near("podAffinity", ZONE, app=app),
                    near("podAffinity", HOSTNAME, app="app0"),
                    near("podAntiAffinity", ZONE, app="app0"),
                    near("podAntiAffinity", HOSTNAME, app=app, weight=5),
                    spread(app="app0"),
                    {"nodeSelector": {ZONE: "z2"}},
                ]
            )
        )
        cpu = draw(st.sampled_from(["100m", "700m", "1500m", "3", "9"]))
        memory = draw(st.sampled_from(["128Mi", "2Gi", "9Gi"]))
        count = draw(st.integers(1, 6))
        found += [pod(f"{app}-{i}", cpu=cpu, memory=memory, labels={"app": app}, **constraint) for i in range(count)]
    return tuple(found)


@QUICK
@given(workloads(), st.booleans())
def test_every_plan_passes_the_verifier(pending: tuple[Pod, ...], limited: bool) -> None:
    limits = {"cpu": 12000, "nodes": 4} if limited else {}
    snapshot = Snapshot(pools=(pool(limits=limits),), pending=pending, nodes=(node("n1", "z2", cpu="2"),))
    assert [str(each) for each in verify(provision(snapshot), snapshot)] == []


@QUICK
@given(workloads())
def test_the_search_gives_valid_plans_above_their_bound(pending: tuple[Pod, ...]) -> None:
    snapshot = Snapshot(pools=(pool(),), pending=pending)
    plan = provision(snapshot, deadline=0.05)
    assert [str(each) for each in verify(plan, snapshot)] == []
    assert plan.cost.lower_bound is not None
    assert plan.cost.lower_bound <= plan.cost.per_hour + 1e-9


@QUICK
@given(workloads(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(pending: tuple[Pod, ...], rng: Any) -> None:
    shuffled = list(pending)
    rng.shuffle(shuffled)
    one = provision(Snapshot(pools=(pool("a"), pool("b")), pending=pending))
    other = provision(Snapshot(pools=(pool("b"), pool("a")), pending=tuple(shuffled)))
    assert replace(one, seconds=0.0) == replace(other, seconds=0.0)


@QUICK
@given(workloads())
def test_what_is_remembered_changes_no_answer(pending: tuple[Pod, ...]) -> None:
    memory = PlannerCache()
    snapshot = Snapshot(pools=(pool(),), pending=pending, nodes=(node("n1"),), memory=memory)
    first = provision(snapshot)
    again = provision(replace(snapshot, pending=pending[:1]))
    fresh = provision(Snapshot(pools=snapshot.pools, pending=pending[:1], nodes=snapshot.nodes))
    assert replace(again, seconds=0.0) == replace(fresh, seconds=0.0)
    assert replace(provision(snapshot), seconds=0.0) == replace(first, seconds=0.0)


@QUICK
@given(workloads())
def test_a_node_selector_more_never_frees_a_pod(pending: tuple[Pod, ...]) -> None:
    free = provision(Snapshot(pools=(pool(),), pending=pending)).unschedulable
    pinned = tuple(
        replace(each, spec=replace(each.spec, node_selector={**each.spec.node_selector, "kubernetes.io/arch": "s390x"}))
        for each in pending
    )
    held = provision(Snapshot(pools=(pool(),), pending=pinned)).unschedulable
    assert set(free) <= set(held)
    assert len(held) == len(pending)


@pytest.mark.parametrize("amount", ["0", "1e30", "1m", "-1", "99999999999Ei", "banana"])
def test_hostile_requests_give_an_answer(amount: str) -> None:
    plan = provision(Snapshot(pools=(pool(),), pending=(pod("a", cpu=amount, memory=amount),)))
    assert set(plan.placements) == {"default/a"}


def test_fifteen_hundred_kinds_of_pods_all_find_a_place() -> None:
    pending = tuple(pod(f"p{i}", cpu=f"{100 + i}m", memory=f"{64 + i % 97}Mi") for i in range(1500))
    assert not provision(Snapshot(pools=(pool(),), pending=pending)).unschedulable
