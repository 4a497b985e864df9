"""Whoever else ends a machine is in the history too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dovetail.controllers import explain
from dovetail.kube import resources as kinds
from tests.controllers.test_termination_and_disruption import Tell, gone, nodes, running


def _ends(world: Any) -> list[Any]:
    return [each for each in world.autoscaler.decision_history.decisions() if each.kind == "end"]


def test_a_nodeclaim_that_a_person_deletes_is_told_of_with_its_price_and_its_node(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 1)
        (name,), (claim,) = await nodes(world), await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(1)
        (end,) = _ends(world)
        assert end.reason == "nodeclaim_deleted" and end.removed == (name,) and end.before > end.cost == 0.0
        assert end.summary.endswith("goes: its NodeClaim was deleted by somebody else")
        autoscaler, now = world.autoscaler, world.clock.now()
        answer = explain.node(autoscaler.cluster_state, autoscaler.decision_history.decisions(), name, now)
        assert answer.details[0] == f"goes since {end.time}: {end.summary} (decision {end.id})"
        await world.until(lambda: gone(world), within=200)
        line = explain.node(autoscaler.cluster_state, autoscaler.decision_history.decisions(), name, now).line
        assert line.endswith(end.summary)
        assert [each["decision"] for each in world.said("nodeclaim deleted by somebody else")] == [end.id]

    tell(story)


def test_a_node_that_a_person_deletes_is_told_of_once(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 1)
        (name,) = await nodes(world)
        await world.kube.delete(kinds.NODES, name)
        await world.until(lambda: gone(world), within=200)
        (end,) = _ends(world)
        assert end.reason == "node_deleted"
        assert end.summary.endswith(f"goes: its Node {name} was deleted by somebody else")

    tell(story)


def test_machines_whose_pool_is_deleted_say_so(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 1)
        (claim,) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODEPOOLS, "default")
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])  # as the garbage collector does
        await world.until(lambda: gone(world), within=200)
        (end,) = _ends(world)
        assert end.reason == "nodepool_deleted" and end.summary.endswith("its NodePool default was deleted")

    tell(story)


def test_what_we_end_ourselves_is_nobody_elses_doing(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await running(world, 1)
        await world.kube.delete(kinds.PODS, "p0", "default", grace=0)
        await world.until(lambda: gone(world), within=120)
        assert not _ends(world) and not world.said("nodeclaim deleted by somebody else")

    tell(story)


def test_a_deletion_that_nobody_watched_is_told_of_by_the_next_process_and_only_once(
    tell: Tell, tmp_path: Path
) -> None:
    async def story(world: Any) -> None:
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
            assert "its Node was deleted at 20" in end.summary and end.summary.endswith("while nobody watched")
            await world.stop()

    tell(story, history=str(tmp_path / "history"))
