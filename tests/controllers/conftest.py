"""A whole cluster in virtual time: the lab's API server, a simulated cloud with its instances, and the autoscaler.

The kinds of ours are served without schema: these tests are about behaviour, and start quickly. A scheduler
that finds no node for any pod marks them unschedulable; the node lifecycle removes the not-ready taint.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest

from dovetail.chance import Chance
from dovetail.clock import EPOCH, Clock, run_virtual
from dovetail.cloud.simulated import catalog_file
from dovetail.cloud.simulated.config import SimulatedMarket
from dovetail.cloud.simulated.kubelets import SimulatedKubelets
from dovetail.controllers import logs
from dovetail.controllers.manager import Autoscaler
from dovetail.controllers.settings import Settings
from dovetail.kube import resources as kinds
from dovetail.kube.client import Kube
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.reflector import CacheChange, Reflector
from dovetail.kube.transport import Request, Response, Transport
from dovetail.lab.apiserver.kinds.base import KindStrategy
from dovetail.lab.apiserver.kinds.builtin import builtin
from dovetail.lab.apiserver.registry import Registry, ResourceType, Schema, Subresource
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.checks.autoscaler import AutoscalerInvariants
from dovetail.lab.faults.cloud import FaultyCloud
from dovetail.lab.in_process import InProcess
from dovetail.model.nodes import Node
from dovetail.model.pods import Pod

OURS = (kinds.NODEPOOLS, kinds.NODECLAIMS, kinds.NODEOVERLAYS, kinds.EC2NODECLASSES)
UNSCHEDULABLE = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}
SETTINGS = {"metrics_port": 0, "health_probe_port": 0, "disable_leader_election": True, "plan_deadline": 0.0}


class Killed(BaseException):
    """The process ends here."""


class _Plain(KindStrategy):
    generation = True
    has_status_subresource = True


@cache
def _builtin() -> tuple[ResourceType, ...]:
    """Built once: half a second that every world would pay."""
    return tuple(builtin().all())


def serve_ours(server: ApiServer) -> None:
    pods = server.registry.lookup("", "v1", "pods")
    assert pods is not None
    for kind in OURS:
        schema = Schema(
            kind="object",
            name=kind.kind,
            struct=kind.kind,
            preserve_unknown=True,
            fields={"metadata": pods.schema.fields["metadata"]},
        )
        made = ResourceType(
            group=kind.group,
            version=kind.version,
            plural=kind.plural,
            singular=kind.kind.lower(),
            kind=kind.kind,
            namespaced=False,
            verbs=("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
            schema=schema,
            strategy=_Plain(),
            list_kind=f"{kind.kind}List",
            subresources={"status": Subresource(name="status", verbs=("get", "patch", "update"))},
            storage=(kind.group, kind.version),
            custom=True,
        )
        server.registry.replace_custom(kind.group, kind.plural, [made])


def types(*names: str) -> list[dict[str, Any]]:
    """m.large (2 CPUs), m.xlarge (4), m.2xlarge (8) in zones a and b, on demand and spot."""
    sizes = {"m.large": (2, 8, 0.1), "m.xlarge": (4, 16, 0.2), "m.2xlarge": (8, 32, 0.4)}
    return [
        {
            "name": name,
            "capacity": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "58", "ephemeral-storage": "20Gi"},
            "overhead": {"cpu": "100m", "memory": "500Mi"},
            "labels": {"kubernetes.io/arch": ["amd64"], "kubernetes.io/os": ["linux"]},
            "offerings": [
                {"zone": zone, "capacityType": kind, "price": price * (0.4 if kind == "spot" else 1.0)}
                for zone in ("a", "b")
                for kind in ("on-demand", "spot")
            ],
        }
        for name, (cpu, memory, price) in sizes.items()
        if not names or name in names
    ]


class Counting:
    """A transport that counts writes and dies right after, or right before, a given one."""

    def __init__(self, server: ApiServer, die_after: int | None, die_before: int | None) -> None:
        self._inner = InProcess(server)
        self.writes = 0
        self._after = die_after
        self._before = die_before

    async def send(self, request: Request) -> Response:
        if self._after is not None and self.writes >= self._after:
            raise Killed
        if request.method != "GET":
            self.writes += 1
            if self._before is not None and self.writes >= self._before:
                raise Killed
        response = await self._inner.send(request)
        if self.writes == self._after:
            raise Killed
        return response

    async def close(self) -> None:
        return None


class Refusing:
    """A transport with rights that can be taken away: what is asked of `paths` is forbidden as long as they are."""

    def __init__(self, inner: Transport, *paths: str) -> None:
        self._inner = inner
        self._paths = paths
        self.refused = False

    async def send(self, request: Request) -> Response:
        if self.refused and request.method != "GET" and any(path in request.path for path in self._paths):
            status = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": f"{request.path} is forbidden"}
            return Response(status=403, body=json.dumps(status).encode())
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


class World:
    """Everything but the process under test survives `restart`."""

    def __init__(
        self,
        market: SimulatedMarket | None = None,
        only: tuple[str, ...] = (),
        sold: list[dict[str, Any]] | None = None,
        **settings: Any,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.clock = Clock(loop, EPOCH)
        self.chance = Chance(7)
        registry = Registry(_builtin())
        self.server = ApiServer(clock=self.clock, chance=self.chance.child("server"), registry=registry)
        serve_ours(self.server)
        self.kube = Kube(InProcess(self.server), self.clock, chance=self.chance.child("driver"))
        listed = catalog_file.parse(json.dumps(types(*only) if sold is None else sold).encode())
        self.cloud = FaultyCloud(self.clock, self.chance.child("cloud"), listed, market)
        self.invariants = AutoscalerInvariants(self.server, self.clock, self.cloud, self._safe)
        self.fleet = SimulatedKubelets(self.kube, self.cloud, self.clock, self.chance.child("fleet"))
        self.settings = Settings(**{**SETTINGS, **settings})
        self.lines: list[dict[str, Any]] = []
        self.processes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._process: asyncio.Task[None] | None = None
        self._spawn(self.fleet.run())
        self._spawn(self._schedule())
        self._spawn(self._ready())
        self._spawn(self.invariants.run())

    def _spawn(self, work: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _safe(self) -> bool:
        """Whether the process has stopped voluntary disruption."""
        return self._process is not None and self.autoscaler.safety.safe_mode

    # -- the process under test

    def start(self, die_after: int | None = None, die_before: int | None = None) -> None:
        self.processes += 1
        self.transport = Counting(self.server, die_after, die_before)
        kube = Kube(self.transport, self.clock, chance=self.chance.child("process", str(self.processes)))
        log = logs.logger(self.clock, write=lambda line: self.lines.append(json.loads(line)))
        self.autoscaler = Autoscaler(
            kube, self.cloud, self.clock, self.chance.child("life", str(self.processes)), self.settings, log=log
        )
        self._process = asyncio.ensure_future(self.autoscaler.run())

    async def died(self, within: float = 300.0) -> bool:
        """Whether the process ends by being killed within so many seconds."""
        assert self._process is not None
        done, _ = await asyncio.wait({self._process}, timeout=within)
        if not done:
            return False
        assert isinstance(self._process.exception(), Killed | BaseExceptionGroup)
        return True

    async def stop(self) -> None:
        if self._process is not None:
            self._process.cancel()
            with suppress(BaseException):
                await self._process
            self._process = None

    async def close(self) -> None:
        await self.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what users do

    async def pool(self, name: str = "default", **spec: Any) -> None:
        template = {
            "requirements": spec.pop(
                "requirements", [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
            ),
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "720h",
            **spec.pop("template", {}),
        }
        metadata = spec.pop("metadata", {})
        body = {"metadata": {"name": name}, "spec": {"template": {"metadata": metadata, "spec": template}, **spec}}
        await self.kube.create(kinds.NODEPOOLS, body)

    async def pods(
        self, count: int, cpu: str = "500m", prefix: str = "p", owners: Sequence[Any] = (), **spec: Any
    ) -> None:
        resources = {"requests": {"cpu": cpu, "memory": "256Mi"}}
        for number in range(count):
            name = f"{prefix}{number}"
            body = {
                "metadata": {"name": name, "labels": {"app": prefix}, "ownerReferences": list(owners)},
                "spec": {"containers": [{"name": "c", "image": "pause", "resources": resources}], **spec},
            }
            await self.kube.create(kinds.PODS, body, "default")

    async def served(self, count: int, **more: Any) -> None:
        """Start the process, create pods, and wait until all of them have a node."""
        self.start()
        await self.pods(count, **more)
        await self.until(self.all_bound)

    # -- what is seen

    async def list(self, kind: kinds.Resource) -> list[dict[str, Any]]:
        return (await self.kube.list(kind)).items

    async def bound(self) -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in await self.list(kinds.PODS)}

    async def conditions(self, claim: Mapping[str, Any]) -> dict[str, str]:
        found = (claim.get("status") or {}).get("conditions") or []
        return {each["type"]: f"{each['status']}/{each['reason']}" for each in found}

    def logged(self, message: str) -> Sequence[dict[str, Any]]:
        return [line for line in self.lines if line["message"] == message]

    async def until(self, holds: Callable[[], Awaitable[bool]], within: float = 120.0, step: float = 0.25) -> float:
        """Let time pass until it holds; the seconds it took."""
        began = self.clock.monotonic()
        while not await holds():
            if self.clock.monotonic() - began > within:
                raise AssertionError(f"did not happen within {within} s; log: {self.lines[-5:]}")
            await asyncio.sleep(step)
        return self.clock.monotonic() - began

    async def all_bound(self) -> bool:
        return all((await self.bound()).values())

    # -- the parts of Kubernetes that are not here

    async def _schedule(self) -> None:
        """A scheduler that never finds a node: it marks every new pod unschedulable after a moment."""
        news: asyncio.Queue[Pod] = asyncio.Queue()

        def on_change(change: CacheChange[Pod]) -> None:
            self.fleet.pod_changed(change.old, change.new)
            if change.kind == "added" and not change.object.spec.node_name and not change.object.spec.scheduling_gates:
                news.put_nowait(change.object)

        self._spawn(Reflector(self.kube, kinds.PODS, Pod, on_event=on_change).run())
        while True:
            meta = (await news.get()).metadata
            await asyncio.sleep(0.01)
            with suppress(NotFound):
                await self.kube.patch(kinds.PODS, meta.name, UNSCHEDULABLE, meta.namespace, subresource="status")

    async def _ready(self) -> None:
        """The node lifecycle: a ready node loses the taint it was admitted with."""
        news: asyncio.Queue[Node] = asyncio.Queue()

        def on_change(change: CacheChange[Node]) -> None:
            if change.new is not None:
                news.put_nowait(change.new)

        self._spawn(Reflector(self.kube, kinds.NODES, Node, on_event=on_change).run())
        while True:
            node = await news.get()
            left = [taint for taint in node.spec.taints if taint.key != "node.kubernetes.io/not-ready"]
            if node.ready and len(left) < len(node.spec.taints):
                body = {
                    "metadata": {"resourceVersion": node.metadata.resource_version},
                    "spec": {"taints": msgspec.to_builtins(left) or None},
                }
                with suppress(NotFound, Conflict):
                    await self.kube.patch(kinds.NODES, node.metadata.name, body)


Scenario = Callable[[World], Awaitable[None]]


@pytest.fixture
def run_scenario() -> Callable[..., None]:
    """Run a story in a fresh world, in virtual time."""

    def run(scenario: Scenario, **world: Any) -> None:
        async def main() -> None:
            made = World(**world)
            try:
                await scenario(made)
            finally:
                await made.close()
            assert made.invariants.violations == []

        run_virtual(main())

    return run
