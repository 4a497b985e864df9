"""What kubelets write as they join is stored, and reaches caches, as if the API server had seen every request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dovetail.chance import Chance
from dovetail.clock import Clock, run_virtual
from dovetail.kube.errors import AlreadyExists, BadRequest, Invalid
from dovetail.kube.reflector import Reflector
from dovetail.kube.resources import CSINODES, LEASES, NODES
from dovetail.kube.transport import Transport
from dovetail.lab.direct_client import DirectKube
from dovetail.lab.fast_transport.transport import FastTransport
from dovetail.lab.in_process import InProcess
from dovetail.lab.instances import SimulatedInstance
from dovetail.lab.kubelet.node import body_of, conditions, csinode_of, lease_of
from dovetail.lab.server import LabServer
from dovetail.model.nodes import Node

Json = dict[str, Any]
_TIMES = ("2026-01-01T00:00:02Z", "2026-01-01T00:00:07Z", "2026-01-01T00:01:00Z")


def _instance(number: int) -> SimulatedInstance:
    return SimulatedInstance(
        name=f"ip-10-64-0-{number}.ap-northeast-2.compute.internal",
        provider_id=f"aws:///ap-northeast-2a/i-{number:017x}",
        instance_type="m5.large",
        zone="ap-northeast-2a",
        region="ap-northeast-2",
        ip=f"10.64.0.{number}",
        capacity={"cpu": 2000, "memory": 8 << 30, "pods": 29},
        allocatable={"cpu": 1930, "memory": 7 << 30, "pods": 29},
        taints=({"key": "karpenter.sh/unregistered", "effect": "NoExecute"},),
    )


def _client(transport: Transport) -> DirectKube:
    clock = Clock(asyncio.get_running_loop())
    return DirectKube(transport, clock, chance=Chance(1), manager="kubelet", user_agent="kubelet")


def _server() -> LabServer:
    return LabServer(Clock(asyncio.get_running_loop()), Chance(1))


async def _join(kube: DirectKube, number: int) -> None:
    """A kubelet registers, and is ready a moment later; then it has too little memory."""
    instance, now = _instance(number), _TIMES[number % 2]
    node = await kube.create(NODES, body_of(instance, now, ready=False))
    await kube.create(LEASES, lease_of(instance, node["metadata"]["uid"], now.replace("Z", ".000000Z")))
    await kube.create(CSINODES, csinode_of(instance, node["metadata"]["uid"]))
    await kube.patch(NODES, instance.name, {"spec": {"taints": None}, "metadata": {"labels": {"team": "web"}}})
    for pressed in (False, True):
        body = {"status": {"conditions": conditions(_TIMES[2], now, ready=True, pressed=pressed)}}
        await kube.patch(NODES, instance.name, body, kind="strategic", subresource="status")


def _plain(objects: Sequence[Json]) -> list[Json]:
    """Without managedFields, which the short way does not follow, and times of creation."""
    for item in objects:
        for name in ("managedFields", "creationTimestamp"):
            item["metadata"].pop(name, None)
    return list(objects)


def test_nodes_are_stored_as_the_api_server_stores_them() -> None:
    """Of the third on nothing is made by the general machinery; uids and versions come in the same order."""

    async def stored(transport: Transport) -> list[list[Json]]:
        kube = _client(transport)
        for number in (1, 2, 3, 4):
            await _join(kube, number)
        return [_plain((await kube.list(resource)).items) for resource in (NODES, LEASES, CSINODES)]

    async def both() -> tuple[list[list[Json]], list[list[Json]]]:
        return await stored(FastTransport(_server())), await stored(InProcess(_server()))

    fast, usual = run_virtual(both())
    assert fast == usual
    assert [len(objects) for objects in fast] == [4, 4, 4]


def test_a_cache_shows_what_decoding_would_show() -> None:
    """A patch reaches a cache as the fields that are new: the cached node is equal to the one that is read."""

    async def run() -> tuple[list[Node], list[Node]]:
        kube = _client(FastTransport(_server()))
        cache: Reflector[Node] = Reflector(kube, NODES, Node)
        follows = asyncio.ensure_future(cache.run())
        await cache.synced.wait()
        for number in (1, 2, 3):
            await _join(kube, number)
        shown = sorted(cache.store.all(), key=lambda node: node.metadata.name)
        follows.cancel()
        return shown, list((await kube.list(NODES, type=Node)).items)

    shown, read = run_virtual(run())
    assert shown == read
    assert len(read) == 3


def test_what_differs_in_anything_else_takes_the_usual_way() -> None:
    async def answers() -> list[type[Exception]]:
        kube, refused = _client(FastTransport(_server())), list[type[Exception]]()
        await _join(kube, 1)
        wrong = body_of(_instance(2), _TIMES[0], ready=False)
        wrong["metadata"]["name"] = "Not_A_Name"
        untidy = body_of(_instance(2), _TIMES[0], ready=False)
        untidy["spec"]["taints"] = [{"key": "a b", "effect": "NoExecute"}]
        for body in (body_of(_instance(1), _TIMES[0], ready=False), wrong, untidy, b"no JSON"):
            with pytest.raises((AlreadyExists, Invalid, BadRequest)) as problem:
                await kube.create(NODES, body)
            refused.append(problem.type)
        return refused

    assert run_virtual(answers()) == [AlreadyExists, Invalid, Invalid, BadRequest]


def test_the_second_kubelet_makes_no_request() -> None:
    async def requests() -> list[str]:
        server = _server()
        kube, made = _client(FastTransport(server)), list[str]()
        await _join(kube, 1)
        usual = server.handle

        async def count(request: Any) -> Any:
            made.append(f"{request.method} {request.path}")
            return await usual(request)

        server.handle = count  # type: ignore[method-assign]
        await _join(kube, 3)
        return made

    assert run_virtual(requests()) == []
