"""The API server, the observer and the page in a thread of their own, for tests that block on a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, TypeVar

import msgspec

from dovetail.chance import Chance
from dovetail.clock import Clock
from dovetail.controllers.history.decisions import Decision
from dovetail.kube.client import Kube
from dovetail.kube.errors import AlreadyExists, Disconnected
from dovetail.kube.resources import CONFIGMAPS, CRDS, NAMESPACES, NODECLAIMS, NODEPOOLS, NODES, PODS, Resource
from dovetail.kube.transport import Request, Response
from dovetail.lab.apiserver.auth import ADMIN, User
from dovetail.lab.apiserver.kinds.bootstrap_rbac import seed_defaults
from dovetail.lab.apiserver.server import ApiServer
from dovetail.lab.in_process import InProcess
from dovetail.model.kinds import crds
from dovetail.view.observer import Observer
from dovetail.web.run import ServeOptions, dashboard
from dovetail.web.server import Dashboard

T = TypeVar("T")
TOKEN = "a-token-for-the-tests"
#: Bearer tokens that the API server knows.
DEVELOPER, STRANGER, ADMINISTRATOR = "developer-token", "stranger-token", "administrator-token"
GIB = 1 << 30


class Cable:
    """A transport that can be cut."""

    def __init__(self, inner: InProcess) -> None:
        self._inner = inner
        self.cut = asyncio.Event()

    async def send(self, request: Request) -> Response:
        if self.cut.is_set():
            raise Disconnected("connection refused")
        response = await self._inner.send(request)
        if response.stream is not None:
            response.stream = self._until_cut(response.stream)
        return response

    async def _until_cut(self, stream: Any) -> Any:
        cut, line = asyncio.ensure_future(self.cut.wait()), None
        try:
            while True:
                line = asyncio.ensure_future(anext(stream, None))
                await asyncio.wait({line, cut}, return_when=asyncio.FIRST_COMPLETED)
                if cut.done():
                    raise Disconnected("connection reset")
                if (piece := line.result()) is None:
                    return
                yield piece
        finally:
            for task in filter(None, (cut, line)):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await stream.aclose()

    async def close(self) -> None:
        await self._inner.close()


class World:
    """`with World() as world`; `world.do(coroutine)` runs in its thread."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world", daemon=True)
        self._page: AsyncExitStack | None = None
        self._version = 0
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self.do(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._close_page())
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self) -> None:
        self.clock = Clock(asyncio.get_running_loop())
        users = {
            DEVELOPER: User("developer", ("system:authenticated",)),
            STRANGER: User("stranger", ("system:authenticated",)),
            ADMINISTRATOR: ADMIN,
        }
        self.server = ApiServer(self.clock, Chance(1), tokens=users)
        seed_defaults(self.server, self.clock.now())
        headers = {"authorization": f"Bearer {ADMINISTRATOR}"}
        self.kube = Kube(InProcess(self.server, headers), self.clock, chance=Chance(2))
        self.cable = Cable(InProcess(self.server, headers))
        for definition in crds.definitions():
            await self.kube.create(CRDS, definition)
        for name in ("shop", "secret-lab", "kube-system"):
            try:
                await self.kube.create(NAMESPACES, {"metadata": {"name": name}})
            except AlreadyExists:
                continue
        await self._open_page(0)

    async def _open_page(self, port: int) -> None:
        self._page = AsyncExitStack()
        seen = Kube(self.cable, self.clock, chance=Chance(3))
        given = {"auth": "url", **self._options}
        options = ServeOptions(port=port, token=TOKEN if given["auth"] == "url" else None, **given)
        self.url, self.dashboard, self.observer = await self._page.enter_async_context(
            dashboard(seen, self.clock, options)
        )
        await self.observer.ready.wait()

    async def _close_page(self) -> None:
        if self._page is not None:
            await self._page.aclose()
            self._page = None

    async def _end(self) -> None:
        """Leave no task of the server behind."""
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    dashboard: Dashboard
    observer: Observer

    @property
    def base(self) -> str:
        return self.url.partition("?")[0].rstrip("/")

    def stop_page(self) -> None:
        self.do(self._close_page())

    def start_page(self) -> None:
        """The page again, where it was."""
        self.do(self._open_page(self.dashboard.port))

    def settle(self, seen: Callable[[Observer], bool]) -> None:
        """Wait until the observer has seen what was written."""

        async def wait() -> None:
            async with asyncio.timeout(20):
                while not seen(self.observer):  # noqa: ASYNC110 (the observer publishes by a quarter of a second)
                    await asyncio.sleep(0.02)

        self.do(wait())

    # -- objects

    def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        return self.do(self.kube.create(resource, body))

    def node(self, name: str, *, pool: str = "", claim: str = "", price: str = "", cpu: int = 4, **more: Any) -> None:
        """A Ready node; with `claim` a NodeClaim as well, with its price."""
        labels = {
            "node.kubernetes.io/instance-type": "m5.xlarge",
            "topology.kubernetes.io/region": "us-east-1",
            "topology.kubernetes.io/zone": "us-east-1a",
            "karpenter.sh/capacity-type": "on-demand",
            **({"karpenter.sh/nodepool": pool} if pool else {}),
            **more.get("labels", {}),
        }
        amounts = {"cpu": str(cpu), "memory": f"{4 * cpu}Gi", "pods": "58"}
        if claim:
            self.claim(claim, provider=f"aws:///us-east-1a/{name}", pool=pool, price=price, ready=True)
        body = {
            "metadata": {"name": name, "labels": {key: value for key, value in labels.items() if value is not None}},
            "spec": {"providerID": f"aws:///us-east-1a/{name}"},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
        self.create(NODES, body)

    def claim(self, name: str, *, provider: str = "", pool: str = "", price: str = "", ready: bool = False) -> None:
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        annotations = {"dovetail.sh/price": price} if price else {}
        labels = {"karpenter.sh/nodepool": pool} if pool else {}
        requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
        body = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"nodeClassRef": reference, "requirements": requirements},
        }
        self.create(NODECLAIMS, body)
        if provider:
            done = "True" if ready else "False"
            conditions = [
                {
                    "type": kind,
                    "status": "True" if kind == "Launched" else done,
                    "reason": kind,
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind in ("Launched", "Registered", "Initialized")
            ]
            status = {"status": {"providerID": provider, "conditions": conditions}}
            self.do(self.kube.patch(NODECLAIMS, name, status, subresource="status"))

    def pool(self, name: str, **disruption: Any) -> None:
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        requirements = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
        template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
        spec: dict[str, Any] = {"template": template, **({"disruption": disruption} if disruption else {})}
        self.create(NODEPOOLS, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str, node: str = "", *, namespace: str = "shop", cpu: str = "500m", **more: Any) -> None:
        container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **more}
        spec = {"containers": [container], **({"nodeName": node} if node else {})}
        self.create(PODS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def delete(self, resource: Resource, name: str, namespace: str | None = None) -> None:
        grace = 0 if resource is PODS else None
        self.do(self.kube.delete(resource, name, namespace, grace=grace))

    def decide(self, *decisions: Decision) -> None:
        self._version += 1
        text = "".join(msgspec.json.encode(decision).decode() + "\n" for decision in decisions)
        name = f"dovetail-history-{self._version}"
        metadata = {"name": name, "namespace": "kube-system", "labels": {"dovetail.sh/history": "true"}}
        self.create(CONFIGMAPS, {"metadata": metadata, "data": {"decisions": text}})
