"""Instance types: nothing is remembered of deleted NodePools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds

RunScenario = Callable[..., None]


def test_deleted_nodepools_are_forgotten(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool("stays")
        await world.pool("goes")
        world.start()
        await asyncio.sleep(60.0)
        offers = world.autoscaler.context.instance_types
        assert {each.name for each in await offers.all()} == {"stays", "goes"}
        await world.kube.delete(kinds.NODEPOOLS, "goes")
        await asyncio.sleep(60.0)
        assert [each.name for each in await offers.all()] == ["stays"]
        assert offers._made.keys() == offers._plain.keys() == {"stays"}

    run_scenario(scenario)
