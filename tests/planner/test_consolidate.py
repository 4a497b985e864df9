"""Consolidation: nothing is moved to save nothing, and what is moved has a node."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.cli.plan_text import as_text
from dovetail.planner.consolidate.policy import ConsolidationPolicy, RemovalQuota
from dovetail.planner.consolidate.search import consolidate
from dovetail.planner.plan import Plan
from dovetail.planner.snapshot import NodeState, Snapshot
from dovetail.planner.verify import verify
from tests.planner.conftest import node as bare
from tests.planner.conftest import pod, pool

TYPE = "node.kubernetes.io/instance-type"


def node(name: str, kind: str, *cpus: str, **more: Any) -> NodeState:
    sizes = {"small": ("2", "8Gi", 0.10), "medium": ("4", "16Gi", 0.19), "large": ("16", "64Gi", 0.80)}
    cpu, memory, price = sizes[kind]
    running = tuple(pod(f"{name}-{at}", cpu=each, nodeName=name) for at, each in enumerate(cpus))
    more.setdefault("pods", running)
    return bare(name, cpu=cpu, memory=memory, labels={TYPE: kind}, price=price, pool="default", **more)


def _consolidated(*nodes: NodeState, **more: Any) -> Plan:
    budgets = more.pop("pdbs", ())
    snapshot = Snapshot(pools=(pool(),), nodes=nodes, budgets=budgets)
    plan = consolidate(snapshot, deadline=0.5, policy=ConsolidationPolicy(**more))
    assert [str(each) for each in verify(plan, snapshot)] == []
    return plan


def test_an_empty_node_goes() -> None:
    plan = _consolidated(node("n1", "small"), node("n2", "small", "1"))
    assert plan.remove == ("n1",)
    assert plan.evictions == 0


def test_a_node_of_unknown_price_stays_and_is_reported_apart_from_a_free_one() -> None:
    unknown = replace(node("n1", "small"), price=None)
    plan = _consolidated(unknown, node("n2", "small"))
    assert plan.remove == ("n2",)
    assert plan.cost.unpriced == 1
    assert "not counted: 1 node whose price is unknown" in as_text(plan, (unknown, node("n2", "small")))


def test_pods_move_to_nodes_that_stay() -> None:
    plan = _consolidated(node("n1", "small", "500m"), node("n2", "medium", "2"))
    assert plan.remove == ("n1",)
    assert plan.moves["default/n1-0"].node == "n2"


def test_a_big_node_is_replaced_by_what_its_pods_need() -> None:
    plan = _consolidated(node("n1", "large", "1", "500m"))
    assert plan.remove == ("n1",)
    assert [planned.choice.instance_type for planned in plan.nodes] == ["small"]
    assert plan.cost.per_hour == pytest.approx(0.10)
    assert plan.cost.before == pytest.approx(0.80)


def test_nothing_is_moved_to_save_nothing() -> None:
    plan = _consolidated(node("n1", "medium", "3900m"), node("n2", "medium", "3900m"))
    assert plan.remove == ()
    assert plan.moves == {}


def test_a_charge_on_evictions_keeps_small_savings_from_moving_pods() -> None:
    nodes = (node("n1", "small", "500m"), node("n2", "medium", "2"))
    assert _consolidated(*nodes, charge=0.5).remove == ()


def test_a_node_that_is_held_stays() -> None:
    assert _consolidated(node("n1", "large", "1", movable=False, held_by="do-not-disrupt")).remove == ()


def test_pool_budgets_cap_what_goes() -> None:
    plan = _consolidated(
        *(node(f"n{at}", "small") for at in range(4)), budgets={"default": RemovalQuota(empty=2, used=2)}
    )
    assert len(plan.remove) == 2


def test_a_disruption_budget_without_room_protects_its_pods() -> None:
    import msgspec

    from dovetail.model.workloads import PodDisruptionBudget

    body = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 0},
    }
    pdb = msgspec.convert(body, PodDisruptionBudget)
    assert _consolidated(node("n1", "large", "1"), pdbs=(pdb,)).remove == ()


def test_the_bound_of_a_fleet_lies_below_what_is_left() -> None:
    plan = _consolidated(node("n1", "large", "1", "2"), node("n2", "medium", "1"), node("n3", "small", "1"))
    assert plan.cost.lower_bound is not None
    assert plan.cost.lower_bound <= plan.cost.per_hour + 1e-9
    assert plan.cost.before is not None
    assert plan.cost.per_hour < plan.cost.before


def test_pods_that_are_pending_anyway_are_planned_along() -> None:
    snapshot = Snapshot(pools=(pool(),), nodes=(node("n1", "small"),), pending=(pod("new", cpu="1"),))
    plan = consolidate(replace(snapshot), deadline=0.2)
    assert plan.remove == ()
    assert plan.placements["default/new"].node == "n1"


def test_what_waits_is_launched_for_where_nothing_may_go() -> None:
    full = node("n1", "small", "2", movable=False)
    snapshot = Snapshot(pools=(pool(),), nodes=(full,), pending=(pod("new", cpu="1"),))
    plan = consolidate(snapshot, deadline=0.2)
    assert [str(each) for each in verify(plan, snapshot)] == []
    assert plan.remove == ()
    assert plan.placements["default/new"].new_node == "m-1"
