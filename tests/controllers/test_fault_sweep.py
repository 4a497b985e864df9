"""Every call fails in turn for ten minutes under load: no Ready node is deleted, nothing is launched twice.

A few calls are swept in the normal suite; all of them by `make test-slow`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from dovetail.cloud.provider import CloudError, InstanceNotFound, InsufficientCapacity, Remedy
from dovetail.controllers.nodeclaim.binding import fitting
from dovetail.kube import resources as kinds
from dovetail.kube.errors import Conflict, Disconnected, NotFound
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.apiserver.store import StoreEvent
from dovetail.lab.in_process import InProcess
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod
from tests.controllers.test_rights import _asked as asked

RunScenario = Callable[..., None]
FAULT_S, RECOVERY_S = 600.0, 1200.0
#: How a call may fail: an error, no answer though the work is done, an answer without content, an answer that is none.
WAYS = ("error", "timeout", "empty", "garbage")
#: The autoscaler's calls to Kubernetes; `test_the_sweep_leaves_no_call_out` compares them with its real calls.
CALLS = (
    *(
        ("watch", each)
        for each in (
            "pods",
            "nodes",
            "nodeclaims",
            "nodepools",
            "daemonsets",
            "namespaces",
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses",
            "csinodes",
            "poddisruptionbudgets",
            "priorityclasses",
            "volumeattachments",
            "nodeoverlays",
            "ec2nodeclasses",
            "events",
        )
    ),
    ("create", "nodeclaims"),
    ("patch", "nodeclaims"),
    ("patch", "nodeclaims/status"),
    ("delete", "nodeclaims"),
    ("get", "nodeclaims"),
    ("patch", "nodepools"),
    ("patch", "nodepools/status"),
    ("get", "nodes"),
    ("patch", "nodes"),
    ("create", "pods/binding"),
    ("create", "events"),
    ("patch", "events"),
    ("list", "configmaps"),
    ("create", "configmaps"),
    ("patch", "configmaps"),
)
OPERATIONS = ("instance_types", "launch", "get", "instances", "terminate", "drift", "interruptions", "unhealthy")
#: Those that the normal suite sweeps.
USUAL = (
    ("create", "nodeclaims", "timeout"),
    ("create", "pods/binding", "error"),
    ("patch", "nodes", "timeout"),
    ("watch", "pods", "garbage"),
    ("watch", "nodeclaims", "empty"),
    ("patch", "nodeclaims/status", "empty"),
    ("cloud", "launch", "timeout"),
    ("cloud", "instances", "empty"),
    ("cloud", "get", "empty"),
    ("cloud", "instances", "garbage"),
)


def _sweep() -> Iterator[Any]:
    every = [*(("cloud", operation) for operation in OPERATIONS), *CALLS]
    for verb, subject in every:
        for way in WAYS:
            marks = () if (verb, subject, way) in USUAL else (pytest.mark.slow,)
            yield pytest.param(verb, subject, way, marks=marks, id=f"{verb}-{subject.replace('/', '-')}-{way}")


class FaultyApi:
    """A transport on which one verb on one resource fails in one way, while `fault` stands."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.fault: tuple[str, str, str] | None = None
        self.seen: set[tuple[str, str]] = set()

    async def send(self, request: Request) -> Response:
        call = asked(request)
        self.seen.add(call)
        if self.fault is None or call != self.fault[:2]:
            response = await self._inner.send(request)
            if response.stream is None:
                return response
            return Response(status=response.status, headers=response.headers, stream=self._cut(call, response.stream))
        way = self.fault[2]
        if way == "error":
            status = {"kind": "Status", "reason": "InternalError", "code": 500, "message": "etcd is gone"}
            return Response(status=500, body=json.dumps(status).encode())
        if call[0] != "watch":
            await self._inner.send(request)
        if way == "timeout":
            await asyncio.sleep(30.0)
            raise Disconnected(f"{request.method} {request.path}: no answer within 30 s")
        body = b"{}" if way == "empty" else b"<html>502 Bad Gateway</html>"
        if call[0] == "watch":
            return Response(status=200, stream=_chunks(b"" if way == "empty" else body))
        return Response(status=200, body=body)

    async def _cut(self, call: tuple[str, str], stream: Any) -> Any:
        """A watch that breaks at its next event while it is to fail."""
        async for chunk in stream:
            if self.fault is not None and call == self.fault[:2]:
                raise Disconnected("the watch was cut")
            yield chunk

    async def close(self) -> None:
        await self._inner.close()


async def _chunks(text: bytes) -> Any:
    yield text


class FaultyCloud:
    """Makes one operation of a world's cloud fail in one way, while `fault` stands."""

    def __init__(self, cloud: Any) -> None:
        self.fault: tuple[str, str] | None = None
        self.failed = 0
        for operation in OPERATIONS:
            inner = getattr(cloud, operation)
            broken = self._messages(inner) if operation == "interruptions" else self._broken(operation, inner)
            setattr(cloud, operation, broken)

    def _broken(self, operation: str, inner: Any) -> Any:
        async def call(*parts: Any) -> Any:
            if self.fault is None or self.fault[0] != operation:
                return await inner(*parts)
            self.failed += 1
            return await self._fail(operation, inner, parts)

        return call

    async def _fail(self, operation: str, inner: Any, parts: tuple[Any, ...]) -> Any:
        way = self.fault[1] if self.fault is not None else ""
        if way == "error":
            raise CloudError("InternalError", f"{operation}: an internal error has occurred", Remedy.RETRY)
        if way == "garbage":
            raise RuntimeError(f"{operation}: an answer that was not expected")
        if way == "timeout":
            await inner(*parts)
            await asyncio.sleep(60.0)
            raise CloudError("RequestTimeout", f"{operation}: no answer within 60 s", Remedy.RETRY)
        if operation == "launch":
            raise InsufficientCapacity("no instance in the answer")
        if operation == "get":
            raise InstanceNotFound(parts[0])
        return () if operation in ("instance_types", "instances", "unhealthy") else None

    def _messages(self, inner: Any) -> Any:
        async def messages() -> Any:
            if self.fault is not None and self.fault[0] == "interruptions":
                self.failed += 1
                await self._fail("interruptions", _nothing, ())
                return
            async for batch in inner():
                yield batch

        return messages


async def _nothing() -> None:
    return None


class ReadyDeletions:
    """Deletions of Ready Nodes, and of their NodeClaims."""

    def __init__(self, world: Any) -> None:
        self.deleted: list[str] = []
        self._ready: set[str] = set()
        world.server.store.observers.append(self._written)

    def _written(self, event: StoreEvent) -> None:
        if event.record is None:
            return
        obj = event.record.obj
        name, status = obj["metadata"]["name"], obj.get("status") or {}
        if event.table == "/nodes":
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))
            (self._ready.add if ready else self._ready.discard)(name)
        here = name if event.table == "/nodes" else status.get("nodeName", "")
        watched = event.table in ("/nodes", "karpenter.sh/nodeclaims")
        if watched and obj["metadata"].get("deletionTimestamp") and here in self._ready:
            self.deleted.append(f"{event.table} {name}")


async def _load(world: Any, minutes: int) -> None:
    """A pod more every minute, each of which needs a node of its own."""
    for minute in range(minutes):
        await world.pods(1, cpu="1500m", prefix=f"m{minute}p")
        await asyncio.sleep(60.0)


async def _schedule(world: Any) -> None:
    """The scheduler: binds pending pods to untainted nodes that they fit."""
    while True:
        await asyncio.sleep(10.0)
        pods = (await world.kube.list(kinds.PODS, type=Pod)).items
        for node in (await world.kube.list(kinds.NODES, type=Node)).items:
            if node.ready and not node.spec.taints and not node.spec.unschedulable:
                there = [pod for pod in pods if pod.spec.node_name == node.metadata.name]
                waiting = [pod for pod in pods if not pod.spec.node_name]
                for pod in fitting(node, there, waiting):
                    with suppress(Conflict, NotFound):
                        await world.kube.bind(pod.metadata.name, "default", node.metadata.name)
                pods = (await world.kube.list(kinds.PODS, type=Pod)).items


async def _settled(world: Any) -> bool:
    claims, pods = await world.list(kinds.NODECLAIMS), await world.bound()
    ready = [(await world.conditions(claim)).get("Ready") for claim in claims]
    return all(pods.values()) and ready == ["True/Ready"] * len(pods)


@pytest.mark.parametrize(("verb", "subject", "way"), tuple(_sweep()))
def test_a_call_that_fails_for_ten_minutes_under_load_costs_no_ready_node_and_no_second_launch(
    run_scenario: RunScenario, verb: str, subject: str, way: str
) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        ready_deletions, cloud = ReadyDeletions(world), FaultyCloud(world.cloud)
        world._spawn(_schedule(world))
        world.start()
        api = world.transport._inner = FaultyApi(InProcess(world.server))
        await world.pods(3, cpu="1500m")
        await world.until(lambda: _settled(world))
        before = {instance.provider_id for instance in world.cloud.standing()}
        if verb == "cloud":
            cloud.fault = (subject, way)
        else:
            api.fault = (verb, subject, way)
        await _load(world, int(FAULT_S / 60))
        assert not world._process.done(), "the process lives"
        assert ready_deletions.deleted == []
        assert {instance.provider_id for instance in world.cloud.standing()} >= before
        api.fault = cloud.fault = None
        await world.until(lambda: _settled(world), within=RECOVERY_S, step=5)
        await asyncio.sleep(600)
        assert ready_deletions.deleted == [] and await _settled(world)
        assert len(world.cloud.standing()) == 13, "one instance a pod"
        assert world.autoscaler.supervisor.unrecovered() == []

    run_scenario(scenario, only=("m.large",))


def test_the_sweep_leaves_no_call_out(run_scenario: RunScenario) -> None:
    async def scenario(world: Any) -> None:
        await world.pool(disruption={"consolidateAfter": "Never"})
        world.start()
        api = world.transport._inner = FaultyApi(InProcess(world.server))
        await world.pods(3, cpu="1500m")
        await world.until(lambda: _settled(world))
        (claim, *_) = await world.list(kinds.NODECLAIMS)
        await world.kube.delete(kinds.NODECLAIMS, claim["metadata"]["name"])
        await asyncio.sleep(FAULT_S)
        absent = {("list", "provisioners"), ("list", "awsnodetemplates"), ("watch", "provisioners")}
        ends = {("delete", "nodes"), ("create", "pods/eviction"), ("delete", "pods")}
        assert api.seen - absent - ends <= set(CALLS) | {("list", each) for _, each in CALLS}
        assert len(api.seen & set(CALLS)) > 20

    run_scenario(scenario, only=("m.large",))
