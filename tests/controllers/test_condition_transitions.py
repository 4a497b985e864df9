"""The lifecycle of a NodeClaim in its events, with Karpenter's messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

Tell = Callable[..., None]


async def _told(world: Any, kind: str) -> list[tuple[str, str]]:
    found = [each for each in await world.list(kinds.CORE_EVENTS) if each["involvedObject"]["kind"] == kind]
    return [(each["reason"], each["message"]) for each in found]


def test_every_condition_transition_is_published(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "30s"})
        await world.served(1)
        await asyncio.sleep(10)
        told = await _told(world, "NodeClaim")
        for name in ("Launched", "Registered", "Initialized", "Ready"):
            text = f"Status condition transitioned, Type: {name}, Status: Unknown -> True, Reason: {name}"
            assert told.count((name, text)) == 1
        (pod,) = await world.list(kinds.PODS)
        await world.kube.delete(kinds.PODS, pod["metadata"]["name"], "default")
        await asyncio.sleep(120)
        assert await world.list(kinds.NODECLAIMS) == []
        finalized = ("Finalized", "Finalized karpenter.sh/termination")
        assert finalized in await _told(world, "NodeClaim")
        assert finalized in await _told(world, "Node")
        text = world.autoscaler.metrics.text().decode()
        assert 'operator_termination_duration_seconds_count{group="karpenter.sh",kind="NodeClaim"} 1.0' in text

    tell(story)


def test_a_new_leader_publishes_no_earlier_transition(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        await world.served(1)
        await asyncio.sleep(10)
        before = await _told(world, "NodeClaim")
        await world.stop()
        world.start()
        await asyncio.sleep(10)
        assert await _told(world, "NodeClaim") == before

    tell(story)
