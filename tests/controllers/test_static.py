"""Static pools: so many machines, whatever the pods do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds

Tell = Callable[..., None]
GATES = {**Settings().feature_gates, "StaticCapacity": True}


async def _standing(world: Any, count: int) -> None:
    async def there() -> bool:
        claims = await world.list(kinds.NODECLAIMS)
        states = [await world.conditions(each) for each in claims]
        return len(claims) == count and all(each.get("Initialized", "").startswith("True") for each in states)

    await world.until(there, within=200)


def test_a_static_pool_has_its_machines_within_its_limit_and_gives_up_the_empty_one_first(tell: Tell) -> None:
    async def story(world: Any) -> None:
        await world.pool(replicas=4, limits={"nodes": "3"}, disruption={"budgets": [{"nodes": "0"}]})
        world.start()
        await _standing(world, 3)
        claims = {each["status"]["nodeName"]: each["metadata"]["name"] for each in await world.list(kinds.NODECLAIMS)}
        quiet, busy, guarded = sorted(claims)
        for name, node, note in (("a", busy, {}), ("b", guarded, {"karpenter.sh/do-not-disrupt": "true"})):
            body = {
                "metadata": {"name": name, "annotations": note},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "pause"}]},
            }
            await world.kube.create(kinds.PODS, body, "default")
        await asyncio.sleep(5)
        for left, replicas in (({busy, guarded}, 2), ({guarded}, 1)):
            await world.kube.patch(kinds.NODEPOOLS, "default", {"spec": {"replicas": replicas}})
            await _standing(world, replicas)
            assert {each["status"]["nodeName"] for each in await world.list(kinds.NODECLAIMS)} == left
        assert quiet not in left

    tell(story, feature_gates=GATES)
