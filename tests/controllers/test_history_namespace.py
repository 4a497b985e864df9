"""The history is read from its namespace alone: a reader needs no right to other ConfigMaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.cli.cluster_session import ClusterSession
from dovetail.cluster.state import ClusterState
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.transport import Request, Response
from dovetail.lab.in_process import InProcess

RunScenario = Callable[..., None]


class Confined:
    """A transport that may read ConfigMaps of some namespaces, and leases if so allowed."""

    def __init__(self, inner: Any, *namespaces: str, leases: bool = True) -> None:
        self._inner = inner
        self._namespaces = namespaces
        self._leases = leases

    async def send(self, request: Request) -> Response:
        ours = any(f"/namespaces/{name}/configmaps" in request.path for name in self._namespaces)
        denied = not ours if request.path.endswith("/configmaps") else not self._leases
        if denied and request.path.endswith(("/configmaps", "/leases")):
            return Response(status=403, body=b'{"kind":"Status","reason":"Forbidden","code":403,"message":"no"}')
        return await self._inner.send(request)

    async def close(self) -> None:
        return None


async def _decisions(world: Any, transport: Any, namespace: str | None = None) -> list[str]:
    kube = Kube(transport, world.clock, chance=world.chance)
    found = await ClusterSession(kube, ClusterState(kube, world.clock), world.clock.now()).decisions(namespace)
    return [each.id for each in found]


def test_decisions_are_read_from_the_leases_namespace_or_a_given_one(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        for namespace in ("karpenter", "other"):
            await world.kube.create(kinds.NAMESPACES, {"metadata": {"name": namespace}})
        for namespace in ("karpenter", "other", "kube-system"):
            line = f'{{"id":"d-{namespace}","kind":"end","time":"2026-01-01T00:00:00Z","summary":"s"}}'
            metadata = {"name": "h", "labels": {"dovetail.sh/history": "true"}}
            await world.kube.create(kinds.CONFIGMAPS, {"metadata": metadata, "data": {"decisions": line}}, namespace)
        server = InProcess(world.server)
        assert await _decisions(world, Confined(server, "other"), "other") == ["d-other"]
        assert await _decisions(world, Confined(server, "kube-system")) == ["d-kube-system"], "no lease anywhere"
        lease = {"metadata": {"name": "karpenter-leader-election"}, "spec": {}}
        await world.kube.create(kinds.LEASES, lease, "karpenter")
        assert await _decisions(world, Confined(server, "karpenter")) == ["d-karpenter"]
        assert await _decisions(world, Confined(server, "kube-system", leases=False)) == ["d-kube-system"]

    run_scenario(scenario)
