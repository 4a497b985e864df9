"""A terminating node waits for its volumes; VolumeAttachments are watched, not listed again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dovetail.kube import resources as kinds
from dovetail.kube.transport import Request, Response

RunScenario = Callable[..., None]


class Reads:
    """A transport that notes the reads of VolumeAttachments."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.paths: list[str] = []
        self.broken = False

    async def send(self, request: Request) -> Response:
        if request.path.endswith("/volumeattachments"):
            self.paths.append(request.path)
            if self.broken:
                return Response(status=500, body=b"{}")
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


async def _attached(world: Any, node: str) -> None:
    spec = {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": "v"}}
    await world.kube.create(kinds.VOLUMEATTACHMENTS, {"metadata": {"name": "a"}, "spec": spec})


async def _gone(world: Any) -> bool:
    return not await world.list(kinds.NODES)


def test_a_drained_node_waits_for_its_volumes_without_listing_them_every_second(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        reads = world.transport._inner = Reads(world.transport._inner)
        await world.pods(1)
        await world.until(world.all_bound)
        (node,) = await world.list(kinds.NODES)
        await _attached(world, node["metadata"]["name"])
        await world.kube.delete(kinds.NODES, node["metadata"]["name"])
        before = len(reads.paths)
        await asyncio.sleep(120)
        assert not await _gone(world)
        assert len(reads.paths) - before <= 1, "one watch at most is opened anew"
        await world.kube.delete(kinds.VOLUMEATTACHMENTS, "a")
        await world.until(lambda: _gone(world), within=60)

    run_scenario(scenario)


def test_a_node_does_not_end_while_it_is_not_known_what_is_attached(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        reads = world.transport._inner = Reads(world.transport._inner)
        await world.pods(1)
        await world.until(world.all_bound)
        reads.broken = True
        await asyncio.sleep(900)  # past the end of the watch
        (node,) = await world.list(kinds.NODES)
        await world.kube.delete(kinds.NODES, node["metadata"]["name"])
        await asyncio.sleep(120)
        assert not await _gone(world)
        reads.broken = False
        await world.until(lambda: _gone(world), within=120)

    run_scenario(scenario)
