"""Deletions by another actor are in the history too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dovetail.controllers import explain
from dovetail.kube import resources as kinds
from tests.controllers.test_termination_and_disruption import RunScenario, gone, nodes, running


def _ends(world: Any) -> list[Any]:
    return [decision for decision in world.autoscaler.decision_history.decisions() if decision.kind == "end"]


def test_a_nodeclaim_deleted_by_hand_is_recorded_with_its_price_and_its_node(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,), (claim,) = await nodes(world), await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(1)
        (end,) = _ends(world)
        assert end.reason == "nodeclaim_deleted" and end.removed == (name,) and end.before > end.cost == 0.0
        assert end.summary.endswith("is deleted: its NodeClaim was deleted by another actor")
        autoscaler, now = world.autoscaler, world.clock.now()
        answer = explain.node(autoscaler.cluster_state, autoscaler.decision_history.decisions(), name, now)
        assert answer.details[0] == f"terminating since {end.time}: {end.summary} (decision {end.id})"
        await world.until(lambda: gone(world), within=200)
        line = explain.node(autoscaler.cluster_state, autoscaler.decision_history.decisions(), name, now).line
        assert line.endswith(end.summary)
        assert [each["decision"] for each in world.logged("nodeclaim deleted by another actor")] == [end.id]

    run_scenario(scenario)


def test_a_node_deleted_by_hand_is_recorded_once(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,) = await nodes(world)
        await world.kube.delete(kinds.NODES, name)
        await world.until(lambda: gone(world), within=200)
        (end,) = _ends(world)
        assert end.reason == "node_deleted"
        assert end.summary.endswith(f"is deleted: its Node {name} was deleted by another actor")

    run_scenario(scenario)


def test_nodeclaims_of_a_deleted_nodepool_are_recorded_with_that_reason(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODEPOOLS, "default")
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])  # as the garbage collector does
        await world.until(lambda: gone(world), within=200)
        (end,) = _ends(world)
        assert end.reason == "nodepool_deleted" and end.summary.endswith("its NodePool default was deleted")

    run_scenario(scenario)


def test_our_own_deletions_are_not_recorded_as_external(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await world.until(lambda: gone(world), within=120)
        assert not _ends(world) and not world.logged("nodeclaim deleted by another actor")

    run_scenario(scenario)


def test_a_deletion_while_no_controller_ran_is_recorded_by_the_next_process_and_only_once(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: Any) -> None:
        await running(world, 1)
        (name,) = await nodes(world)
        guard = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        await world.kube.patch(kinds.PODS, "p0", guard, "default")
        await world.stop()
        await world.kube.delete(kinds.NODES, name)
        for _ in range(2):
            world.start()
            await asyncio.sleep(20)
            (end,) = _ends(world)
            assert "its Node was deleted at 20" in end.summary and end.summary.endswith(
                "while no controller was running"
            )
            await world.stop()

    run_scenario(scenario, history=str(tmp_path / "history"))
