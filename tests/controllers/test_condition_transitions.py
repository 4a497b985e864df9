"""The lifecycle of a NodeClaim in its events, with Karpenter's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]


async def _published(world: Any, kind: str) -> list[tuple[str, str]]:
    found = [event for event in await world.list(kinds.CORE_EVENTS) if event["involvedObject"]["kind"] == kind]
    return [(each["reason"], each["message"]) for each in found]


def test_every_condition_transition_is_published(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "30s"})
        await world.served(1)
        await asyncio.sleep(10)
        published = await _published(world, "NodeClaim")
        for name in ("Launched", "Registered", "Initialized", "Ready"):
            text = f"Status condition transitioned, Type: {name}, Status: Unknown -> True, Reason: {name}"
            assert published.count((name, text)) == 1
        (pod,) = await world.list(kinds.PODS)
        await world.kube.delete(kinds.PODS, pod["metadata"]["name"], "default")
        await asyncio.sleep(120)
        assert await world.list(kinds.NODECLAIMS) == []
        finalized = ("Finalized", "Finalized karpenter.sh/termination")
        assert finalized in await _published(world, "NodeClaim")
        assert finalized in await _published(world, "Node")
        text = world.autoscaler.metrics.text().decode()
        assert 'operator_termination_duration_seconds_count{group="karpenter.sh",kind="NodeClaim"} 1.0' in text

    run_scenario(scenario)


def test_a_new_leader_publishes_no_earlier_transition(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(10)
        before = await _published(world, "NodeClaim")
        await world.stop()
        world.start()
        await asyncio.sleep(10)
        assert await _published(world, "NodeClaim") == before

    run_scenario(scenario)
